"""No Python interface: Fetch calls `read_converted` from Cython."""
