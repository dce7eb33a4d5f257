"""`ottla console`: serves pages about a cluster until SIGTERM or SIGINT.

It is a separate process and an ordinary client: no part of it runs in a broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
import sqlite3
import sys
from argparse import Namespace
from pathlib import Path

from ottla.client.addresses import parse_address, show_address
from ottla.client.errors import ClientError, reason_of
from ottla.client.transport import check_readable
from ottla.console.connections import Target, check_target
from ottla.console.service import Options, Service
from ottla.tools.cli.bootstrap import address_of, properties_of
from ottla.tools.usage import WrongUsage

LISTEN = "localhost:9309"
SETTING = "ottla.console.listener"
"""The broker's setting for the console's address, if a broker starts the console."""
FILES_WANTED = 4096
M_ARENA_MAX = -8
"""The number of this option of `mallopt` in malloc.h."""


def console(options: Namespace) -> int:
    """Run the command `ottla console`."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    properties = properties_of(options)
    patience = options.timeout if options.timeout is not None else 5.0
    target = Target(address_of(options, properties), properties, patience)
    check_target(target)
    host, port = listen_address(options.listen or LISTEN)
    if bool(options.certificate) != bool(options.key):
        raise WrongUsage("--certificate and --key must be given together")
    check_readable({"--certificate": options.certificate, "--key": options.key})
    chosen = Options(
        host, port, options.allow_changes,
        options.session if options.session is not None else 1800.0,
        Path(options.history) if options.history else history_path(),
        options.certificate, options.key, options.schemas, tuple(options.name),
    )
    raise_file_limit()
    share_one_heap()
    status = asyncio.run(serve(target, chosen, options.with_parent))
    sys.stdout.flush()
    sys.stderr.flush()
    # Exit without waiting for the threads: one may be waiting for a large cluster, or for a broker
    # that does not answer.
    os._exit(status)


def listen_address(text: str) -> tuple[str, int]:
    """Host and port to listen on. Raises WrongUsage."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise WrongUsage(f"--listen {text}: expected HOST:PORT")
    if port == "0":
        return host.strip("[]"), 0
    return parse_address(text)


def history_path() -> Path:
    """The default file of the history."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "ottla" / "console.sqlite"


def raise_file_limit() -> None:
    """Raises the limit of open files to FILES_WANTED, or to the hard limit if that is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def share_one_heap() -> None:
    """Makes all threads allocate from one heap. By default glibc gives each thread a heap, and each
    heap keeps the memory of a large answer: 8 times 64 MiB with 100,000 partitions. One heap is
    enough, since one thread at a time runs Python."""
    # Other C libraries do not have this call
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


async def serve(target: Target, options: Options, with_parent: bool) -> int:
    """Serves until a signal or, with `with_parent`, until the parent process has ended; returns 0.
    Raises OSError, ClientError."""
    from ottla.console.app import application
    from ottla.console.web_server import listening_socket, server

    try:
        sock = listening_socket(options.host, options.port)
    except OSError as failed:
        raise ClientError(
            f"cannot listen on {show_address((options.host, options.port))}: {reason_of(failed)};"
            f" set another address in {SETTING if with_parent else '--listen HOST:PORT'}"
        ) from failed
    try:
        service = Service(target, options)
    except (OSError, sqlite3.Error) as failed:
        why = failed.strerror if isinstance(failed, OSError) else failed
        step = (
            "end the other console that uses it, or name another file"
            if getattr(failed, "sqlite_errorname", "") == "SQLITE_BUSY"
            else "name a file that the console may create, or one that it has created"
        )
        raise ClientError(f"--history {options.history}: {why}; {step}") from failed
    scheme = "https" if service.secure else "http"
    address = f"{scheme}://{show_address((options.host, sock.getsockname()[1]))}"

    def ready() -> None:
        service.start()
        print(f"ottla console of {target.bootstrap} on {address}", flush=True)

    running = server(application(service), options, ready)
    gc.freeze()

    def stop() -> None:
        service.stop.set()
        running.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if with_parent:
        loop.add_reader(sys.stdin.fileno(), stop_at_end, stop)
    try:
        await running.serve([sock])
    finally:
        await service.close()
    return 0


def stop_at_end(stop: object) -> None:
    """Calls `stop` if standard input has ended, as it does when the parent process ends."""
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stop()  # type: ignore[operator]
