"""The events: each is a function that makes the event happen in a scene, and returns the outcome.

The outcome is "right" if the pipeline's result is right at once. If the pipeline refuses to
continue, the outcome is its error message, followed by "then right" or similar words: the result
was right after the error's remedy. A function raises AssertionError if the result is wrong; any
other exception means that the pipeline failed without a proper error message.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from compat_tests.brokers import ClusterBroker
from compat_tests.events.killed import FILES, POINT, ROWS
from compat_tests.events.scenes import KEEP_PARTITIONS, WRITE_TOPICS, Record, Scene, numbered
from compat_tests.requirements import ROOT
from compat_tests.spark_session import SHORT_RUN
from compat_tests.waiting import wait_until
from ottla import spark_interop as si
from ottla.spark_interop.errors import DataLost, PipelineError

NONE = "-"      # the outcome if the event cannot happen to the pipeline
AWAY_SECONDS = 420
BALLAST = "ballast"


def then_right(said: str | None) -> str:
    return "right" if said is None else f"refused: {said}; then right"


def killed(scene: Scene) -> str:
    """Driver, JVM and workers are killed with kill -9 at each point of a commit."""
    first = 0
    for point in ROWS if scene.pipeline in WRITE_TOPICS else FILES:
        scene.send(numbered(first, 40))
        first += 40
        child = in_another_process(scene, {POINT: point})
        assert child.wait(300) == -signal.SIGKILL, f"{point} was not reached"
        scene.run()
        scene.check() if scene.pipeline != "windows" else None
    scene.check()
    return "right"


def in_another_process(
    scene: Scene, environment: dict[str, str], **more: Any
) -> subprocess.Popen[bytes]:
    """Start the pipeline in another process, which gets a process group of its own."""
    given = {"bootstrap": scene.broker.bootstrap, "pipeline": scene.pipeline, "more": more,
             "place": str(scene.place), "topic": scene.topic, "number": scene.number}  # fmt: skip
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "compat_tests.events.killed", json.dumps(given)]
    with (scene.place / "process.log").open("ab") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, start_new_session=True, cwd=ROOT,
            env=os.environ | SHORT_RUN | {"PYTHONPATH": path} | environment,
        )  # fmt: skip


def twice(scene: Scene) -> str:
    """The pipeline runs twice, and twice again after more records were sent."""
    scene.send(numbered(0, 40))
    scene.run()
    scene.run()
    scene.send(numbered(40, 40))
    scene.run()
    scene.run()
    scene.check()
    return "right"


def two_at_once(scene: Scene) -> str:
    """The pipeline runs in this process while it also runs in another one."""
    scene.send(numbered(0, 40))
    scene.run()
    scene.send(numbered(40, 40))
    other = in_another_process(scene, {}, every="200 milliseconds")

    def other_caught_up() -> bool:
        assert other.poll() is None, (scene.place / "process.log").read_text()[-2000:]
        return _caught_up(scene)

    try:
        wait_until(other_caught_up, "the other process's batch", 300)
        said = []
        for n in range(3):      # the other process writes at the same time
            scene.send(numbered(80 + 20 * n, 20))
            said.append(scene.attempt())
        ended = other.poll() is not None
    finally:
        if other.poll() is None:
            os.killpg(other.pid, signal.SIGKILL)
        other.wait()
    scene.run()
    scene.check()
    refusals = [text for text in said if text]
    what = f"the second is refused: {refusals[0]}" if refusals else "both run"
    return f"{what}{'; the first ends with an error' if ended else ''}; right"


def _caught_up(scene: Scene) -> bool:
    """Whether Spark has committed a batch that ends at the end of the scene's topic."""
    place = scene.place / "archive" if scene.pipeline == "replay" else scene.path
    folder = place / ("" if scene.pipeline in ("mirror", "dead-letter") else "_ottla/checkpoint")
    commits = [int(f.name) for f in (folder / "commits").glob("[0-9]*")]
    if not commits:
        return False
    text = (folder / "offsets" / str(max(commits))).read_text().splitlines()[-1]
    done = json.loads(text)[scene.topic]
    return {int(p): o for p, o in done.items()} == scene.cluster.ends(scene.topic)


