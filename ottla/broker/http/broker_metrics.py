"""Metrics of the broker as a whole: connections, the controller's view, the process."""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla import __version__
from ottla.broker.http.exposition import counter, gauge, labels, metric
from ottla.broker.http.request_metrics import request_metrics, waiting_requests
from ottla.broker.http.security_metrics import security_metrics
from ottla.wire.apis import ApiKey

if TYPE_CHECKING:
    from ottla.broker.http.monitor import Monitor
    from ottla.broker.http.partition_metrics import ScrapedPartitions
    from ottla.replication.metadata import MetadataImage

CLIENTS_MAX = 1000
"""Limit on the series by client, and on the series by quota; further ones are not listed."""
TOPICS_PER_SLICE = CONNECTIONS_PER_SLICE = 50


def broker_metrics(monitor: Monitor, scraped: ScrapedPartitions) -> Iterator[str]:
    """Metrics that belong to no topic, partition or group."""
    yield from _replicas(monitor, scraped)
    yield from _directories(monitor)
    yield from _cluster(monitor)
    yield from request_metrics(monitor)
    yield from _connections(monitor)
    yield from security_metrics(monitor)
    yield from _work(monitor)
    yield from _process(monitor)


def _replicas(monitor: Monitor, scraped: ScrapedPartitions) -> Iterator[str]:
    """The replicas on this broker."""
    replicas = monitor.broker.replicas
    offline = [replicas.partition(*key) for key in replicas.offline]
    led_offline = sum(each is not None and each.led_here for each in offline)
    for name, help_text, value in (
        ("partitioncount", "Partitions with a replica here.", len(scraped.rows)),
        ("leadercount", "Partitions that this broker leads.", scraped.led() - led_offline),
        ("underreplicatedpartitions", "Led partitions with replicas out of sync.",
         scraped.sum("under_replicated")),
        ("underminisrpartitioncount", "Led partitions below min.insync.replicas.",
         scraped.sum("under_min_isr")),
        ("atminisrpartitioncount", "Led partitions at min.insync.replicas.",
         scraped.sum("at_min_isr")),
        ("offlinereplicacount", "Replicas in failed log directories.", len(offline)),
    ):
        yield from gauge(f"kafka_server_replicamanager_{name}", help_text, value)


def _directories(monitor: Monitor) -> Iterator[str]:
    """The log directories: their space at the last measurement, and whether they refuse writes."""
    directories = monitor.broker.replicas.storage.directories
    named = [(labels(directory=each.path), each) for each in directories]
    rooms = [(name, each.space.room) for name, each in named if each.space.room.total_bytes >= 0]
    for name, help_text, rows in (
        ("free_bytes", "Bytes that the broker may still write.",
         [(name, room.free_bytes) for name, room in rooms]),
        ("size_bytes", "The size of the file system.",
         [(name, room.total_bytes) for name, room in rooms]),
        ("full", "1 while writes are refused for lack of space.",
         [(name, int(each.space.full)) for name, each in named]),
    ):
        yield from metric(f"ottla_log_directory_{name}", "gauge", help_text, rows)
    offline = [each.offline is not None for each in directories]
    yield from gauge(
        "kafka_log_logmanager_offlinelogdirectorycount", "Failed log directories.", sum(offline))
    yield from metric(
        "kafka_log_logmanager_logdirectoryoffline", "gauge", "1 for a failed log directory.",
        [(labels(logdirectory=each.path), int(failed))
         for each, failed in zip(directories, offline, strict=True)])


