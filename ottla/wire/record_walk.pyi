"""No Python interface: Cython modules such as `batch` and `records` check records with it."""
