"""No Python interface: `producers` reads markers from Cython."""
