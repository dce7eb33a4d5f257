"""The same requests to two brokers, and their answers compared field by field; see README.md."""
