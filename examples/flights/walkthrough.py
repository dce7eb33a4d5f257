# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A year of flights through Ottla and Spark
#
# 336,776 flights left New York in 2013. This page writes them to a topic, and reads the topic into
# an archive, a table, windows and a report. Then it replays the archive into another topic, and
# reads that topic from the broker's files. The code compares counts in the archive, the
# table, the windows and the files with the counts that pandas gets from the downloaded data; it
# also compares the records of the two topics. This page is an executed notebook:
# `make walkthrough` runs it again, in two to six minutes on two cores.
#
# The code needs a clone of Ottla in which `make spark` has run, and Java 17 or newer. Use the
# blocks of this page in a notebook or a script in `examples/flights`. `python walkthrough.py` in
# that directory runs all blocks; some of them print nothing for up to half a minute.

# %%
import json
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from flights_data import flights

import ottla.spark_interop as pipeline
from ottla.spark_interop.in_place.source import read_in_place
from ottla.testing import Broker

SCHEMA = """carrier STRING, tailnum STRING, origin STRING, dest STRING, dep_delay INT,
    time_hour TIMESTAMP"""
directory = Path(tempfile.mkdtemp(prefix="flights-"))
cache = Path(os.environ.get("FLIGHTS_DIR", Path.home() / ".cache" / "ottla" / "flights"))
cache.mkdir(parents=True, exist_ok=True)
source = flights(cache)
source["dep_delay"] = source.dep_delay.astype("Int64")      # null for a cancelled flight
hours = pandas.to_datetime(source.time_hour, utc=True)
print(f"{len(source):,} flights of {source.carrier.nunique()} carriers")

# %% [markdown]
# ## A broker and a topic
#
# `Broker` starts a real broker in a process of its own, as in tests. To use another broker, set
# `at` to its address, and replace `broker.directory / "data"` with its log directory. The key of
# a record is the plane's tail number, the value is the flight's row as JSON, and the timestamp is
# the scheduled hour of departure.

# %%
broker = Broker({"log.segment.bytes": "4000000"})
broker.start()
at = broker.bootstrap_servers
admin = AdminClient({"bootstrap.servers": at})
topics = [NewTopic(name, 6, 1, config={"retention.ms": "-1"}) for name in ("flights", "again")]
for made in admin.create_topics(topics).values():
    made.result(30)

columns = ["carrier", "tailnum", "origin", "dest", "dep_delay", "time_hour"]
times = hours.dt.as_unit("ms").astype("int64")
values = source[columns].to_json(orient="records", lines=True).splitlines()
producer = Producer({"bootstrap.servers": at, "compression.type": "zstd", "linger.ms": 20,
                     "log_level": 3})
for value, plane, time_ms in zip(values, source.tailnum, times, strict=True):
    key = plane if isinstance(plane, str) else None
    while True:
        try:
            producer.produce("flights", value, key, timestamp=int(time_ms))
            break
        except BufferError:
            producer.poll(0.1)
left = producer.flush(60)
assert left == 0
files = sum(f.stat().st_size for f in (broker.directory / "data").glob("flights-*/*.log"))
print(f"{len(values):,} records, about {files / 1e6:.0f} MB on the broker's disk")

# %% [markdown]
# ## Typed columns
#
# `read_topic` returns the columns of the values, and in addition `_key`, `_partition`, `_offset`,
# `_timestamp`, `_headers`, `_value` and `_error`.

# %%
spark = pipeline.session(jars=os.environ.get("OTTLA_SPARK_JARS"))
frame = pipeline.read_topic(spark, at, "flights", format="json", schema=SCHEMA)
frame.select("carrier", "tailnum", "origin", "dest", "dep_delay", "_partition", "_offset").show(5)

# %% [markdown]
# ## Archive: the topic as Parquet files, each record once
#
# An archive that grows every hour has directories by hour or date. This archive is written in one
# run and needs few files, so `by="none"` omits these directories. The second run finds nothing new.
# `verify` reads every file and compares the offsets with those of the topic.

# %%
archive = directory / "archive"
first = pipeline.archive(spark, at, "flights", archive, by="none", progress=False)
again = pipeline.archive(spark, at, "flights", archive, by="none", progress=False)
proof = pipeline.verify(spark, archive, at)
print(f"archived {first['records']:,} records in {first['files']} files, then {again['records']}; "
      f"verified: {proof['ok']}, {proof['problems']}")
