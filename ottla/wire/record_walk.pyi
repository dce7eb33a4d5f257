"""No Python interface: Cython modules such as `batch` and `records` walk records."""
