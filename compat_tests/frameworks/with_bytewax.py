"""Counts the records of each key with bytewax; arguments: BOOTSTRAP INPUT OUTPUT."""

import sys

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main

bootstrap, source, sink = sys.argv[1:]
flow = Dataflow("counts")
read = kop.input("in", flow, brokers=[bootstrap], topics=[source], tail=True)
keyed = op.map("key", read.oks, lambda message: (message.key.decode(), message.value))


def counted(count, value):
    """The new count, and the value followed by the number of records that its key has had."""
    count = (count or 0) + 1
    return count, b"%b %d" % (value, count)


made = op.stateful_map("count", keyed, counted)
out = op.map("out", made, lambda pair: KafkaSinkMessage(pair[0].encode(), pair[1]))
kop.output("sink", out, brokers=[bootstrap], topic=sink)
run_main(flow)