def _cluster(monitor: Monitor) -> Iterator[str]:
    """Metrics from the metadata image. As in Kafka, most of them are 0 unless this broker is the
    controller.
    """
    broker, image = monitor.broker, monitor.broker.image
    controls = broker.role.decides()
    partitions = offline = moving = imbalanced = 0
    if controls:
        yield from _count_partitions(monitor, image)
        partitions, offline, imbalanced, moving = monitor.counted[1]
    offline = broker.role.without_leader(offline, broker.replicas)
    live = len(image.brokers) or 1      # at least this broker
    prefix = "kafka_controller_kafkacontroller_"
    for name, help_text, value in (
        (f"{prefix}activecontrollercount", "1 on the controller.", controls),
        (f"{prefix}offlinepartitionscount", "Partitions without a leader.", offline),
        (f"{prefix}preferredreplicaimbalancecount",
         "Partitions not led by the preferred leader.", imbalanced),
        (f"{prefix}globaltopiccount", "Topics.", len(image.topics) if controls else 0),
        (f"{prefix}globalpartitioncount", "Partitions.", partitions),
        (f"{prefix}fencedbrokercount", "Registered brokers that are down.",
         sum(bool(each.endpoints) for each in image.former.values()) if controls else 0),
        (f"{prefix}activebrokercount", "Brokers that may lead.", live if controls else 0),
        ("kafka_server_replicamanager_reassigningpartitions",
         "Partitions that are being reassigned.", moving),
        ("kafka_server_kafkaserver_brokerstate", "3 while the broker serves clients.", 3),
        ("kafka_brokers", "Brokers of the cluster.", live),
    ):
        yield from gauge(name, help_text, int(value))
    yield from gauge(
        "kafka_broker_info", "A broker's address.", 1, address=monitor.address, id_=broker.node_id)
    for name in ("ottla_build_info", "kafka_server_app_info"):
        yield from gauge(name, "The version.", 1, version=__version__)


def _count_partitions(monitor: Monitor, image: MetadataImage) -> Iterator[str]:
    """Count partitions in slices, if topics have changed since the last scrape."""
    if monitor.counted[0] is image.topics:
        return
    partitions = offline = imbalanced = moving = 0
    for number, topic in enumerate(image.topics.values()):
        partitions += len(topic.partitions)
        for state in topic.partitions:
            offline += state.leader < 0
            imbalanced += state.leader != state.replicas[0]
            moving += state.extra is not None and bool(state.extra.adding or state.extra.removing)
        if number % TOPICS_PER_SLICE == 0 or len(topic.partitions) > TOPICS_PER_SLICE:
            yield ""
    monitor.counted = image.topics, (partitions, offline, imbalanced, moving)


def _connections(monitor: Monitor) -> Iterator[str]:
    counts = monitor.broker.counts
    by_listener = [
        (labels(listener=each.name, networkprocessor=0), len(each.connections))
        for each in monitor.listeners
    ]
    for name in ("socketservermetrics", "socket_server_metrics"):
        yield from metric(
            f"kafka_server_{name}_connection_count", "gauge", "Open connections.", by_listener)
    for name in ("socketservermetrics", "socket_server_metrics"):
        for what, rate in (("creation", monitor.opened_rate), ("close", monitor.closed_rate)):
            yield from gauge(
                f"kafka_server_{name}_connection_{what}_rate",
                "Connections a second, of all listeners.", rate, networkprocessor=0)
    yield from counter("ottla_connections_opened_total", "Connections opened.", counts.opened)
    yield from counter(
        "ottla_connections_closed_total", "Connections closed.", counts.closed_connections)
    yield from counter("ottla_received_bytes_total", "Bytes of requests.", counts.received)
    yield from counter("ottla_sent_bytes_total", "Bytes of responses.", counts.sent)
    yield from _throttles(monitor)
    clients: Counter[tuple[str, str, str, str]] = Counter()
    waiting: Counter[int] = Counter()
    for number, connection in enumerate(monitor.connections()):
        held, produces = connection.waiting_for()
        if held >= 0:
            waiting[held] += 1
        waiting[ApiKey.PRODUCE] += produces
        c = connection.client
        clients[c.client_id or "", c.software_name or "", c.software_version or "", c.host] += 1
        if number % CONNECTIONS_PER_SLICE == 0:
            yield ""
    rows = [
        (labels(client_id=who[0], software=who[1], version=who[2], address=who[3]), count)
        for who, count in clients.most_common(CLIENTS_MAX)
    ]
    yield from metric("ottla_connections", "gauge", "Open connections by client.", rows)
    yield from waiting_requests(waiting)


