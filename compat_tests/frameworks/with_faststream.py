"""Counts the records of each key with FastStream; arguments: BOOTSTRAP INPUT OUTPUT LIBRARY.

LIBRARY is `aiokafka` or `confluent`.
"""

import asyncio
import sys
from collections import Counter

from faststream import FastStream

bootstrap, source, sink, library = sys.argv[1:]
if library == "aiokafka":
    from faststream.kafka import KafkaBroker
    from faststream.kafka.annotations import KafkaMessage
else:
    from faststream.confluent import KafkaBroker
    from faststream.confluent.annotations import KafkaMessage
broker = KafkaBroker(bootstrap)
counts = Counter()


@broker.subscriber(source, group_id=f"faststream-{library}", auto_offset_reset="earliest")
async def handle(body: bytes, message: KafkaMessage) -> None:
    """Publish the value, followed by the number of records that its key has had."""
    raw = message.raw_message
    key = raw.key() if callable(raw.key) else raw.key
    counts[key] += 1
    await broker.publish(b"%b %d" % (body, counts[key]), sink, key=key)


asyncio.run(FastStream(broker).run())