def recreated(scene: Scene) -> str:
    """The source topic is deleted and created again, and gets more records than before."""
    scene.send(numbered(0, 40))
    scene.run()
    scene.delete(scene.topic)
    scene.make(scene.topic, scene.partitions)
    scene.sent = []
    scene.send(numbered(1000, 60))
    said = scene.attempt()
    assert said is not None, "records of another topic were taken"
    scene.anew()
    if scene.pipeline == "replay":
        shutil.rmtree(scene.place / "archive")
    scene.run()
    scene.check()
    return f"refused: {said}; with another path and name right"


def grown(scene: Scene) -> str:
    """Partitions are added to the source topic."""
    scene.send(numbered(0, 40))
    scene.run()
    scene.send(numbered(40, 20))
    scene.grow(scene.topic, 4)
    wait_until(lambda: len(scene.cluster.partitions(scene.topic)) == 4, "four")
    scene.send(numbered(60, 60))        # some of the same keys now go to other partitions
    said = scene.attempt()
    if said is not None:
        for target in scene.targets:
            scene.grow(target, 4)
        scene.run()
    scene.check()
    return then_right(said)


def _lost(scene: Scene, lose: Callable[[], None]) -> str:
    scene.send(numbered(0, 40))
    scene.run()
    kept = list(scene.sent)
    scene.send(numbered(40, 20))
    lose()
    scene.sent = kept
    scene.send(numbered(60, 20))
    try:
        scene.run()
    except DataLost as error:
        scene.run(allow_gaps=True)
        scene.check()
        return f"refused: {error}; with --allow-gaps the rest, right"
    raise AssertionError("lost records were not noticed")


def deleted_records(scene: Scene) -> str:
    """DeleteRecords removes records that the pipeline has not read."""

    return _lost(scene, lambda: scene.delete_records(scene.cluster.ends(scene.topic)))


def expired(scene: Scene) -> str:
    """Retention removes records that the pipeline has not read."""

    def lose() -> None:
        ends = scene.cluster.ends(scene.topic)
        scene.set(scene.topic, retention_ms="1")
        wait_until(lambda: scene.cluster.starts(scene.topic) == ends, "retention", 120)
        scene.set(scene.topic, retention_ms="-1")

    return _lost(scene, lose)


def compacted(scene: Scene) -> str:
    """Compaction removes older records of keys before the pipeline has read them. The target topics
    are created here, without compaction: a pipeline that creates them copies the source's setting.
    """
    for target in scene.targets if scene.pipeline in KEEP_PARTITIONS else ():
        scene.make(target, scene.partitions)
    scene.set(scene.topic, cleanup_policy="compact", segment_ms="50", retention_ms="-1",
              min_cleanable_dirty_ratio="0.01")  # fmt: skip
    scene.send(numbered(0, 40))
    scene.run()
    done = list(scene.sent)
    scene.send(numbered(40, 40))
    count = len(readable(scene))
    for n in range(60):                 # each round closes a segment
        time.sleep(0.2)
        scene.send(numbered(80 + 2 * n, 2))
        if n > 10 and len(readable(scene)) < count:
            break
    scene.run()                         # compaction continues during the run
    left = readable(scene)
    assert len(left) < len(scene.sent), "nothing was compacted"
    if isinstance(scene.broker, ClusterBroker):     # the next leader may have compacted differently
        left = set({r.key: r.value for r in scene.sent}.values())
    scene.check(done + [r for r in scene.sent[len(done):] if r.value in left])
    return "right: what compaction left is there"


