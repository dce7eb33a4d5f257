"""The process around a `Server`: its signals, the log lines about its start, its exit status."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from ottla import __version__
from ottla.broker.console_process import console_protocol, start_console
from ottla.broker.listening_sockets import listen
from ottla.broker.log_output import say, shown
from ottla.broker.network.poller import BrokerLoop
from ottla.broker.server import Server
from ottla.broker.service_manager import notify, reloading
from ottla.broker.settings.config import BrokerConfig
from ottla.broker.settings.declaration import SettingsError
from ottla.broker.settings.hazards import framed, hazards, unresolvable
from ottla.broker.settings.sources import Sources
from ottla.broker.threads.garbage import Garbage
from ottla.broker.threads.heap import keep_freed_memory
from ottla.log.storage.log_directory import StorageRefused
from ottla.wire.errors import StorageFailed
from ottla.wire.wording import counted

log = logging.getLogger("ottla.server")


async def _serve(
    config: BrokerConfig, protocol: str | None, say_more: Callable[[str], str] | None
) -> None:
    """Serve until a signal. `protocol` is the console's, None without a console."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    reloads: set[asyncio.Task[None]] = set()
    server = Server(config)
    serving = asked_early = False

    def reload() -> None:
        nonlocal asked_early
        if not serving:
            asked_early = not stopped.is_set()
            return
        notify(*reloading())
        task = loop.create_task(server.reload())
        reloads.add(task)
        task.add_done_callback(reloaded)

    def reloaded(task: asyncio.Task[None]) -> None:
        reloads.discard(task)
        notify("READY=1")

    def stop() -> None:
        stopped.set()
        if not serving:
            server.give_up_start()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, reload)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})     # blocked by main.py
    began = loop.time()
    _tell_what_starts(config)
    _try_addresses(config)
    try:
        await server.start()
    except StorageRefused as error:
        if not stopped.is_set():
            raise
        log.info("stopped: %s", error)
        return
    addresses = _advertised(server)
    log.info(
        "serving cluster %s with %s; the start took %.2f s", server.storage.cluster_id,
        counted(len(server.metadata_log.image.topics), "topic"), loop.time() - began,
    )
    Garbage().begin()           # excludes existing objects: they live as long as the broker
    _say_ready(config, addresses)
    if say_more is not None:
        say(say_more(addresses[0].partition("://")[2]))
    notify("READY=1", f"STATUS=serving {', '.join(addresses)}")
    _look_names_up(config)
    console = start_console(config, protocol, _by_protocol(server), server.storage.directories)
    serving = True
    if asked_early:
        reload()
    waiting = asyncio.create_task(stopped.wait())
    await asyncio.wait((waiting, server.failure), return_when=asyncio.FIRST_COMPLETED)
    serving = False
    log.info("stopping")
    notify("STOPPING=1")
    if console is not None:
        await asyncio.to_thread(console.stop)
    await server.stop()
    if not stopped.is_set():
        raise StorageFailed(server.failure.result())
    log.info("stopped: all data are on disk")


def _say_ready(config: BrokerConfig, addresses: list[str]) -> None:
    directories = ",".join(str(path) for path in config.log_directories())
    for handler in logging.getLogger().handlers:
        handler.flush()                 # so that the ready line is the last one
    say(f"ottla ready: node {config.node_id} on {','.join(addresses)}, data in {directories}")


def _advertised(server: Server) -> list[str]:
    """Log each listener's addresses; returns those that are advertised to clients."""
    addresses = []
    for listener in server.listeners:
        advertised = f"{listener.name}://{_address(*server.listener_set.advertised(listener))}"
        bound = ", ".join(_address(*sock.getsockname()[:2]) for sock in listener.socks)
        log.info("listening on %s, advertised as %s", bound, advertised)
        addresses.append(advertised)
    return addresses


