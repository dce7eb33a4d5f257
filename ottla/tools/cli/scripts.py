"""`ottla install-kafka-scripts DIR`: Kafka's own tool names, with and without `.sh`."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from ottla.client.errors import ClientError
from ottla.tools.cli.output import done
from ottla.tools.commands import table
from ottla.tools.kafka_names.main import NOT_YET
from ottla.wire.wording import counted

MARK = "ottla.tools.kafka_names.main"


def text_of(name: str) -> str:
    """The script of a tool, which runs with the current Python."""
    return (
        f'#!{sys.executable}\nimport sys\n\nfrom {MARK} import main\n\nsys.exit(main("{name}"))\n'
    )


def install(options: Namespace) -> None:
    folder = Path(options.dir)
    if folder.exists() and not folder.is_dir():
        raise ClientError(f"{folder}: not a directory")
    names = [*table.read("kafka"), *NOT_YET]
    targets = [folder / (name + end) for name in names for end in ("", ".sh")]
    strange = [
        path for path in targets if path.exists() and MARK not in path.read_text(errors="replace")
    ]
    if strange and not options.force:
        raise ClientError(
            f"{strange[0]} was not written by this command; to replace the file, use --force")
    if options.dry_run:
        done(options, f"written {counted(len(targets), 'script')} into {folder}")
        return
    folder.mkdir(parents=True, exist_ok=True)
    for path in targets:
        path.write_text(text_of(path.name.removesuffix(".sh")))
        path.chmod(0o755)
    print(f"wrote {counted(len(targets), 'script')} into {folder}", file=sys.stderr)
