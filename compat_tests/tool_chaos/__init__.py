"""Tests our commands and stock clients while processes are killed; see README.md."""
