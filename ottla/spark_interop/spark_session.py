"""A SparkSession with Spark's Kafka connector; only the first session needs a network.

"Failed to find data source: kafka" means that the connector's jar was not on the class path when
the JVM started. `session` finds the jar that belongs to the installed pyspark, or says what to
install. The resolved jars are kept in a directory, which later sessions use.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.spark_interop.errors import SparkUnavailable
from ottla.wire.environment import pip_install

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALA = "2.13"
JAVA_MIN = 17
VERSIONS = ("4.0.0", "4.1.1", "4.2.0")
"""The releases of pyspark whose connector, token provider and Avro module are all in Maven Central;
other releases lack at least one of these. compat_tests run with each release."""
RECOMMENDED = VERSIONS[-1]
BESIDE = "confluent-kafka", "pyarrow", "pandas"  # what pipelines need beside pyspark
MASTERS = re.compile(
    r"local(\[([1-9]\d*|\*)(\s*,\s*\d+)?\])?|local-cluster\[.+\]|yarn|\w+://.+")
MEMORY = re.compile(r"[1-9]\d*[kmgt]", re.IGNORECASE)
MODULES = {"kafka": "spark-sql-kafka-0-10", "avro": "spark-avro"}
# Included in pyspark; a second copy would be another 90 MB to download.
EXCLUDED = (
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.slf4j:slf4j-api",
    "org.lz4:lz4-java",
    "at.yawk.lz4:lz4-java",
    "org.xerial.snappy:snappy-java",
    "org.scala-lang.modules:scala-parallel-collections_2.13",
)
JARS = "--jars (in Python jars=…)"
KAFKA_SOURCE = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def session(
    app_name: str = "ottla",
    *,
    master: str | None = None,
    jars: str | Path | None = None,
    memory: str = "2g",
    shuffle_partitions: int | None = None,
    settings: Mapping[str, str] | None = None,
    log_level: str = "ERROR",
) -> SparkSession:
    """A SparkSession with the Kafka and Avro modules, in UTC. If a session is already running, it
    is returned, and the arguments have no effect.

    `master` is Spark's master, by default `local[*]`. `jars` is a directory, by default
    $OTTLA_SPARK_JARS, else `~/.cache/ottla/spark`. If it has the connector's jars, nothing
    is downloaded; if it is empty or missing, the jars are downloaded to it. `memory` is the
    driver's heap, which in local mode is Spark's only heap. `shuffle_partitions` is the number
    of partitions after a shuffle, by default the number of processors. `settings` are further
    settings of Spark, which take precedence over those of `session`.

    Raises SparkUnavailable if pyspark is missing; if Java 17 or newer is missing; if there is no
    connector for this pyspark; if the jars are of another version; if `master` or `memory` is
    invalid; or if a session without the connector is already running.
    """
    check_start(master, memory)
    version = spark_version()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return _checked(running, version)
    java_version()
    # By default Spark's workers run the first python3 of the PATH, which may lack pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    home = jar_directory(jars)
    builder: Any = SparkSession.builder.appName(app_name).master(master or "local[*]")
    partitions = shuffle_partitions or os.cpu_count() or 2
    for key, value in (
        _defaults(memory, partitions) | _class_path(home, version) | dict(settings or {})
    ).items():
        builder = builder.config(key, value)
    with _home_of_its_own(home):
        try:
            spark: SparkSession = builder.getOrCreate()
        except KeyboardInterrupt as interrupted:
            end_jvm(interrupted)
            raise
        except Exception as error:
            advice = "" if files_of(home, version) else (
                ". If this machine cannot reach Maven Central (in Python, Spark then prints "
                "`unresolved dependency`), copy the connector's jars from a machine that can "
                f"({jar_directory(None) / version / 'jars'}), and give their directory with {JARS}"
            )
            reason = str(error).rstrip(".")
            raise SparkUnavailable(f"Spark did not start: {reason}{advice}") from error
    spark.sparkContext.setLogLevel(log_level)
    remember(home / version, version)
    return _checked(spark, version)


def check_start(master: str | None, memory: str) -> None:
    """Raises SparkUnavailable for a master or an amount of memory with which no JVM starts."""
    if master and not MASTERS.fullmatch(master):
        raise SparkUnavailable(
            f"{master!r} is not a master of Spark: use local[*], local[2], spark://host:7077, yarn "
            "or k8s://https://host:port"
        )
    if not MEMORY.fullmatch(str(memory)):
        raise SparkUnavailable(f"{memory!r} is not an amount of memory: write 2g or 512m")


def end_jvm(interrupted: KeyboardInterrupt) -> None:
    """Ends the JVM that was starting, which would otherwise stay.

    The JVM ignores Ctrl-C. Normally it ends when its standard input is closed. Here it never reads
    that input, because its main thread fails earlier: pyspark has removed the directory to which
    the JVM writes its port number.

    A frame of the traceback has the process: pyspark's `launch_gateway`, or a method of Popen if
    Ctrl-C came before Popen returned.
    """
    started = {
        value for frame, _ in traceback.walk_tb(interrupted.__traceback__)
        for value in frame.f_locals.values() if isinstance(value, subprocess.Popen) and value.pid
    }  # fmt: skip
    for process in started:
        process.terminate()
        process.wait()


def spark_version() -> str:
    """The version of the installed pyspark; raises SparkUnavailable without one."""
    try:
        import pyspark
    except ImportError as error:
        raise SparkUnavailable(
            "pyspark is not installed: run `make spark` in a clone of Ottla; elsewhere, run"
            f" `{pip_install(f'pyspark=={RECOMMENDED}', *BESIDE)}`"
        ) from error
    return str(pyspark.__version__)


def java_version() -> int:
    """The major version of the Java that Spark will start; raises SparkUnavailable below 17."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise SparkUnavailable(
            f"Java not found ({'JAVA_HOME is ' + home if home else 'none in PATH'}): install "
            f"Java {JAVA_MIN} or newer, on Debian with `apt-get install openjdk-17-jre-headless`"
        )
    printed = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    release = printed.split('"')[1] if '"' in printed else "0"
    feature = int(release.split(".")[1] if release.startswith("1.") else release.split(".")[0])
    if feature < JAVA_MIN:
        raise SparkUnavailable(f"{java} is Java {feature}; Spark 4 needs Java {JAVA_MIN} or newer")
    return feature


