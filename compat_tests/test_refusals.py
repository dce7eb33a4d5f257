"""Each bad request in the table of `tests/broker/refusals.py` gets the error code in the table,
which was recorded from Apache Kafka.

    pytest compat_tests/test_refusals.py --broker kafka
"""

from __future__ import annotations

import os

from compat_tests.brokers import Broker
from tests.broker.refusals import ROWS, Stage, refused
from tests.broker.running import WireClient


def test_every_bad_request_gets_its_code_and_changes_nothing(broker: Broker) -> None:
    host, _, port = broker.bootstrap.rpartition(":")
    wrong = []
    with WireClient((host, int(port))) as client:
        stage = Stage(client, f"refusals-{os.getpid()}")
        for name, request, version, expected in ROWS:
            found = refused(stage, request, version)
            if found != expected:
                wrong.append(f"{name}: {found}, the table says {expected}")
    assert not wrong, "\n".join(wrong)
