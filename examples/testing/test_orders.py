"""Example tests of a program that uses Kafka, with Ottla's pytest plug-in.

    pip install ../.. pytest confluent-kafka
    pytest
"""

from __future__ import annotations

import pytest
from orders import place, totals

from ottla.testing import Broker


@pytest.mark.parametrize("customers", range(1, 47))
def test_every_customer_has_a_total(
    ottla_broker: Broker, ottla_topic: str, customers: int
) -> None:
    orders = [(f"customer {n % customers}", n) for n in range(100)]
    place(ottla_broker.bootstrap_servers, ottla_topic, orders)
    found = totals(ottla_broker.bootstrap_servers, ottla_topic, 100)
    assert len(found) == customers
    assert sum(found.values()) == sum(range(100))


def test_orders_are_sent_again_while_the_leader_moves(
    ottla_broker: Broker, ottla_topic: str
) -> None:
    ottla_broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", count=2)
    place(ottla_broker.bootstrap_servers, ottla_topic, [("ann", 5)])
    assert totals(ottla_broker.bootstrap_servers, ottla_topic, 1) == {"ann": 5}


def test_an_order_counts_once_though_its_acknowledgement_was_lost(
    ottla_broker: Broker, ottla_topic: str
) -> None:
    ottla_broker.drop("Produce", after=True)
    place(ottla_broker.bootstrap_servers, ottla_topic, [("ann", 5), ("bob", 1)], once=True)
    assert totals(ottla_broker.bootstrap_servers, ottla_topic, 2) == {"ann": 5, "bob": 1}


def test_orders_survive_a_crash_of_the_broker(ottla_broker: Broker, ottla_topic: str) -> None:
    place(ottla_broker.bootstrap_servers, ottla_topic, [("ann", 5)])
    ottla_broker.kill()
    ottla_broker.start()
    assert totals(ottla_broker.bootstrap_servers, ottla_topic, 1) == {"ann": 5}


@pytest.mark.ottla_topic(partitions=3, configs={"retention.ms": 3_600_000, "segment.ms": 60_000})
def test_orders_older_than_an_hour_are_gone(ottla_broker: Broker, ottla_topic: str) -> None:
    place(ottla_broker.bootstrap_servers, ottla_topic, [("ann", 5)])
    ottla_broker.advance(hours=2)
    place(ottla_broker.bootstrap_servers, ottla_topic, [("bob", 1)])
    assert totals(ottla_broker.bootstrap_servers, ottla_topic, 1) == {"bob": 1}
