"""The front end's libraries, as npm publishes them, and their download into `static/vendor`.

`python -m ottla.console.vendored` downloads them again with npm and writes the files. Package names
in imports become paths, because without a build step a browser finds only paths. References to
source maps are removed.
"""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent / "static" / "vendor"
FILES = {
    "preact@11.2.0": {
        "dist/preact.mjs": "preact.mjs", "hooks/dist/hooks.mjs": "hooks.mjs",
        "LICENSE": "preact.LICENSE",
    },
    "htm@3.1.1": {"dist/htm.mjs": "htm.mjs", "LICENSE": "htm.LICENSE"},
    "@preact/signals-core@1.14.5": {
        "dist/signals-core.mjs": "signals-core.mjs", "LICENSE": "signals-core.LICENSE",
    },
    "@preact/signals@2.11.4": {"dist/signals.mjs": "signals.mjs", "LICENSE": "signals.LICENSE"},
    "uplot@1.6.32": {
        "dist/uPlot.esm.js": "uplot.mjs", "dist/uPlot.min.css": "uplot.css",
        "LICENSE": "uplot.LICENSE",
    },
}
PATHS = {
    '"preact/hooks"': '"./hooks.mjs"', '"preact"': '"./preact.mjs"',
    '"@preact/signals-core"': '"./signals-core.mjs"',
}


def rewritten(text: str) -> str:
    """The module's text with paths in its imports, and without source maps."""
    for name, path in PATHS.items():
        text = text.replace(f"from{name}", f"from{path}").replace(f"from {name}", f"from {path}")
    lines = [line for line in text.splitlines() if not line.startswith("//# sourceMappingURL")]
    return "\n".join(lines) + "\n"


def fetch() -> None:
    """Download the packages and write their files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for package, files in FILES.items():
            packed = subprocess.run(
                ["npm", "pack", "--silent", package], cwd=folder, check=True, text=True,
                capture_output=True).stdout.split()[-1]
            with tarfile.open(Path(folder) / packed) as archive:
                for inside, name in files.items():
                    member = archive.extractfile(f"package/{inside}")
                    assert member is not None
                    text = member.read().decode()
                    (FOLDER / name).write_text(
                        rewritten(text) if name.endswith(".mjs") else text)


if __name__ == "__main__":
    fetch()
