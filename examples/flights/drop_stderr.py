"""Remove standard error from a notebook: Spark's start prints the machine's name."""

from __future__ import annotations

import json
import sys
from pathlib import Path

path = Path(sys.argv[1])
notebook = json.loads(path.read_text())
for cell in notebook["cells"]:
    if "outputs" in cell:
        cell["outputs"] = [out for out in cell["outputs"] if out.get("name") != "stderr"]
path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
