"""Debezium on Connect delivers each change of a PostgreSQL table exactly once although worker and
broker are killed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.brokers import Broker
from compat_tests.connect_worker import Worker, committed_values
from compat_tests.jvms import maven_jars
from compat_tests.requirements import missing
from ottla.tools.zookeeper.local import free_port

ROWS_A_ROUND = 2_000
TOPIC = "shop.public.orders"
NOBODY = 65534


class Postgres:
    """A new PostgreSQL server on a free port, with logical decoding. PostgreSQL refuses to run as
    root, so root runs it as NOBODY."""

    def __init__(self, directory: Path) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        if not found:
            missing("PostgreSQL is not installed: apt-get install postgresql")
        self._programs, self.port = found[-1].parent, free_port()
        self._directory = directory
        self._user = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}
        directory.mkdir()
        if self._user:
            os.chown(directory, NOBODY, NOBODY)
        self._run("initdb", "-D", directory, "-U", "shop", "-A", "trust", "--no-sync")
        settings = (f"port={self.port}\nwal_level=logical\nlisten_addresses='127.0.0.1'\n"
                    f"unix_socket_directories=''\nfsync=off\n")  # fmt: skip
        with (directory / "postgresql.conf").open("a") as file:
            file.write(settings)
        log = directory / "server.log"
        self._run("pg_ctl", "-w", "-D", directory, "-l", log, "start", stdout=subprocess.DEVNULL)

    def _run(self, program: str, *words: object, **more: int) -> None:
        given: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **more}
        command = [self._programs / program, *map(str, words)]
        done = subprocess.run(command, cwd="/", text=True, **given, **self._user)
        assert done.returncode == 0, done.stdout

    def sql(self, text: str) -> None:
        """Runs statements."""
        self._run("psql", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", self.port,
                  "-U", "shop", "-d", "postgres", "-c", text)  # fmt: skip

    def stop(self) -> None:
        """Stops the server."""
        self._run("pg_ctl", "-D", self._directory, "-m", "immediate", "stop")


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    # Not below pytest's directory, which only its owner may enter.
    place = Path(f"/tmp/ottla-postgres-{os.getpid()}")
    server = Postgres(place)
    yield server
    server.stop()
    shutil.rmtree(place)


@pytest.fixture
def own_broker(new_broker: Callable[..., Broker]) -> Iterator[Broker]:
    """A broker that may be killed."""
    broker = new_broker("group.min.session.timeout.ms=1000", "group.initial.rebalance.delay.ms=0")
    broker.start()
    yield broker
    broker.stop()


def test_every_change_of_a_table_is_read_once_when_worker_and_broker_are_killed(
    own_broker: Broker, postgres: Postgres, tmp_path: Path
) -> None:
    postgres.sql("CREATE TABLE orders (id INT PRIMARY KEY, item TEXT)")

    def insert(number: int) -> None:
        first = number * ROWS_A_ROUND
        postgres.sql(
            f"INSERT INTO orders SELECT n, 'item ' || n FROM "
            f"generate_series({first}, {first + ROWS_A_ROUND - 1}) n"
        )

    insert(0)                               # the connector's snapshot reads these rows
    plugins = maven_jars("debezium").parent
    worker = Worker(
        tmp_path / "worker", own_broker.bootstrap,
        **{"plugin.path": str(plugins), "plugin.discovery": "hybrid_warn"},
    )  # fmt: skip
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    worker.program.start()
    try:
        worker.connect("orders", **{
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput", "tasks.max": "1", "topic.prefix": "shop",
            "database.hostname": "127.0.0.1", "database.port": str(postgres.port),
            "database.user": "shop", "database.password": "none", "database.dbname": "postgres",
            "table.include.list": "public.orders", "exactly.once.support": "required",
            "max.batch.size": "100", "max.queue.size": "200",
            "key.converter": json_converter, "value.converter": json_converter,
            "value.converter.schemas.enable": "false",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "1",
        })  # fmt: skip

        def ids() -> list[int]:
            worker.restart_overtaken("orders")
            return [json.loads(v)["after"]["id"]
                    for v in committed_values(own_broker.bootstrap, TOPIC)]  # fmt: skip

        for number, dies in enumerate(("worker", "broker", "nothing"), 1):
            before = number * ROWS_A_ROUND
            worker.program.wait_until(lambda at=before: len(ids()) >= at, f"{before} changes")
            insert(number)
            worker.program.wait_until(lambda at=before: len(ids()) > at, "the next ones")
            if dies == "worker":
                worker.program.kill()
                worker.program.start()
            elif dies == "broker":
                own_broker.kill()
                own_broker.start()
        total = 4 * ROWS_A_ROUND
        worker.program.wait_until(lambda: len(ids()) >= total, f"all {total} changes")
        assert ids() == list(range(total))
    finally:
        worker.program.kill()
