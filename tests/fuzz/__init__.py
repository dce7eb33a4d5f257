"""Fuzzers: functions that take any bytes and may raise nothing; README.md says how to run them."""
