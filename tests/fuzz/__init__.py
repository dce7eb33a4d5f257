"""Fuzzers: functions that take any bytes and must not raise. README.md says how to run them."""
