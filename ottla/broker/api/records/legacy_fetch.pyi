"""Nothing for Python: Fetch calls `read_converted` from Cython."""
