"""Generates docs/spark_reference.md from the public functions' signatures and docstrings.

When it is run as a module, it writes the page; a test checks that the page is current. Sources are
parsed, not imported, so neither pyspark nor Java is needed.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

from ottla.spark_interop import _HOME

PACKAGE = Path(__file__).parent
PAGE = PACKAGE.parent.parent / "docs" / "spark_reference.md"
MORE = {
    "measure": "pipelines.quality",
    "write": "pipelines.transactional",
    "check": "history_rules",
    "run_available_now": "testing",
    "assert_frames_equal": "testing",
}
HEAD = """# spark_interop: reference

This page is made from docstrings by `python -m ottla.spark_interop.reference`. The guide is
[spark.md](spark.md).
"""


def page() -> str:
    """The whole page."""
    names = {name: home for name, home in (_HOME | MORE).items() if name != "PipelineError"}
    parts = [HEAD]
    for name in sorted(names, key=lambda n: (names[n], n)):
        module = names[name]
        parts.append(entry(name, module))
    return "\n".join(parts)


def entry(name: str, module: str) -> str:
    """One function or class: its signature and its docstring."""
    source = PACKAGE / (module.replace(".", "/") + ".py")
    tree = ast.parse(source.read_text())
    [node] = [
        n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == name
    ]
    text = textwrap.dedent(ast.get_docstring(node) or "")
    title = f"## {name}\n\n`ottla.spark_interop.{module}`\n"
    signature = ""
    if isinstance(node, ast.FunctionDef):
        arguments = ast.unparse(node.args)
        result = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
        flat = f"{name}({arguments}){result}"
        lines = re.sub(r", (?=\w+:|\*)", ",\n    ", flat) if len(flat) > 90 else flat
        signature = f"\n```python\n{lines}\n```\n"
    return f"{title}{signature}\n{text}\n"


if __name__ == "__main__":
    PAGE.write_text(page())
