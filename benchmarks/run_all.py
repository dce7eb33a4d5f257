"""`make bench`: every question, one after the other."""

from __future__ import annotations

from benchmarks import fetch_cpu, produce_cpu, start_time

if __name__ == "__main__":
    for question in (start_time, produce_cpu, fetch_cpu):
        question.main()
