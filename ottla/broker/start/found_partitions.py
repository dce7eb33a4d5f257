"""What a start finds in its log directories, compared with the metadata: logs to recover, logs that
are missing or damaged, and logs that belong to no topic."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.threads.startup_threads import recover
from ottla.log.partition.damage import forget_cuts
from ottla.log.storage.log_directory import StorageRefused
from ottla.log.storage.strays import expire_strays, forget_other_topics, put_strays_aside
from ottla.replication.controller.elections import NONE
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.broker.cluster.last_run import FoundLogs
    from ottla.broker.cluster.metadata_log import Metadata
    from ottla.broker.settings.config import BrokerConfig
    from ottla.broker.threads.workers import Workers
    from ottla.log.files.checkpoints import Partition
    from ottla.log.storage.log_directory import LogDirectory
    from ottla.log.storage.storage import Storage
    from ottla.replication.metadata import Held, MetadataImage
    from ottla.replication.replicas import Replicas

log = logging.getLogger("ottla.server")


class FoundPartitions:
    """The partitions that one start finds; used from the opening of the directories to the
    registration."""

    def __init__(
        self, config: BrokerConfig, storage: Storage, replicas: Replicas, metadata: Metadata
    ) -> None:
        self.config, self.storage = config, storage
        self.replicas, self.metadata = replicas, metadata
        self.missing: list[str] = []
        """In a cluster: the partitions whose logs were in no log directory."""
        self.vanished: dict[Partition, list[LogDirectory]] = {}
        """The missing partitions that had records on the medium, each with the directories that it
        was in."""

    def note_missing(self) -> None:
        """Find the partitions with a replica on this broker that are in no log directory. Has to be
        called before they are created empty."""
        partitions = set().union(*(each.partitions for each in self.storage.directories))
        for key, topic_id, _ in self.replicas.wanted(self.metadata.image):
            if key not in partitions:
                self.missing.append(f"{key[0]}-{key[1]}")
                if homes := self.storage.placement.vanished(key, topic_id):
                    self.vanished[key] = homes
                    log.error(
                        "the directory of %s, which had records, is missing from %s",
                        self.missing[-1],
                        homes[0].path,
                    )

    def recover(self) -> None:
        """Check and load the logs, in several threads."""
        threads, clock = self.config.num_recovery_threads_per_data_dir, self.storage.clock
        began = clock.monotonic()
        recovered = recover(self.storage, self.replicas.wanted(self.metadata.image), threads)
        if recovered:
            log.info(
                "recovery: the last stop was not clean; %s checked, in %.2f s",
                counted(recovered, "log was", "logs were"), clock.monotonic() - began,
            )
        elif all(each.clean for each in self.storage.directories if each.offline is None):
            log.info("recovery: the last stop was clean, nothing had to be checked")
        else:
            log.info("recovery: no log had to be checked")

    def put_strays_aside(self) -> None:
        """Schedule the removal of earlier strays, and set aside partitions unknown to the metadata,
        for example because a crash interrupted their deletion."""
        retention_ms = self.config.ottla_stray_retention_ms
        expire_strays(self.storage, retention_ms)
        image = self.metadata.image
        topics = {topic.name: topic.topic_id for topic in image.topics.values()}
        forget_other_topics(self.storage, topics)
        try:
            unclaimed = self.storage.unclaimed()
            wanted = {key for key, _, _ in self.replicas.wanted(image)} if unclaimed else set()
            strays = put_strays_aside(self.storage, wanted)
        except OSError as error:
            log.error(
                "the directory of a partition without a topic could not be renamed: %s", error)
            return
        if strays:
            kept = "for ever" if retention_ms < 0 else f"for {retention_ms} ms"
            log.warning(
                "%s to no topic and will be kept %s (ottla.stray.retention.ms): %s%s",
                counted(len(strays), "directory belongs", "directories belong"), kept,
                ", ".join(strays[:10]), ", ..." * (len(strays) > 10),
            )

    # The report of a cluster's member when it registers

    async def report(self, adopts: bool, workers: Workers) -> FoundLogs:
        """What this broker reports when it registers. With `adopts`, this includes the lowest
        producer id and leader epoch that the cluster may assign from now on.

        Raises StorageRefused.
        """
        from ottla.broker.cluster.last_run import FoundLogs

        held = await self._held(workers) if adopts else None
        image = self.metadata.image             # the replicas have applied it
        homes, directories = self.storage.homes, self.storage.directories
        node_id, begun = self.config.node_id, {*self.missing}
        wanted = {f"{key[0]}-{key[1]}": key for key, _, _ in self.replicas.wanted(image)}
        return FoundLogs(
            directories={each.directory_id: each.path for each in directories
                         if each.directory_id and each.offline is None},
            away=[each.directory_id for each in directories if each.directory_id and each.offline],
            missing=self.missing,
            homes={name: homes[key].path for name, key in wanted.items()
                   if key in homes and name not in begun},
            damaged=self._damaged(image),
            offline={name for name, (topic, index) in wanted.items()
                     if node_id in (image.topics[topic].partitions[index].extra or NONE).offline},
            held=held,
        )

    async def _held(self, workers: Workers) -> Held:
        """A producer id and a leader epoch that are higher than all in the logs and in earlier
        reports. The cluster needs them when it adopts a backup of ZooKeeper. Raises
        StorageRefused."""
        from ottla.broker.cluster.earlier_reports import ADOPTION, report_above
        from ottla.broker.cluster.held_by_logs import held_by_logs

        disk = self.storage.disk
        for directory in self.storage.directories:
            if directory.offline is not None:
                raise StorageRefused(
                    f"{directory.offline}. ZooKeeper was restored from a backup, and that"
                    " directory's logs may have leader epochs and producer ids that were issued"
                    " after the backup and must not be issued again. Repair the directory, or if it"
                    " is lost for good, remove it from log.dirs"
                )
        try:
            # The headers of all batches are read, which takes minutes with terabytes of data.
            held = await workers.run(partial(held_by_logs, disk, [*self.replicas]))
            return report_above(disk, [each.path for each in self.storage.directories], held)
        except OSError as error:
            raise StorageRefused(
                "the highest producer id and leader epoch in the logs could not be read, or could"
                f" not be written to {ADOPTION}: {error}. Without these numbers, the cluster might"
                " issue producer ids and leader epochs that are in the logs already"
            ) from error

    def _damaged(self, image: MetadataImage) -> dict[str, bool]:
        """The partitions with several replicas whose log here was cut off at damage or is gone. The
        value is whether the missing records were durable once. If a partition has one replica,
        its log up to the damage stays in use."""
        former = {}
        for each in self.replicas:
            lost = each.log.damage is not None or (each.topic, each.index) in self.vanished
            copies = image.topics[each.topic].partitions[each.index].replicas
            if len(copies) > 1 and (lost or each.log.put_aside is not None):
                former[repr(each)] = lost
        return former

    def forget_cuts(self) -> None:
        """Forget which logs were cut off or missing at this start and at earlier ones, since this
        broker's registration has reported them. If a missing log was the only copy, the next start
        reports it again."""
        for key, homes in self.vanished.items():
            for home in homes if key not in self.replicas.offline else ():
                home.recovery_points.pop(key, None)
        for partition in self.replicas:
            try:
                forget_cuts(partition.log)
            except OSError as error:
                log.error(
                    "%r: a file that recorded a truncation of the log could not be removed: %s",
                    partition, error,
                )
