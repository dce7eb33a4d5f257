"""Executes the walk-through as a notebook, and prints the title of each block when it starts.

The notebook leaves out standard error, because Spark prints the machine's name there at its start.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent


def main() -> None:
    """Run the command."""
    notebook = jupytext.read(HERE / "walkthrough.py")
    titles = titles_of(notebook.cells)
    begun = time.monotonic()

    def tell(cell: Any, cell_index: int) -> None:
        if cell_index in titles:
            seconds = time.monotonic() - begun
            where = f"{list(titles).index(cell_index) + 1} of {len(titles)}"
            print(f"{seconds:4.0f} s  block {where}: {titles[cell_index]}", flush=True)

    client = NotebookClient(
        notebook, kernel_name="python3", resources={"metadata": {"path": str(HERE)}},
        on_cell_start=tell, record_timing=False,
    )
    client.execute()
    for cell in notebook.cells:
        if "outputs" in cell:
            cell["outputs"] = [out for out in cell["outputs"] if out.get("name") != "stderr"]
    notebook.metadata.pop("jupytext")
    nbformat.write(notebook, HERE / "walkthrough.ipynb")


def titles_of(cells: list[Any]) -> dict[int, str]:
    """The heading above each block of code, by the cell's number."""
    title, found = "", {}
    for number, cell in enumerate(cells):
        for line in cell.source.splitlines() if cell.cell_type == "markdown" else ():
            if line.startswith("#"):
                title = line.lstrip("# ")
        if cell.cell_type == "code":
            found[number] = title
    return found


if __name__ == "__main__":
    main()
