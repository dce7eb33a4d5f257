"""One question a file. SIGTERM ends a benchmark as Ctrl-C does, and its brokers with it."""

from __future__ import annotations

import signal
import sys

if sys.argv[0] == "-m":             # `python -m benchmarks.NAME`; NAME is imported later
    signal.signal(signal.SIGTERM, signal.default_int_handler)
