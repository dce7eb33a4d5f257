"""`ottla-adoption` in each log directory: the lowest numbers that this broker may report when it
adopts another backup of ZooKeeper.

An adoption assigns leader epochs and producer ids. Some of them never get into a log, for example
because nobody writes to the partition. The same backup may later be restored again. If brokers then
reported only what is in their logs, the cluster would assign the same epochs and ids again. So
before a broker reports, it writes its report into this file, raised by the margin that the
controller adds.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from ottla.log.files.disk import Disk
from ottla.replication.controller.adoption import (
    EPOCHS_SKIPPED,
    LEADER_EPOCH_MAX,
    PRODUCER_IDS_SKIPPED,
)
from ottla.replication.controller.producer_ids import PRODUCER_ID_MAX
from ottla.replication.metadata import Held
from ottla.replication.records import GARBAGE
from ottla.wire.marks import reached

log = logging.getLogger("ottla.member")

ADOPTION = "ottla-adoption"


def report_above(disk: Disk, directories: Sequence[str], held: Held) -> Held:
    """The numbers to report. Each is the number in `held`, which comes from the logs, or the number
    in `ottla-adoption` if that is higher. Writes the lowest numbers for the next report into that
    file. Raises OSError."""
    next_id, epoch = held
    for path in directories:
        if not disk.exists(f"{path}/{ADOPTION}"):
            continue
        try:
            body = json.loads(disk.read_bytes(f"{path}/{ADOPTION}"))
            next_id, epoch = max(next_id, int(body["next_id"])), max(epoch, int(body["epoch"]))
        except GARBAGE as error:
            log.error("%s/%s is damaged and is ignored (%r). It should contain the highest leader"
                      " epoch and producer id that were reported earlier", path, ADOPTION, error)
    if epoch > held.epoch:
        reached("a backup is restored again, and no log has an epoch assigned since")
    kept = json.dumps({
        "version": 1,
        "next_id": min(next_id + PRODUCER_IDS_SKIPPED, PRODUCER_ID_MAX),
        "epoch": min(epoch + EPOCHS_SKIPPED, LEADER_EPOCH_MAX),
    })
    for path in directories:
        disk.write_atomically(f"{path}/{ADOPTION}", kept.encode())
    return Held(next_id, epoch)
