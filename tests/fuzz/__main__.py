"""Runs the fuzzers in turn, one slice of time each, and reports what they found.

    python -m tests.fuzz --minutes 60 [--jobs 2] [TARGET …]

Corpora and findings are kept in build/fuzz/. A finding is a file; with
`OTTLA_FUZZ_INPUT=TARGET:FILE`, `test_fuzzers.py` replays its bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
INSTRUMENTED = ROOT / "build" / "instrumented"
FOLDER = ROOT / "build" / "fuzz"
SLICE_SECONDS_MAX = 300
INPUT_SECONDS_MAX = 60
"""An input that takes longer is reported as a hang. With a shorter time, a machine that is busy
with other things would cause false reports."""
MEMORY_MB_MAX = 3000
RUNS = re.compile(
    r"Done (\d+) runs|stat::number_of_executed_units:\s*(\d+)|^#(\d+)\s", re.MULTILINE
)


def environment() -> dict[str, str]:
    """The environment of a worker, with the sanitizers' runtime and the folder of the instrumented
    modules and the tests."""
    spec = find_spec("asan_with_fuzzer") or find_spec("atheris")
    assert spec is not None and spec.origin is not None, "make fuzz installs atheris"
    packages = next(path for path in Path(spec.origin).parents if path.name == "site-packages")
    return {
        **os.environ,
        "LD_PRELOAD": str(packages / "asan_with_fuzzer.so"),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:symbolize=0",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "PYTHONMALLOC": "malloc",       # so that each object has a red zone of its own
        "PYTHONPATH": str(INSTRUMENTED),
    }


def plant(name: str) -> Path:
    """Write the target's seeds into its corpus; returns the folder of the corpus."""
    corpus = FOLDER / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in TARGETS[name].seeds():
        (corpus / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
    return corpus


def fuzz(name: str, seconds: int) -> tuple[int, bool]:
    """Run one target for so many seconds; returns its number of runs, and whether it found
    nothing."""
    findings = FOLDER / "findings" / name
    findings.mkdir(parents=True, exist_ok=True)
    log = FOLDER / f"{name}.log"
    with log.open("wb") as output:
        ended = subprocess.run(
            [
                sys.executable, "-m", "tests.fuzz.worker", name, str(FOLDER / "corpus" / name),
                f"-max_total_time={seconds}", f"-timeout={INPUT_SECONDS_MAX}",
                f"-max_len={TARGETS[name].size_max}", f"-rss_limit_mb={MEMORY_MB_MAX}",
                f"-artifact_prefix={findings}/", "-print_final_stats=1",
            ],
            cwd=INSTRUMENTED, env=environment(), stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    text = log.read_text(errors="replace")
    if ended.returncode:
        (findings / f"{time.time_ns()}.txt").write_text(text[-20000:])
    counts = [int(next(filter(None, found))) for found in RUNS.findall(text)]
    return max(counts, default=0), ended.returncode == 0


def main() -> None:
    """Run the slices in turn until the time is over. The exit status is 1 if there was a
    finding."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], metavar="TARGET")
    chosen = parser.parse_args()
    names = chosen.targets or list(TARGETS)
    for name in names:
        plant(name)
    seconds = chosen.minutes * 60 * chosen.jobs
    rounds = max(1, round(seconds / len(names) / SLICE_SECONDS_MAX))
    each = max(1, int(seconds / len(names) / rounds))
    runs, broken, begun = dict.fromkeys(names, 0), dict.fromkeys(names, 0), time.monotonic()

    def slice_of(name: str) -> None:
        done, well = fuzz(name, each)
        runs[name] += done
        broken[name] += not well
        print(f"{name}: {done} runs in {each} s{'' if well else ', A FINDING'}", flush=True)

    with ThreadPoolExecutor(chosen.jobs) as pool:
        list(pool.map(slice_of, names * rounds))
    for name in names:
        print(f"{name:16} {runs[name]:>12,} runs {broken[name]:>4} findings")
    print(f"{sum(runs.values()):,} runs in {(time.monotonic() - begun) / 60:.1f} minutes,"
          f" {sum(broken.values())} findings in {FOLDER / 'findings'}")
    sys.exit(any(broken.values()))


if __name__ == "__main__":
    main()
