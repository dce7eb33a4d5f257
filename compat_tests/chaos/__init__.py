"""Stock clients use a cluster while a seeded sequence of faults occurs; see README.md."""
