"""One fuzzer, in a process whose extension modules are instrumented: `make fuzz` starts it.

    python -m tests.fuzz.worker TARGET [libFuzzer's options and corpora]
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["ottla"], enable_loader_override=False):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Run until libFuzzer's options end the run, or until a finding."""
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, TARGETS[name].run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
