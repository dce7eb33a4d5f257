# Marks on rare branches, for Cython modules; see marks.pyx.

cpdef object reached(str mark)
