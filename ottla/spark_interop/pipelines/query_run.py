"""Running a pipeline and its streaming query to the end: progress on a terminal, outages, errors.

Each error says what to do.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ottla.spark_interop.cluster import PATIENCE_SECONDS, Cluster
from ottla.spark_interop.errors import DataLost, NoBroker, PipelineError
from ottla.spark_interop.pipelines.files import Files, Readable
from ottla.spark_interop.pipelines.query_reports import News, is_batch, unreported
from ottla.spark_interop.times import interval
from ottla.wire.wording import counted

WATCH_SECONDS = 10.0
REPORT_FAILED = 'the return value of "scala.Option.get()" is null'  # of Spark 4.1.1
POLL_SECONDS = 0.5  # the wait ends earlier if the query ends
SILENT_SECONDS = 8.0  # a longer wait is explained; `check_ids` alone may wait for 5 s
TICK_SECONDS = 1.0
JOIN_SECONDS = 1.0
LOOK_SECONDS = 2.0  # the interval at which Contact tests whether a broker accepts connections
LOOKS_SHARE = 0.1  # the share of time that these tests may take; dropped packets make them slow
CALLS_MAX = 5  # calls of the JVM after an interrupt, until one succeeds
AGAIN_SECONDS = 0.2  # the pause between them
AWAY_SECONDS = 3.0  # a shorter outage is not reported
# The two minutes in the next text are PATIENCE_SECONDS.
AWAY = "no answer from the brokers yet; the pipeline waits for them for up to two minutes"
BACK = "the brokers answer again"
ENDING = "Spark is ending the query; while no broker answers, this takes up to half a minute"
IDLE = "(no new records yet)"
CUT = "(interrupted: one more batch may be stored)"
LOST = "Some data may have been lost"
# Advice after lost records: RUN_AGAIN is for pipelines without a checkpoint, ALLOW_GAPS for others.
RUN_AGAIN = "Run the same command again: it reads the remaining records"
ALLOW_GAPS = "To continue with the remaining records, run it again with allow_gaps (--allow-gaps)"
# Errors that end a query. The key is a text that the error or one of its causes contains; the value
# is our class of error, and an explanation for the user.
CAUSES = {
    LOST: (
        DataLost,
        "records were deleted from the topic before this pipeline read them (by retention or "
        "DeleteRecords, or because the topic was deleted and created again)",
    ),
    "No space left on device": (
        PipelineError,
        "a file system is full: that of the result, or that of Spark's temporary files (/tmp, or "
        "$SPARK_LOCAL_DIRS). The last batch was not committed: make room and run the same command "
        "again",
    ),
    "Multiple streaming jobs detected": (
        PipelineError,
        "another run of this pipeline uses the same checkpoint: stop one of the two, and run the "
        "same command again",
    ),
    "Timeout of": (PipelineError, "the brokers did not answer in time; run the same command again"),
    "is not a Parquet file": (DataLost, "a file is damaged"),
    "Checksum error": (DataLost, "a file is damaged"),
    "could not verify page checksum": (DataLost, "a file is damaged"),
    "bad record at": (PipelineError, "with mode=failfast, the query ends at the first bad record"),
}


# One of our errors that passed through a Python worker or a callback of the JVM.
OURS = re.compile(
    r"\b(PipelineError|WrongOption|DataLost|BadRecord|NoBroker|SparkUnavailable): (.+)")
TRACEBACK = "Traceback (most recent call last):"
RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)(?:: (.*))?$")  # a traceback's last line
CAUSED = re.compile(r"^(?:Caused )?(?:by)?: (?:[a-z_]\w*\.)+(\w+): (.+)$", re.M)
SENTENCE_MAX = 1200


@dataclass
class Outage:
    """Since when no broker has answered, and whether the user was told."""

    since: float | None = None
    told: bool = False


class Progress:
    """One progress line on a terminal, overwritten by each update.

    By default (`show` None) the line is shown if standard error is a terminal. Long waits are
    explained even without a terminal, unless `show` is false. `interrupted` says whether the user
    ended a query that would run for ever. While `querying`, `run` reports outages; `looking` then
    reports them only with `beside_query`. Several threads may draw this line and print other lines.
    """

    def __init__(self, what: str, show: bool | None = None) -> None:
        self.what = what
        self.explains = show is not False
        self.show = sys.stderr.isatty() if show is None else show
        self.interrupted = False
        self.earlier = 0    # the records of earlier queries of the same run
        self.querying = False
        self.outage = Outage()
        self._lock = threading.RLock()
        self._drawn = False
        self._line = ""     # the line that is overwritten, while there is one
        self._begin = time.monotonic()

    def begin(self) -> None:
        """Shows that the first batch takes a while."""
        if not self._drawn:
            self.restart()
            self._draw(f"{self.what}: the first batch takes up to half a minute on two idle cores")

    def restart(self) -> None:
        """Begins to measure anew: the rate is the mean since the last call of this method."""
        self._begin = time.monotonic()

    def tick(self, seconds: float) -> None:
        """Shows that the run has taken this long."""
        self._draw(f"{self.what}: {seconds:.0f} s")

    def update(self, records: int, note: str = "") -> None:
        """Shows this many records of the query as done."""
        if self.show:
            records += self.earlier
            seconds = max(time.monotonic() - self._begin, 0.001)
            rate = records / seconds
            self._draw(f"{self.what}: {counted(records, 'record')}, {rate:,.0f}/s {note}")

    @contextmanager
    def explaining(self, why: str) -> Iterator[threading.Event]:
        """If the block runs longer than SILENT_SECONDS, prints `why` and sets the yielded event."""
        printed = threading.Event()

        def explain() -> None:
            self.say(why)
            printed.set()

        timer = threading.Timer(SILENT_SECONDS, explain)
        timer.daemon = True
        try:
            if self.explains:
                timer.start()
            yield printed
        finally:
            timer.cancel()
            if timer.ident is not None:
                timer.join()    # `explain` may be printing

    def say(self, text: str) -> None:
        """Prints a line, above the progress line if there is one."""
        line = f"{self.what}: {text}"
        with self._lock:
            if self._line:
                print(f"\r\x1b[K{line}\n{self._line}", end="", file=sys.stderr, flush=True)
            elif self.explains:
                print(line, file=sys.stderr, flush=True)

    def _draw(self, text: str) -> None:
        if self.show:
            with self._lock:
                self._drawn, self._line = True, text
                print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Removes the progress line from the terminal."""
        with self._lock:
            if self._line:
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
                self._line = ""

    def done(self) -> None:
        """Leaves the progress line on the terminal and ends it with a newline."""
        with self._lock:
            if self._line:
                print(file=sys.stderr)
                self._line = ""


