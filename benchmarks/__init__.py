"""Each file answers one question. SIGTERM ends a benchmark and its brokers, as Ctrl-C does."""

from __future__ import annotations

import signal
import sys

if sys.argv[0] == "-m":             # `python -m benchmarks.NAME`; NAME is imported later
    signal.signal(signal.SIGTERM, signal.default_int_handler)
