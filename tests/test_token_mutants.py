"""Mutants of single tokens: what is changed, what is left alone, and what a run reports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.simulation.mutants import ROOT
from tests.token_mutants import choose, mutated, nearest_first, sites


def mutants_of(text: str, cython: bool = False) -> set[str]:
    return {mutated(text, site) for site in sites(text, cython)}


def test_operators_constants_and_conditions_change() -> None:
    text = "def f(a):\n    if a < 3:\n        return a + 1\n    return not a\n"
    assert mutants_of(text) == {
        text.replace("<", "<="),
        text.replace("3", "4"),
        text.replace("+", "-"),
        text.replace("a + 1", "a + 2"),
        text.replace("not a", " a"),
        text.replace("a < 3", "not (a < 3)"),
    }


def test_a_statement_with_an_effect_is_removed_a_local_name_stays() -> None:
    text = "def f(a):\n    b = a.c\n    a.d = b\n    a.e(\n        b)\n"
    assert mutants_of(text) == {
        text.replace("a.d = b", "pass"), text.replace("a.e(\n        b)", "pass")}


def test_asserts_marks_log_lines_and_types_stay() -> None:
    text = (
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import a1\n\n\n"
        "def f(a: tuple[int, 'b | c', 3]) -> list[4]:\n"
        "    assert a == 1\n    reached('a < b')\n    log.info('%d', a[0] + 1)\n"
        "    return f'{a[0]}'\n"
    )
    assert mutants_of(text) == set()


def test_letters_of_several_bytes_before_a_place_do_not_move_it() -> None:
    text = "def f(a):\n    a['é…'].g(a['é'])\n"
    assert mutants_of(text) == {"def f(a):\n    pass\n"}


def test_declarations_and_casts_of_cython_stay() -> None:
    text = "cdef int f(int a) except -1:\n    x = <int>a\n    return a + 1\n"
    assert mutants_of(text, cython=True) == {
        text.replace("a + 1", "a - 1"), text.replace("a + 1", "a + 2")}


def test_the_same_seed_chooses_the_same_mutants() -> None:
    chosen = choose(ROOT, "groups", 40, 1, False)
    assert len({*chosen}) == 40
    assert chosen == choose(ROOT, "groups", 40, 1, False) != choose(ROOT, "groups", 40, 2, False)


def test_files_that_import_the_mutant_s_module_come_first(tmp_path: Path) -> None:
    imports = "from ottla.sums.total import total\n"
    for name, text in (("a", ""), ("b", imports), ("c", "from ottla.sums import other\n")):
        (tmp_path / "tests/sums" / name).mkdir(parents=True)
        (tmp_path / f"tests/sums/{name}/test_{name}.py").write_text(text)
        (tmp_path / f"tests/sums/{name}/helper.py").write_text(imports)
    files = [f"tests/sums/{name}/test_{name}.py" for name in "abc"]
    first, others = nearest_first(tmp_path, "ottla/sums/total.py", "tests/sums")
    assert (first, others) == (files[1:2], [files[0], files[2]])
    assert nearest_first(tmp_path, "ottla/sums/unused.py", "tests/sums") == [files]


def test_a_run_reports_what_the_folder_s_own_tests_find_and_miss(tmp_path: Path) -> None:
    for folder in ("ottla/sums", "ottla/testing", "tests/sums"):
        (tmp_path / folder).mkdir(parents=True)
    for package in ("ottla", "ottla/sums", "ottla/testing"):
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "ottla/testing/pytest_plugin.py").touch()       # pytest loads it here
    (tmp_path / "ottla/sums/total.py").write_text(
        "def total(a, b):\n    return a + b\n\n\ndef unused(a):\n    return a - 1\n")
    (tmp_path / "tests/sums/test_total.py").write_text(
        "from ottla.sums.total import total\n\n\ndef test_total():\n    assert total(1, 2) == 3\n")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.token_mutants", "sums", "--root", str(tmp_path),
         "--count", "3", "--least", "2"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 1, ran.stderr
    assert ran.stdout.count("\nfound (") + ran.stdout.startswith("found (") == 1
    assert "-    return a + b\n+    return a - b\n" in ran.stdout
    assert ran.stdout.endswith("sums: 1 of 3 mutants found\n")
