"""No Python interface: segments look batches up from Cython."""
