"""Starts, kills and restarts long-running Java programs on Kafka's own jars."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

from compat_tests.requirements import COMPAT_DIR, PEER_DIR, PEER_JARS, ROOT, java, missing, program
from compat_tests.waiting import wait_until

WAIT_SECONDS = 180
"""Some programs wait for a minute themselves: a Connect worker until the transaction of a killed
worker times out, and Debezium until a task that is being stopped releases its metrics' name."""
# Short runs spend much time on compilation, so use only the first compiler, and one GC thread.
OPTIONS = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


@cache
def peer_jars() -> Path:
    """The folder with the jars of Apache Kafka 4.4.0, its Streams and its Connect."""
    java()
    if subprocess.run([PEER_DIR / "setup.sh"], capture_output=True).returncode != 0:
        missing("Kafka's own jars are not there")
    return PEER_JARS


@cache
def maven_jars(name: str) -> Path:
    """The folder with the jars of `java_<name>/pom.xml` and their dependencies. Maven downloads
    them once for each version of that file."""
    pom = ROOT / "compat_tests" / f"java_{name}" / "pom.xml"
    place = COMPAT_DIR / name
    done = place / "pom.xml"                # copied after a complete download
    if not done.exists() or done.read_bytes() != pom.read_bytes():
        shutil.rmtree(place, ignore_errors=True)
        command = [program("mvn"), "-q", "-B", "-f", pom, "dependency:copy-dependencies",
                   "-DincludeScope=runtime", f"-DoutputDirectory={place / 'jars'}"]  # fmt: skip
        if subprocess.run(command).returncode != 0:
            missing(f"Maven could not resolve {pom.relative_to(ROOT)}")
        shutil.copy(pom, done)
    return place / "jars"


@cache
def compiled(name: str, folder: str = "streams") -> Path:
    """Compile `java_<folder>/<name>.java`, once in each run; return the folder of the classes."""
    classes = COMPAT_DIR / "classes" / folder
    classes.mkdir(parents=True, exist_ok=True)
    source = ROOT / "compat_tests" / f"java_{folder}" / f"{name}.java"
    path = f"{peer_jars() if folder == 'streams' else maven_jars(folder)}/*"
    subprocess.run([program("javac"), "-nowarn", "-d", classes, "-cp", path, source], check=True)
    return classes


class JavaProgram:
    """One main class with its arguments; everything that it prints goes to one file.

    `libraries` is a folder of jars, by default Kafka's own.
    """

    def __init__(
        self,
        directory: Path,
        *command: str,
        classes: Path | None = None,
        libraries: Path | None = None,
    ) -> None:
        self.directory = directory
        self.log = directory / "java.log"
        jars = f"{libraries or peer_jars()}/*"
        path = jars if classes is None else f"{classes}{os.pathsep}{jars}"
        log4j = peer_jars().parent / "log4j2-tools.properties"
        logging = f"-Dlog4j2.configurationFile={log4j}"
        self._command = [java(), *OPTIONS, logging, "-cp", path, *command]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it without waiting."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, cwd=self.directory
            )

    def kill(self) -> None:
        """Kill the program with kill -9, if it was started."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait_until(self, true: Callable[[], bool], what: str) -> None:
        """Like `waiting.wait_until`, but fails at once if the program ends by itself."""

        def checked() -> bool:
            assert self._process is not None
            status = self._process.poll()
            assert status is None, f"ended with status {status}\n{self.tail()}"
            return true()

        try:
            wait_until(checked, what, WAIT_SECONDS)
        except AssertionError as failure:
            raise AssertionError(f"{failure}\n{self.tail()}") from None

    def tail(self) -> str:
        """The last lines that it printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])