assert proof["ok"] and first["records"] == len(source) and again["records"] == 0

per_day = pipeline.read_archive(spark, archive).groupBy("timestamp").count().toPandas()
per_day = per_day.groupby(per_day.timestamp.dt.strftime("%Y-%m-%d"))["count"].sum()
assert per_day.to_dict() == hours.dt.strftime("%Y-%m-%d").value_counts().to_dict()

figure, axes = plt.subplots(figsize=(9, 2.8))
axes.plot(pandas.to_datetime(per_day.index), per_day.values, linewidth=0.8)
axes.set_title("flights a day, from the archive")
axes.set_ylim(0)
plt.show()

# %% [markdown]
# ## Latest: a table of each plane's newest flight

# %%
table = directory / "latest"
report = pipeline.latest(spark, at, "flights", table, progress=False)
planes = pipeline.read_latest(spark, table)
print(f"{report['keys']:,} planes; {report['without_key']:,} records had no key")
assert report["keys"] == source.tailnum.nunique()
assert report["without_key"] == source.tailnum.isna().sum()

# %% [markdown]
# ## Windows: departures and delays by day and carrier
#
# The windows use the event time, here the column `time_hour`. The *watermark* is the newest event
# time that was read, minus a delay. A window is final, and is written, once the watermark has
# passed the window's end. A record that is read after its window has become final is late, and is
# left out. A run reads partitions in parallel, so it may read December in one partition before
# January in another. With a delay of 400 days, no record is late.
#
# This topic gets no more records, so `final=True` lets the run close all windows after the last
# record.

# %%
summary = pipeline.windows(
    spark, at, "flights", directory / "windows", window="1 day", time_column="time_hour",
    by=["carrier"], schema=SCHEMA, watermark="400 days", final=True,
    aggregates={"flights": "count(*)", "delay": "avg(dep_delay)"}, progress=False,
)
print({name: summary[name] for name in ("records", "bad", "late", "written")})
days = pipeline.read_windows(spark, directory / "windows").toPandas()
assert days.flights.sum() == len(source)

weekly = days.assign(week=pandas.to_datetime(days.window_start).dt.isocalendar().week)
busiest = days.groupby("carrier").flights.sum().nlargest(5).index
figure, axes = plt.subplots(figsize=(9, 3.2))
for carrier in busiest:
    of = weekly[weekly.carrier == carrier]
    weight = of.delay * of.flights
    axes.plot(weight.groupby(of.week).sum() / of.flights.groupby(of.week).sum(), label=carrier)
axes.set_title("average delay at departure in minutes by week, the five busiest carriers")
axes.legend(ncols=5, fontsize=8)
plt.show()

# %% [markdown]
# ## What the topic holds
#
# `quality_report` returns statistics, here of the archive. It also writes them as an HTML page with
# plots; the page needs no network.

# %%
quality = pipeline.quality_report(
    spark, archive=archive, format="json", schema=SCHEMA, html=directory / "quality.html",
    progress=False,
)
shown = ("records", "bad", "without_key", "bytes")
print(json.dumps({name: quality[name] for name in shown}, indent=1))

# %% [markdown]
# ## Replay: the archive back into a topic

# %%
replayed = pipeline.replay(spark, archive, at, "again")
print({name: replayed[name] for name in ("records", "written", "already_there")})
told = spark.read.format("kafka").option("kafka.bootstrap.servers", at)
same = ["partition", "key", "value", "timestamp"]
original = told.option("subscribe", "flights").load()
copy = told.option("subscribe", "again").load()
assert original.select(same).exceptAll(copy.select(same)).isEmpty()
assert copy.count() == len(source)

# %% [markdown]
# ## In place: the broker's files
#
# Spark reads the segment files where they are, and returns only the named columns.

# %%
files = [broker.directory / "data"]
rows = read_in_place(spark, at, "again", files, columns=["partition", "timestamp"])
months = rows.selectExpr("month(timestamp) AS month").groupBy("month").count().toPandas()
months = months.set_index("month")["count"].sort_index()
assert months.to_dict() == hours.dt.month.value_counts().to_dict()

figure, axes = plt.subplots(figsize=(9, 2.4))
axes.bar(months.index, months.values)
axes.set_title("flights a month, read in place")
plt.show()

# %%
spark.stop()
del producer, admin
broker.close()