class Contact:
    """Reports once per outage that no broker answers, and once that brokers answer again.

    `reach` and `watch` are those of `drain`. If brokers accept connections but do not answer,
    `watch` waits for them. `outage` may be the state of an earlier Contact, which this one
    continues. Once `ended` is set, nothing more is reported.
    """

    def __init__(
        self,
        progress: Progress,
        reach: Callable[[], None] | None,
        watch: Callable[[], None] | None,
        outage: Outage | None = None,
        ended: threading.Event | None = None,
    ) -> None:
        self._progress, self._reach, self._watch = progress, reach, watch
        self._watched = time.monotonic()
        self._next = self._watched + LOOK_SECONDS
        self._outage, self._ended = outage or Outage(), ended or threading.Event()

    def look(self) -> None:
        """Tries the brokers and runs `watch`, each if it is due. Raises NoBroker if no broker has
        accepted a connection for PATIENCE_SECONDS."""
        if not self._there() or self._watch is None:
            return
        if time.monotonic() - self._watched > WATCH_SECONDS:
            with self._progress.explaining(AWAY) as told:
                self._watch()
            if told.is_set():
                self._progress.say(BACK)
            self._watched = time.monotonic()

    def _there(self) -> bool:
        """Whether the last try reached a broker; tries again if that is due."""
        begun, outage = time.monotonic(), self._outage
        if self._reach is None or begun < self._next:
            return outage.since is None
        try:
            self._reach()
        except NoBroker:
            now = time.monotonic()
            outage.since = begun if outage.since is None else outage.since
            if now - outage.since > PATIENCE_SECONDS:
                raise
            if not outage.told and now - outage.since >= AWAY_SECONDS:
                outage.told = True
                self._say(AWAY)
            self._next = now + POLL_SECONDS
            return False
        now = time.monotonic()
        self._next = now + max(LOOK_SECONDS, (now - begun) / LOOKS_SHARE)
        self.back()
        return True

    def back(self) -> None:
        """Ends the outage, if there is one."""
        if self._outage.told:
            self._say(BACK)
        self._outage.since, self._outage.told = None, False

    def _say(self, text: str) -> None:
        if not self._ended.is_set():
            self._progress.say(text)


@contextmanager
def telling(
    what: str, show: bool | None, *where: str | Cluster | None
) -> Iterator[Progress]:
    """The Progress of the pipeline that the block runs. Outages of the clusters at `where` are
    reported even while no query runs."""
    clusters = [Cluster.of(one) for one in where if one is not None]

    def reach() -> None:
        for cluster in clusters:
            cluster.reach()

    progress = Progress(what, show)
    with looking(progress, reach):
        yield progress


