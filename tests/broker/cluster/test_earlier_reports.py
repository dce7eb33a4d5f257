"""`ottla-adoption`: what a broker reports when it adopts a backup a second time."""

from __future__ import annotations

import pytest

from ottla.broker.cluster.earlier_reports import ADOPTION, report_above
from ottla.replication.controller.adoption import (
    EPOCHS_SKIPPED,
    LEADER_EPOCH_MAX,
    PRODUCER_IDS_SKIPPED,
)
from ottla.replication.metadata import Held
from tests.log.faulty_disk import FaultyDisk

DIRECTORIES = "/a", "/b"


@pytest.fixture
def disk() -> FaultyDisk:
    made = FaultyDisk()
    for path in DIRECTORIES:
        made.makedirs(path)
    return made


def test_the_next_report_is_above_what_an_earlier_one_has_led_to(disk: FaultyDisk) -> None:
    assert report_above(disk, DIRECTORIES, Held(5, 3)) == Held(5, 3)
    disk.cut_power()
    again = Held(5 + PRODUCER_IDS_SKIPPED, 3 + EPOCHS_SKIPPED)
    assert report_above(disk, DIRECTORIES, Held(7, 4)) == again
    assert report_above(disk, DIRECTORIES, Held(1 << 40, 1 << 20)) == Held(1 << 40, 1 << 20)


@pytest.mark.parametrize("damaged", [b"", b"\0", b"[]", b'{"next_id": 1}', b'{"epoch": null}'])
def test_one_of_several_directories_is_enough(disk: FaultyDisk, damaged: bytes) -> None:
    report_above(disk, DIRECTORIES, Held(5, 3))
    disk.write_atomically(f"/a/{ADOPTION}", damaged)
    assert report_above(disk, DIRECTORIES, Held()).epoch == 3 + EPOCHS_SKIPPED


def test_a_report_can_be_kept_whatever_its_height(disk: FaultyDisk) -> None:
    for _ in range(3):
        assert report_above(disk, DIRECTORIES, Held(2**63 - 1, LEADER_EPOCH_MAX)) == Held(
            2**63 - 1, LEADER_EPOCH_MAX
        )
