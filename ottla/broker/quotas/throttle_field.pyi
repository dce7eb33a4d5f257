"""Used from Cython only: `set_throttle_time`."""