@contextmanager
def looking(
    progress: Progress, reach: Callable[[], None], *, beside_query: bool = False
) -> Iterator[None]:
    """While the block runs, a thread reports when no broker answers, and when brokers answer again.
    The block itself has to wait for the brokers or raise an error. While a query runs, the thread
    pauses, since `run` then reports outages. With `beside_query`, which is for brokers that the
    query does not read from, the thread does not pause."""
    ended = threading.Event()
    outage = Outage() if beside_query else progress.outage
    contact = Contact(progress, reach, None, outage, ended)

    def look() -> None:
        while not ended.wait(POLL_SECONDS):
            if beside_query or not progress.querying:
                with suppress(PipelineError):
                    contact.look()

    if progress.explains:   # daemon: an address that drops packets must not delay the end
        threading.Thread(target=look, daemon=True).start()
    try:
        yield
        contact.back()
    finally:
        ended.set()


@contextmanager
def clock(progress: Progress) -> Iterator[None]:
    """On a terminal, shows how many seconds the block has been running."""
    begun = time.monotonic()
    try:
        with _ticking(progress, lambda _: progress.tick(time.monotonic() - begun)):
            yield
    finally:
        progress.clear()


@contextmanager
def counting(progress: Progress, records: Callable[[], int]) -> Iterator[None]:
    """On a terminal, shows how many records the block has written, as far as `records` can tell.
    Before the first record, shows how many seconds the block has been running."""

    def tick(ended: threading.Event) -> None:
        with suppress(PipelineError):   # no broker answers: `looking` reports that
            done = records()
            if ended.is_set():
                return
            if done:
                progress.update(done, "(estimated)")
            else:
                progress.tick(time.monotonic() - begun)

    begun = time.monotonic()
    progress.restart()
    with _ticking(progress, tick):
        yield


@contextmanager
def _ticking(progress: Progress, tick: Callable[[threading.Event], None]) -> Iterator[None]:
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(TICK_SECONDS):
            tick(ended)

    ticking = threading.Thread(target=run, daemon=True)
    try:
        if progress.show:
            ticking.start()
        yield
    finally:
        ended.set()
        if ticking.ident is not None:
            ticking.join(JOIN_SECONDS)  # not longer: it may be waiting for an answer


def trigger_of(every: str | None) -> dict[str, Any]:
    """A stream's trigger: with None the stream ends when all is read, else it runs for ever."""
    return {"availableNow": True} if every is None else {"processingTime": interval(every)}


def drain(
    writer: Any,
    files: Files,
    checkpoint: str,
    every: str | None,
    progress: Progress,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
    watch: Callable[[], None] | None = None,
    after_loss: str = ALLOW_GAPS,
    reach: Callable[[], None] | None = None,
) -> int:
    """Starts a query with a checkpoint and runs it to its end; returns the number of rows read.

    `watch` raises an error if the query must not go on; it is called periodically, and at the end.
    `after_loss` says what a user can do if records were deleted before they were read. `reach`
    raises NoBroker if no broker accepts connections; outages are reported while the query runs.

    A batch that a killed run had begun is run first, in a separate query. With the trigger
    availableNow, Spark would refuse to run such a batch if partitions were added meanwhile. With
    any trigger, Spark 4.1.1 fails to report such a batch after committing it, so the batch's
    figures are read from the query's plan.

    KeyboardInterrupt ends a query that runs for ever; for other queries it is raised. If something
    else stops a query inside a batch, PipelineError is raised.
    """
    writer = writer.option("checkpointLocation", files.at(checkpoint))
    triggers = [trigger_of(every)]
    if has_open_batch(files, checkpoint):
        triggers.insert(0, {"once": True})
    progress.querying, rows = True, 0
    for trigger in triggers:
        if progress.interrupted:
            break
        try:
            query = writer.trigger(**trigger).start()
        except KeyboardInterrupt:
            if every is None:
                raise
            progress.interrupted = True     # between two queries, or before the first
            break
        except Exception as error:
            raise explained(error, after_loss) from error
        try:
            rows += run(
                query, progress, on_progress, watch, every is not None, after_loss, reach
            )
        except PipelineError as error:
            committed = "once" in trigger and not has_open_batch(files, checkpoint)
            if not committed or REPORT_FAILED not in str(error):
                raise
            told = unreported(query)
            rows += told["numInputRows"]
            progress.earlier += told["numInputRows"]
            if on_progress is not None:
                on_progress(told)
        else:
            if not progress.interrupted and has_open_batch(files, checkpoint):
                raise PipelineError(
                    "Spark was stopped in the middle of a batch; run the same command again"
                )
    progress.querying = False
    return rows


def has_open_batch(files: Files, checkpoint: str) -> bool:
    """Whether a checkpoint has a batch that was begun and not committed."""
    begun, ended = (newest(files, checkpoint, kind) for kind in ("offsets", "commits"))
    return begun is not None and begun != ended