def _throttles(monitor: Monitor) -> Iterator[str]:
    rates = monitor.broker.connection_rates
    yield from counter(
        "ottla_accept_pauses_total",
        "Pauses in accepting connections, due to max.connection.creation.rate.",
        rates.pauses)
    yield from counter(
        "ottla_accept_pause_seconds_total", "Seconds of pauses in accepting connections.",
        rates.pause_seconds)
    yield from counter(
        "ottla_connections_throttled_total",
        "Connections closed by the quota connection_creation_rate.",
        rates.closed)
    quotas = monitor.broker.quotas.throttled()[:CLIENTS_MAX]
    shared_by = [labels(quota=each[0], user=each[1], client_id=each[2]) for each in quotas]
    for name, kind, help_text, at in (
        ("ottla_quota_limit", "gauge", "Quota limits in use.", 3),
        ("ottla_quota_throttles_total", "counter", "Requests that quotas throttled.", 4),
        ("ottla_quota_throttle_seconds_total", "counter", "Throttle times, in seconds.", 5),
    ):
        rows = [(name_of, each[at]) for name_of, each in zip(shared_by, quotas, strict=True)]
        yield from metric(name, kind, help_text, rows)


def _work(monitor: Monitor) -> Iterator[str]:
    broker = monitor.broker
    lag = "ottla_event_loop_lag_seconds"
    yield from gauge(
        f"{lag}_max", "The longest delay of a timer on the event loop since the last scrape.",
        monitor.lag.take_max())
    yield (
        f"# HELP {lag} Delays of timers on the event loop.\n# TYPE {lag} summary\n"
        f"{lag}_sum {monitor.lag.sum}\n{lag}_count {monitor.lag.count}\n"
    )
    for name in ("kafka_network_socketserver_networkprocessoravgidle_percent",
                 "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"):
        yield from gauge(name, "The share of time in which the loop was idle.", monitor.idle)
    sessions = monitor.listeners[0].fetch_handler.sessions
    name = "kafka_server_fetchsessioncache_"
    yield from gauge(f"{name}numincrementalfetchsessions", "Fetch sessions.", len(sessions))
    yield from counter(
        f"{name}incrementalfetchsessionevictions_total", "Fetch sessions that were evicted.",
        sessions.evictions)
    flusher = broker.flusher
    yield from counter(
        "ottla_flushes_total", "Flushes, each of one or more files.", flusher.flushes)
    yield from counter("ottla_flush_seconds_total", "Seconds that flushes took.", flusher.seconds)
    yield from counter(
        "ottla_cold_reads_total", "Reads that were not served from the page cache.",
        broker.cold_reads.begun)


def _process(monitor: Monitor) -> Iterator[str]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/statm", "rb") as statm:
        pages = [int(number) for number in statm.read().split()]
    page_size = resource.getpagesize()
    for name, help_text, value in (
        ("process_resident_memory_bytes", "Resident memory.", pages[1] * page_size),
        ("process_virtual_memory_bytes", "Virtual memory.", pages[0] * page_size),
        # Since Linux 6.2 the size of /proc/self/fd is the number of open descriptors. Before, the
        # size is 0 and the directory is listed, which takes long with 100,000 descriptors.
        ("process_open_fds", "Open file descriptors.",
         os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))),
        ("process_max_fds", "Limit of file descriptors.",
         resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        ("process_start_time_seconds", "Start, in seconds since 1970.", monitor.started_seconds),
        ("ottla_uptime_seconds", "Seconds since the start.", time.time() - monitor.started_seconds),
    ):
        yield from gauge(name, help_text, value)
    yield from counter(
        "process_cpu_seconds_total", "CPU time in seconds.", used.ru_utime + used.ru_stime)
