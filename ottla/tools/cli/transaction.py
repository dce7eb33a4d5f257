"""`ottla transaction …`."""

from __future__ import annotations

import time
from argparse import Namespace

from ottla.client.errors import check
from ottla.tools.admin import transactions
from ottla.tools.cli.bootstrap import connect
from ottla.tools.cli.output import confirm, done
from ottla.tools.cli.output import show as print_rows


def show(options: Namespace) -> None:
    with connect(options) as cluster:
        if options.older is None:
            found = transactions.list_transactions(cluster)
        else:
            # By age alone, brokers also list ids whose last transaction has ended.
            found = transactions.list_transactions(
                cluster, older_ms=options.older, states=transactions.UNFINISHED)
    print_rows(
        options,
        ("id", "coordinator", "producer", "state"),
        (
            {
                "id": one.id,
                "coordinator": one.coordinator,
                "producer": one.producer_id,
                "state": one.state,
            }
            for one in found
        ),
    )


def describe(options: Namespace) -> None:
    with connect(options) as cluster:
        coordinator, state = transactions.describe(cluster, options.id)
    started = state.transaction_start_time_ms
    print_rows(
        options,
        ("id", "state", "coordinator", "producer", "epoch", "timeout_ms", "age_ms", "partitions"),
        [
            {
                "id": options.id,
                "state": state.transaction_state,
                "coordinator": coordinator,
                "producer": state.producer_id,
                "epoch": state.producer_epoch,
                "timeout_ms": state.transaction_timeout_ms,
                "age_ms": int(time.time() * 1000) - started if started >= 0 else None,
                "partitions": [
                    f"{topic.topic}:{index}" for topic in state.topics for index in topic.partitions
                ],
            }
        ],
    )


def hanging(options: Namespace) -> None:
    with connect(options) as cluster:
        found = cluster.metadata(options.topic or None).topics
        for topic in found if options.topic else ():
            check(topic.error_code, what=f"topic {topic.name!r}")
        places = [
            (topic.name, part.partition_index) for topic in found for part in topic.partitions
        ]
        minutes = 15 if options.minutes is None else options.minutes
        rows = transactions.hanging(cluster, places, minutes)
    print_rows(
        options,
        ("topic", "partition", "producer", "epoch", "first_offset", "minutes"),
        (
            {
                "topic": one.place[0],
                "partition": one.place[1],
                "producer": one.producer.producer_id,
                "epoch": one.producer.producer_epoch,
                "first_offset": one.producer.current_txn_start_offset,
                "minutes": one.minutes,
            }
            for one in rows
        ),
    )


def terminate(options: Namespace) -> None:
    with connect(options) as cluster:
        _, found = transactions.describe(cluster, options.id)   # an unknown id is refused
        confirm(options, f"aborting the transaction of {options.id}", options.id)
        if not options.dry_run:
            transactions.terminate(cluster, options.id)
    if found.transaction_state == "Ongoing":
        done(options, f"aborted the transaction of {options.id}")
    else:
        done(options, f"fenced the producer of {options.id}; it had no transaction to abort (state:"
                      f" {found.transaction_state})")
