"""Simulates several brokers and their ZooKeeper; README.md says how it works."""
