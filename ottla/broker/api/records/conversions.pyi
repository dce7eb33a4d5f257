"""No Python interface: used from Cython only."""