def jar_directory(given: str | Path | None) -> Path:
    """The directory of jars: as given, $OTTLA_SPARK_JARS, or the user's cache directory."""
    named = given or os.environ.get("OTTLA_SPARK_JARS")
    if named:
        return Path(named).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "ottla" / "spark"


def _defaults(memory: str, partitions: int) -> dict[str, str]:
    return {
        "spark.driver.memory": memory,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.execution.arrow.pyspark.enabled": "false",
        # A task that writes to date=/hour= directories keeps this many files open, so it need not
        # sort its records by directory first.
        "spark.sql.maxConcurrentOutputFileWriters": "32",
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    }


def coordinates(version: str) -> list[str]:
    """The Maven coordinates of the modules for a pyspark. Raises SparkUnavailable if there are
    none."""
    if version not in VERSIONS:
        raise SparkUnavailable(
            f"Maven Central lacks jars that pyspark {version} needs for Kafka. Releases with all "
            f"jars are {', '.join(VERSIONS)}: run `{pip_install(f'pyspark=={RECOMMENDED}')}`."
            f" If you have the jars of {version}, give their directory with {JARS}"
        )
    return [f"org.apache.spark:{name}_{SCALA}:{version}" for name in MODULES.values()]


def files_of(home: Path, version: str) -> list[Path]:
    """The local jars of the connector; none if Ivy will download them."""
    return kept_jars(home / version, version) or given_jars(home, version)


def _class_path(home: Path, version: str) -> dict[str, str]:
    """Settings that put the connector's jars on the class path: local files or coordinates."""
    files = files_of(home, version)
    if files:
        return {"spark.jars": ",".join(map(str, files))}
    return {
        "spark.jars.packages": ",".join(coordinates(version)),
        "spark.jars.excludes": ",".join(EXCLUDED),
        "spark.jars.ivy": str(home / version),
    }


RECORD = "resolved.json"
"""In a version's directory: the jars that Ivy resolved. Each version has its own directory, since
connectors need different releases of the same libraries."""


def kept_jars(directory: Path, version: str) -> list[Path]:
    """The jars that an earlier session resolved; none unless all of them are still there."""
    try:
        kept = json.loads((directory / RECORD).read_text())
        names = kept["jars"] if kept["coordinates"] == coordinates(version) else []
    except (OSError, ValueError, KeyError):
        return []
    files = [directory / "jars" / name for name in names]
    return files if all(file.exists() for file in files) else []


def remember(directory: Path, version: str) -> None:
    """Stores the names of the jars that Ivy resolved: later starts need no Ivy and no network."""
    if version not in VERSIONS or (directory / RECORD).exists():
        return
    names = sorted(jar.name for jar in (directory / "jars").glob("*.jar"))
    if any(MODULES["kafka"] in name for name in names):
        kept = {"coordinates": coordinates(version), "jars": names}
        (directory / RECORD).write_text(json.dumps(kept, indent=1) + "\n")


def given_jars(home: Path, version: str) -> list[Path]:
    """The jars in a user's directory. Raises SparkUnavailable for jars of another version."""
    files = sorted(home.glob("*.jar")) if home.is_dir() else []
    connectors = [f.name for f in files if MODULES["kafka"] in f.name]
    if not connectors:
        return []
    wanted = f"{MODULES['kafka']}_{SCALA}-{version}.jar"
    if not any(name.endswith(wanted) for name in connectors):
        jar_version = connectors[0].rpartition("-")[2].removesuffix(".jar")
        raise SparkUnavailable(
            f"{home / connectors[0]} is the connector of Spark {jar_version}, but pyspark is "
            f"{version}. The two versions must be equal: run"
            f" `{pip_install(f'pyspark=={jar_version}')}`, or put {wanted} into {home}"
        )
    return files


@contextmanager
def _home_of_its_own(home: Path) -> Iterator[None]:
    """Hides the user's Maven repository from Ivy. Maven leaves entries without a jar there if it
    needs only their pom, and Ivy would take such entries for complete."""
    before = os.environ.get("SPARK_SUBMIT_OPTS")
    home.mkdir(parents=True, exist_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = f"{before or ''} -Duser.home={home.resolve()}".strip()
    try:
        yield
    finally:
        if before is None:
            del os.environ["SPARK_SUBMIT_OPTS"]
        else:
            os.environ["SPARK_SUBMIT_OPTS"] = before


def _checked(spark: SparkSession, version: str) -> SparkSession:
    """The session. Raises SparkUnavailable unless its JVM can load the Kafka source."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(KAFKA_SOURCE)
    except Exception as error:
        raise SparkUnavailable(
            f"a SparkSession is running already, and it has no Kafka connector: stop it first, or "
            f"start it with spark.jars.packages={','.join(coordinates(version))}"
        ) from error
    return spark
