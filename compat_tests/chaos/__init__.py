"""Chaos: a cluster of processes, stock clients, and faults from a seed."""