def readable(scene: Scene) -> set[bytes]:
    frame = si.read_topic(scene.spark, scene.broker.bootstrap, scene.topic)
    return {bytes(row._value) for row in frame.select("_value").collect()}


def target_deleted(scene: Scene) -> str:
    """The topics or the directory that the pipeline writes are deleted between two runs."""
    scene.send(numbered(0, 40))
    scene.run()
    scene.send(numbered(40, 20))
    if scene.pipeline not in WRITE_TOPICS:
        shutil.rmtree(scene.path / "data")
        said = scene.attempt()
        if said is None and scene.pipeline == "archive":
            problems = si.verify(scene.spark, scene.path, scene.broker.bootstrap)["problems"]
            assert problems, "the archive says that it is whole"
            said = f"verify: {problems[0]}"
        if said is None:
            try:
                si.read_windows(scene.spark, scene.path)
            except PipelineError as error:
                said = f"read_windows: {error}"
        shutil.rmtree(scene.path)
        scene.run()
        scene.check()
        return f"{said}; once the whole path is deleted, made anew: right"
    for target in scene.targets:
        scene.delete(target)
    wait_until(lambda: not scene.cluster.exists(scene.to), "it is gone")
    said = scene.attempt()
    if said is not None:
        scene.anew()
        scene.run()
    scene.check()
    return f"refused: {said}; with another path and name right" if said else "written anew: right"


def target_small(scene: Scene) -> str:
    """A record is larger than the target topic's max.message.bytes."""
    if scene.pipeline not in KEEP_PARTITIONS:
        return NONE
    for target in scene.targets:
        scene.make(target, scene.partitions, max_message_bytes="3000")
    scene.send(numbered(0, 40))
    scene.run()
    large = b'{"n":40,"more":"' + os.urandom(5_000).hex().encode() + b'"}'
    scene.send([Record(40, large)])
    said = scene.attempt()
    assert said is not None, "a record that is too large was taken"
    for target in scene.targets:
        scene.set(target, max_message_bytes="100000", retention_ms="-1")
    scene.send(numbered(41, 10))
    scene.run()
    scene.check()
    return f"refused: {said}; with a larger max.message.bytes right"


def rights(scene: Scene) -> str:
    """ACLs deny the operations that the pipeline needs, one at a time."""
    scene.send(numbered(0, 40))
    scene.run()
    scene.send(numbered(40, 10))
    topic = ResourceType.TOPIC
    wanted = [(topic, scene.topic, AclOperation.READ)]
    if scene.pipeline in WRITE_TOPICS:
        wanted += [(topic, scene.to, AclOperation.WRITE)]
        wanted += [(topic, "ottla.pipelines.progress", AclOperation.WRITE)]
        wanted += [(topic, "ottla.pipelines.progress", AclOperation.READ)]
    said = {}
    for kind, name, operation in wanted:
        acl = AclBinding(kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation,
                         AclPermissionType.DENY)  # fmt: skip
        scene.ask(lambda admin: admin.create_acls([acl])[acl])  # noqa: B023
        try:
            short = name.replace(scene.topic, "SOURCE") if name == scene.topic else name
            said[f"{operation.name} on {short}"] = scene.attempt()
        finally:
            which = AclBindingFilter(kind, name, ResourcePatternType.LITERAL, None, None,
                                     AclOperation.ANY, AclPermissionType.ANY)  # fmt: skip
            scene.ask(lambda admin: admin.delete_acls([which])[which])  # noqa: B023
    assert all(said.values()), f"not refused: {said}"
    scene.run()
    scene.check()
    return "; ".join(f"without {what}: {text}" for what, text in said.items()) + "; then right"


def schema(scene: Scene) -> str:
    """Some values do not match the schema."""
    if scene.pipeline not in ("windows", "windows --to", "dead-letter"):
        return NONE
    scene.send(numbered(0, 40))
    scene.send([Record(40 + n, b"not JSON %d" % n) for n in range(5)])
    report = scene.run()
    scene.check()
    assert report["bad"] == 5
    return "right: they are counted" + (" and put aside" if scene.targets[1:] else "")