def newest(files: Readable, checkpoint: str, kind: str) -> int | None:
    """The number of the newest batch in `offsets` or `commits` of a checkpoint."""
    place = f"{checkpoint}/{kind}" if checkpoint else kind
    numbers = [name.rpartition("/")[2] for name in files.list(place)]
    return max((int(n) for n in numbers if n.isdigit()), default=None)


def offsets_in(files: Readable, name: str) -> dict[str, int]:
    """The offsets in a file of a checkpoint, by partition."""
    last = files.read(name).strip().splitlines()[-1]
    [offsets] = json.loads(last[last.index("{") :]).values()
    return {str(p): int(o) for p, o in offsets.items()}


def run(
    query: Any,
    progress: Progress,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
    watch: Callable[[], None] | None = None,
    for_ever: bool = False,
    after_loss: str = ALLOW_GAPS,
    reach: Callable[[], None] | None = None,
) -> int:
    """Waits until a query ends; returns the number of rows it read. `watch`, `after_loss` and
    `reach` are those of `drain`. `on_progress` gets each batch's StreamingQueryProgress, parsed
    from its JSON. Raises what `explained` returns for the query's error. KeyboardInterrupt stops
    the query, and is raised unless the query runs `for_ever`."""
    rows, seen, cut, news = 0, False, False, News(query)
    contact = Contact(progress, reach, watch, progress.outage)

    def take_news() -> None:
        nonlocal rows, seen
        for report in news.take():
            if is_batch(report):
                seen = True
                rows += report["numInputRows"]
                progress.update(rows, f"(batch {report['batchId']})")
                if on_progress is not None:
                    on_progress(report)
            elif not seen:
                progress.update(rows, IDLE)

    progress.begin()
    try:
        while True:
            active = query.isActive
            take_news()
            if not active:
                break
            query.awaitTermination(POLL_SECONDS)
            contact.look()
    except KeyboardInterrupt:
        if not for_ever:
            cut = True
            with suppress(Exception):   # such as errors of the JVM that the interrupt causes
                query.stop()
                take_news()
            raise
        failed = _tried_again(lambda: None if query.isActive else query.exception())
        with progress.explaining(ENDING):
            _tried_again(query.stop)
        if failed is not None:
            raise explained(failed, after_loss) from None
        progress.interrupted = True
        _tried_again(take_news)
    except Exception as error:
        query.stop()
        if watch is not None and "lost" in str(error):
            watch()     # raises a clearer error if the topic was created again
        raise explained(error, after_loss) from error
    finally:
        if cut or not seen:
            progress.update(rows, CUT if cut else "")
        progress.earlier += rows
        progress.done()
    if progress.interrupted:
        return rows     # a stop inside a batch sets the query's exception, which is no error here
    failed = query.exception()
    if failed is not None:
        raise explained(failed, after_loss)
    if watch is not None:
        with progress.explaining(AWAY):
            watch()
    return rows


def _tried_again(call: Callable[[], Any]) -> Any:
    """What `call` returns; a failed call of the JVM is made again. An interrupt may leave py4j with
    a connection that the JVM closes, so that one of the next calls fails."""
    for _ in range(CALLS_MAX - 1):
        try:
            return call()
        except Exception:
            time.sleep(AGAIN_SECONDS)
    return call()


def explained(error: BaseException, after_loss: str = RUN_AGAIN) -> PipelineError:
    """An error of Spark as one of our errors, in one sentence; `after_loss` is that of `drain`.

    The sentence comes from the first match in CAUSES. Without a match, it is the innermost error:
    one of our errors, the error of a Python worker, or the JVM's last cause. If no such error is
    found, it is the first line of the error's text.
    """
    if isinstance(error, PipelineError):
        return error
    # Some errors of the JVM, such as "Exception thrown in awaitResult", have their causes only in
    # the stack trace.
    text = "\n".join(filter(None, [str(error), getattr(error, "_stackTrace", "")]))
    for sign, (kind, advice) in CAUSES.items():
        if sign in text:
            line = next((x.strip() for x in text.splitlines() if sign in x), sign)
            more = f". {after_loss}" if sign == LOST else ""
            return kind(f"{advice}{more}. Spark says: {line[:600]}")
    ours = OURS.search(text)
    if ours is not None:
        return DataLost(ours[2]) if ours[1] == "DataLost" else PipelineError(ours[2])
    return PipelineError(_innermost(text, type(error).__name__)[:SENTENCE_MAX])


def _innermost(text: str, name: str) -> str:
    traceback = text.rpartition(TRACEBACK)[2] if TRACEBACK in text else ""
    for line in traceback.splitlines():
        if (found := RAISED.match(line)) is not None and found[1] != "Py4JJavaError":
            return f"{found[1]}: {found[2]}" if found[2] else found[1]
    causes = CAUSED.findall(text)
    if causes:
        return f"{causes[-1][0]}: {causes[-1][1]}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines or [name])[0]
