"""Sends the same requests to two brokers, and compares the answers by field; see README.md."""
