"""The generated reference is current, and says for each function which errors it raises or
returns."""

import re

import pytest

from ottla.spark_interop import reference

ENTRIES = dict(part.split("\n", 1) for part in reference.page().split("\n## ")[1:])


def test_the_reference_is_that_of_the_docstrings() -> None:
    assert reference.PAGE.read_text() == reference.page(), "run make generate"


@pytest.mark.parametrize("name", [name for name, text in ENTRIES.items() if "```python" in text])
def test_a_function_says_what_is_raised(name: str) -> None:
    words = ENTRIES[name].rpartition("```")[2]
    assert re.search(r"[Rr]aise[sd]|[Ee]rrors? (as|are)|Error\b", words), words
