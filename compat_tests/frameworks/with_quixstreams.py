"""Counts the records of each key with Quix Streams, exactly once.

Arguments: BOOTSTRAP INPUT OUTPUT STATE.
"""

import sys

from quixstreams import Application

bootstrap, source, sink, state = sys.argv[1:]
app = Application(
    broker_address=bootstrap,
    consumer_group="quix",
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=0.5,
    state_dir=state,
)
frame = app.dataframe(app.topic(source, value_deserializer="str", key_deserializer="str"))


def counted(value, state):
    """The value, followed by the number of records that its key has had."""
    count = state.get("count", 0) + 1
    state.set("count", count)
    return f"{value} {count}"


frame = frame.apply(counted, stateful=True)
frame.to_topic(app.topic(sink, value_serializer="str", key_serializer="str"))
app.run()
