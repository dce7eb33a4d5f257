"""Where the broker's log goes: standard error, as text or as JSON, written by a separate thread.

A closed terminal, a full disk or a reader that has stopped must neither block nor end a broker:
lines that cannot be written are dropped. Once the output works again, the log says how many lines
were dropped. Rotation is left to the system.

Data from clients can neither begin a new line nor fill the memory: control characters are escaped,
and long messages are cut.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import threading
from collections import deque
from datetime import datetime

from ottla.wire.wording import counted

LINES_MAX = 10_000
FLUSH_SECONDS = 1.0
GATHER_SECONDS = 0.01
"""How long a line waits for further lines, so that they share one wake-up of the thread and one
write."""
TEXT = "%(moment)s %(levelname)s %(name)s: %(message)s"
MESSAGE_SIZE_MAX = 8192
"""The limit of a message in characters. A name that a client sends may have 32,767 characters."""
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that begin another line, move the cursor or change the order of the text, and
surrogates, which cannot be encoded."""


class Output(logging.Handler):
    """Passes formatted lines to the thread that writes them."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self.fd = fd
        self.lines: deque[str] = deque()
        self.dropped = 0
        self.cut = False
        """Whether the output ends in the middle of a line."""
        self.wanted = threading.Condition()
        self.idle = True
        self.hurried = False
        self.thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record's line; if the queue is full, the line is dropped and counted."""
        try:
            line = self.format(record) + "\n"
        except Exception:
            self.handleError(record)
            return
        with self.wanted:
            if len(self.lines) >= LINES_MAX:
                self.dropped += 1
                return
            self.lines.append(line)
            if self.thread is None:
                self.thread = threading.Thread(target=self._run, name="ottla-log", daemon=True)
                self.thread.start()
            if self.idle:
                self.idle = False
                self.wanted.notify_all()

    def _run(self) -> None:
        while True:
            with self.wanted:
                while not self.lines:
                    self.idle = True
                    self.wanted.notify_all()
                    self.wanted.wait()
                self.wanted.wait_for(lambda: self.hurried, GATHER_SECONDS)
                text = "".join(self.lines)
                self.lines.clear()
                dropped, self.dropped = self.dropped, 0
            if dropped:
                lines = counted(dropped, "line of the log was", "lines of the log were")
                lost = f"ottla: {lines} dropped, because the output did not accept them"
                text += self.shown(lost, logging.WARNING) + "\n"
            left = self._write(text.encode(errors="backslashreplace"))
            if left:
                with self.wanted:
                    # The last line is the one about `dropped` lines; it is written again later.
                    self.dropped += left.count(b"\n") + (dropped - 1 if dropped else 0)

    def _write(self, data: bytes) -> bytes:
        """Write lines; returns those that were not written, because the terminal is closed or the
        disk is full."""
        try:
            if self.cut:
                os.write(self.fd, b"\n")
                self.cut = False
            while data:
                size = os.write(self.fd, data)
                self.cut = data[size - 1 : size] != b"\n"
                data = data[size:]
        except OSError:
            pass                        # keep serving
        return data

    def shown(self, text: str, level: int) -> str:
        """Return a line that is not a log record, such as `ottla ready: …`, in the format of the
        log: unchanged, or as JSON."""
        if not isinstance(self.formatter, JsonLines):
            return text
        line = logging.LogRecord("ottla.server", level, "", 0, "%s", (text,), None)
        return self.formatter.format(line)

    def flush(self) -> None:
        """Wait until everything is written, for a bounded time."""
        with self.wanted:
            self.hurried = True
            self.wanted.notify_all()
            self.wanted.wait_for(lambda: self.idle, FLUSH_SECONDS)
            self.hurried = False


def printable(text: str) -> str:
    """The text with control characters escaped, so that it stays on one line."""
    return CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def moment(seconds: float) -> str:
    """A time in seconds since 1970 as RFC 3339 text, with the offset of the time zone."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")


def shortened(text: str) -> str:
    """Return a text of at most MESSAGE_SIZE_MAX characters unchanged. Cut a longer text, and append
    the number of characters that were cut."""
    more = len(text) - MESSAGE_SIZE_MAX
    return text if more <= 0 else f"{text[:MESSAGE_SIZE_MAX]}... ({more} more characters)"


class TextLines(logging.Formatter):
    """Formats each record as one line, unless the record's `block` is true. A traceback follows in
    lines of its own."""

    def __init__(self) -> None:
        super().__init__(TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line of a record, without its traceback."""
        record.moment = moment(record.created)
        if not getattr(record, "block", False):
            record.message = printable(shortened(record.message))
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and the record's extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        shown = {
            "time": moment(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": shortened(getattr(record, "plain", None) or record.getMessage()),
            **{
                name: shortened(value) if isinstance(value, str) else value
                for name, value in getattr(record, "fields", {}).items()
            },
        }
        if record.exc_info:
            shown["exception"] = self.formatException(record.exc_info)
        return json.dumps(shown, ensure_ascii=False, default=str)


def start_logging(level: str, form: str) -> None:
    """Log to standard error from now on. `form` is text or json."""
    output = Output(2)
    output.setFormatter(JsonLines() if form == "json" else TextLines())
    # Neither form shows the thread and the process, so no time is spent on determining them.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.addHandler(output)
    root.setLevel(level.upper())
    atexit.register(output.flush)


def shown(text: str, level: int = logging.INFO) -> str:
    """The text of a line that is not a log record, in the form of the log."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, Output):
            return handler.shown(text, level)
    return text


def say(text: str) -> None:
    """Print a line on standard output, if it can be written."""
    try:
        print(shown(text), flush=True)
    except OSError:
        # Otherwise flushing the rest of the buffer would fail again when the process exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