def disk_full(scene: Scene) -> str:
    """The file system of the pipeline's path is full."""
    if os.geteuid():
        return "not tried: mounting a small file system needs root"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", scene.place], check=True)
    try:
        scene.send(numbered(0, 40))
        scene.run()
        scene.send(numbered(40, 40))
        with (scene.place / BALLAST).open("wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(4096))
            except OSError:
                pass
        said = scene.attempt()
        assert said is not None, "there was room"
        (scene.place / BALLAST).unlink()
        scene.run()
        scene.check()
    finally:
        subprocess.run(["umount", "-l", scene.place], check=True)
    return f"refused: {said}; with room right"


def broker_away(scenes: list[Scene]) -> list[str]:
    """The broker is killed while all pipelines run, and started again after these runs have ended.
    Then each pipeline runs once more. Returns each scene's outcome."""
    broker, ended = scenes[0].broker, dict[str, str]()
    if isinstance(broker, ClusterBroker):
        return [NONE] * len(scenes)     # `--kills` takes a cluster's brokers away in all events
    for scene in scenes:
        scene.begin()
        scene.send(numbered(0, 40))
        scene.run()
    runners = [threading.Thread(target=_until_it_ends, args=(s, ended)) for s in scenes]
    for runner, scene in zip(runners, scenes, strict=True):
        scene.send(numbered(40, 40))
        runner.start()
    try:
        wait_until(lambda: all(map(_caught_up, scenes)), "all of them run", 180)
        assert not ended, ended
        for scene in scenes:
            scene.send(numbered(80, 20))
        broker.kill()
        deadline = time.monotonic() + AWAY_SECONDS
        for runner in runners:
            runner.join(max(deadline - time.monotonic(), 0))
        late = [s.pipeline for s, r in zip(scenes, runners, strict=True) if r.is_alive()]
    finally:
        for query in scenes[0].spark.streams.active:
            query.stop()
        broker.start()
        for runner in runners:
            runner.join(60)
    return [_back(scene, ended, scene.pipeline in late) for scene in scenes]


def _until_it_ends(scene: Scene, ended: dict[str, str]) -> None:
    """Run the pipeline until it fails because the broker was killed, and run it once more while the
    broker is down. Put what both runs reported into `ended`."""
    try:
        first = scene.attempt(every="500 milliseconds")
        begun = time.monotonic()
        second = scene.attempt()
        seconds = time.monotonic() - begun
        ended[scene.pipeline] = f"{first}; begun meanwhile, after {seconds:.0f} s: {second}"
    except Exception as error:
        ended[scene.pipeline] = f"WRONG: {type(error).__name__}: {str(error)[:600]}"


def _back(scene: Scene, ended: dict[str, str], late: bool) -> str:
    if late:
        return f"WRONG: not at its end within {AWAY_SECONDS} s"
    try:
        scene.run()
        scene.check()
    except Exception as error:
        return f"WRONG: {type(error).__name__}: {str(error)[:600]}"
    return f"{ended[scene.pipeline]}; once it is back right"


HAPPENINGS: dict[str, Callable[[Scene], str]] = {
    "run twice": twice,
    "two at once": two_at_once,
    "topic recreated": recreated,
    "partitions added": grown,
    "DeleteRecords": deleted_records,
    "retention": expired,
    "compaction": compacted,
    "target deleted": target_deleted,
    "target too small": target_small,
    "rights missing": rights,
    "schema does not fit": schema,
    "disk full": disk_full,
    "kill -9 at each commit": killed,
}
AWAY = "broker away"    # happens to all pipelines at the same time, see `broker_away`
ALONE = ("two at once", "rights missing", "kill -9 at each commit")
"""These events happen to one pipeline at a time: they start other processes, or deny access to a
topic that several pipelines write."""
