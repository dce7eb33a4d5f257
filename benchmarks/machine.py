"""Properties of the machine, and the resources that a process has used."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class CpuTime(NamedTuple):
    """CPU seconds of all threads of a process, in steps of 10 ms."""

    user: float
    system: float


def cpu_time(pid: int) -> CpuTime:
    """The CPU time that a process has used since it began."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return CpuTime(int(fields[11]) / TICKS_A_SECOND, int(fields[12]) / TICKS_A_SECOND)


def cpu_seconds(pid: int) -> float:
    """User and system time together."""
    return sum(cpu_time(pid))


def busy_seconds() -> float:
    """The CPU seconds since the machine's start in which its cores were not idle."""
    fields = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICKS_A_SECOND


def resident_mb(pid: int) -> float:
    """The resident memory of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def proportional_mb(pid: int) -> float:
    """The memory of a process in MiB. A page that n processes share is counted as 1/n of a page for
    each, so a sum over all of these processes counts every page once."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def memory_gib() -> float:
    """The machine's total memory in GiB."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


def free_memory() -> int:
    """Bytes that are not in use, not even by the page cache."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def processor() -> str:
    """The model name of the processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def commit() -> str:
    """The commit that is measured, with a + if the working tree has changes."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], capture_output=True, text=True
    )
    return described.stdout.strip() or "unknown"


def description() -> dict[str, str]:
    """Everything about the machine that a figure depends on."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "cores": str(os.cpu_count()),
        "processor": processor(),
        "memory": f"{memory_gib():.0f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": java.splitlines()[0] if java else "none",
        "load_average": Path("/proc/loadavg").read_text().split()[0],
    }