def _by_protocol(server: Server) -> dict[str, str]:
    """The address of the first listener of each security protocol."""
    given: dict[str, str] = {}
    for listener in server.listeners:
        protocol = listener.security.protocol
        given.setdefault(protocol, _address(*server.listener_set.advertised(listener)))
    return given


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _tell_what_starts(config: BrokerConfig) -> None:
    sources = config.sources
    read = [str(sources.path)] if sources.path else ["no file"]
    read += ["the environment"] if sources.environment is not None else []
    count = len(sources.overrides)
    read += [counted(count, "override")] if count else []
    directories = ", ".join(str(path.absolute()) for path in config.log_directories())
    log.info(
        "Ottla %s starts as node %d; settings from %s; data in %s",
        __version__, config.node_id, ", ".join(read), directories,
    )


def _try_addresses(config: BrokerConfig) -> None:
    """At the first start, raise OSError if an address is taken, before a log directory is created.
    Later starts lock the log directories first: if another broker uses them, the error about the
    lock names its process."""
    if any(path.exists() for path in config.log_directories()):
        return
    for each in config.endpoints():
        for sock in listen(each.name, each.host, each.port, None, -1):
            sock.close()
    if config.ottla_http_listener:
        from ottla.broker.http.server import try_address

        try_address(config.ottla_http_listener)


def _look_names_up(config: BrokerConfig) -> None:
    """Warn of advertised names that do not resolve. This runs in a thread: DNS may be slow."""

    def look() -> None:
        for warning in unresolvable(config):
            log.warning("%s", warning)

    threading.Thread(target=look, name="ottla-names", daemon=True).start()


def run(sources: Sources, say_more: Callable[[str], str] | None = None) -> int:
    """`ottla server start`: serve until a signal ends it; returns the exit status.

    Once the broker serves, this prints the result of `say_more` for the broker's address.
    """
    try:
        config = BrokerConfig.of(sources)
        protocol = console_protocol(config)
    except (SettingsError, OSError) as error:
        for warning in error.warnings if isinstance(error, SettingsError) else ():
            log.warning("%s", warning)
        for each in (error, *(error.others if isinstance(error, SettingsError) else ())):
            _complain(each, sources.details(each))
        return 2
    for warning in config.warnings:
        log.warning("%s", warning)
    if risks := list(hazards(config)):
        plain = "ATTENTION: " + " ATTENTION: ".join(risks)
        log.warning("%s", framed(risks), extra={"block": True, "plain": plain})
    _raise_descriptor_limit()
    keep_freed_memory()
    try:
        with asyncio.Runner(loop_factory=BrokerLoop) as runner:
            runner.run(_serve(config, protocol, say_more))
    except SettingsError as error:
        _complain(error, sources.details(error))
        return 2
    except (OSError, StorageRefused, StorageFailed) as error:
        _complain(error, _hint(config))
        return 1
    return 0


def _complain(error: Exception, hint: str = "") -> None:
    """Print why the broker ends, as the last line on standard error."""
    from ottla.client.errors import reason_of  # imported only after a failure

    for handler in logging.getLogger().handlers:
        handler.flush()                 # the log is written by a thread
    with contextlib.suppress(OSError):
        print(shown(f"ottla: {reason_of(error)}{hint}", logging.ERROR), file=sys.stderr, flush=True)


def _hint(config: BrokerConfig) -> str:
    """Advice if the broker could not start because another process uses a log directory, or because
    the directory belongs to Apache Kafka. Otherwise ""."""
    from ottla.broker.first_steps import program  # seldom needed
    from ottla.broker.lock_holder import holder_of

    for path in config.log_directories():
        if (pid := holder_of(path)) not in (0, os.getpid()):
            return (
                f" `{program()} server stop --data-dir {path}` stops process {pid}, which uses this"
                " directory."
            )
        if _is_kafkas(path):
            how = f"`{program()} log import --help` says how to adopt it"
            return f"\nottla: {path} is a log directory of Apache Kafka: {how}"
    return ""


def _is_kafkas(path: Path) -> bool:
    try:
        names = {each.name for each in path.iterdir()}
    except OSError:
        return False
    return "__cluster_metadata-0" in names and "__ottla_metadata-0" not in names


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
