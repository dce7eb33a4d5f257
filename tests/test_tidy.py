"""The house rules: sizes, the direction of imports, where IO may happen, no sleeping in tests."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Callable, Iterable
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from tests.structure import ROOT, classes_of, cycles, functions_of, modules, rooms, text_of, tree_of

FOLDERS = (
    "wire", "client", "broker", "log", "replication", "groups", "tools", "spark_interop",
)  # fmt: skip
CODE = {".py", ".pyx", ".pxd", ".pyi", ".h"}
GENERATED = {"ottla/wire/messages.pyi"}
LINE_LENGTH = 100
FUNCTION_LENGTH = 70
CLASS_LENGTH = 400
PARAMETERS = 9

# The allowed imports: wire <- log <- replication, groups <- broker <- tools, wire <- client.
ALLOWED = {
    "wire": {"wire"},
    "log": {"wire", "log"},
    "replication": {"wire", "log", "replication"},
    "groups": {"wire", "log", "groups"},
    "client": {"wire", "client"},
    "broker": {"wire", "client", "log", "replication", "groups", "broker"},
    "tools": {"wire", "client", "log", "replication", "groups", "broker", "tools"},
    "testing": {
        "wire", "client", "log", "replication", "groups", "broker", "tools", "testing",
    },
    "console": {"wire", "client", "tools", "console"},
    "spark_interop": {"wire", "client", "spark_interop"},
}
CORE = ("wire", "log", "replication", "groups")
OUTSIDE_WORLD = {
    "asyncio", "socket", "selectors", "threading", "time", "random", "os", "datetime", "secrets",
    "uuid", "subprocess", "ssl", "signal",
}
EDGES = {"ottla/log/files/disk.pyx", "ottla/log/files/clock.pyx", "ottla/replication/zookeeper.py"}


@cache
def all_tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    paths = [ROOT / name for name in listed if Path(name).suffix in CODE]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def tracked(*suffixes: str) -> list[Path]:
    return [path for path in all_tracked() if path.suffix in suffixes]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def below(folder: str, *suffixes: str) -> list[Path]:
    return [path for path in tracked(*suffixes) if name_of(path).startswith(folder)]


def of_each(paths: Iterable[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Makes one test of a rule that every file has to keep. If each file had a test of its own for
    each rule, half of all tests would be such tests, and they would take ten times as long."""
    files = list(paths)

    def test_of(rule: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            wrong = []
            for path in files:
                try:
                    rule(path)
                except AssertionError as broken:
                    wrong.append(f"{name_of(path)}: {broken}")
            assert not wrong, "\n".join(wrong)

        return test

    return test_of


@cache
def imports_of(path: Path) -> set[str]:
    """Modules that a Python or Cython file imports, by their dotted names."""
    pattern = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import|c?import\s+([\w.]+))", re.MULTILINE)
    text = re.sub(r'"""[\s\S]*?"""', "", text_of(path))
    return {first or second for first, second in pattern.findall(text)}


BUILDS_ON_IT = {("ottla.wire.batch", "ottla.wire.records")}
"""Imports against the usual direction: BatchView.records() calls a module that imports `batch`."""


def modules_that_run() -> dict[str, set[str]]:
    """Each module of the package with the modules that it imports, without BUILDS_ON_IT."""
    return {
        name: {each for each in imported if (name, each) not in BUILDS_ON_IT}
        for name, imported in modules(ROOT).items()
    }


def test_imports_have_no_circle() -> None:
    running = modules_that_run()
    assert "ottla.broker.first_steps" in running["ottla.broker.main"], "imports in functions count"
    TopologicalSorter(running).prepare()        # raises CycleError with the circle


ROOMS_IN_A_CYCLE = {
    "groups": [["classic", "consumer"]],
    "broker": [["audit", "security"], ["dispatch", "peers"]],
    "tools": [["cli", "command", "commands", "kafka_names"]],
}
"""Rooms that import each other today, by folder: sub-folders, or modules directly in the folder."""
FLOORS = {"log": ({"files"}, {"partition"}, {"compaction", "storage"}, {"scrub"})}
"""The rooms of a folder from the lowest floor to the highest. A room imports only rooms of lower
floors."""


def test_the_rooms_of_a_folder_have_no_circle() -> None:
    running = modules_that_run()
    for folder in ALLOWED:
        known = ROOMS_IN_A_CYCLE.get(folder, [])
        new = [
            found for found in cycles(rooms(f"ottla.{folder}", running))
            if not any(set(found) <= set(each) for each in known)
        ]
        assert not new, f"sub-folders of {folder} import each other; move what both need"


def test_arrows_between_rooms_lead_downward_those_for_types_too() -> None:
    named = modules(ROOT, for_types=True)
    for folder, floors in FLOORS.items():
        level = {room: at for at, floor in enumerate(floors) for room in floor}
        arrows = rooms(f"ottla.{folder}", named)
        assert arrows.keys() == level.keys(), f"the rooms of {folder}: bring FLOORS up to date"
        wrong = [(a, b) for a, to in arrows.items() for b in to if level[b] >= level[a]]
        assert not wrong, f"{folder}: only a higher floor of FLOORS imports a lower one"


@of_each(tracked(*CODE))
def test_lines_have_at_most_100_columns(path: Path) -> None:
    if name_of(path) in GENERATED:
        return
    lines = text_of(path).splitlines()
    long = [number for number, line in enumerate(lines, 1) if len(line) > LINE_LENGTH]
    assert not long, f"lines longer than {LINE_LENGTH}: {long}"


MANY_PARAMETERS = {
    "ottla/broker/settings/declaration.py", "ottla/tools/check_segment.py",
    "ottla/wire/batch.pyx", "ottla/wire/records.pyx", "ottla/spark_interop/topics.py",
    *(f"ottla/spark_interop/pipelines/{name}.py" for name in (
        "archive", "dead_letter", "mirror", "quality", "replay", "slice", "windows",
    )),
}
"""Files with a function above PARAMETERS today. The aim is an empty set."""


@of_each(tracked(".py", ".pyx"))
def test_functions_have_at_most_70_lines(path: Path) -> None:
    assert not [each for each in functions_of(path) if each.lines > FUNCTION_LENGTH]


@of_each(below("ottla/", ".py", ".pyx"))
def test_functions_have_at_most_nine_parameters(path: Path) -> None:
    many = [each for each in functions_of(path) if each.parameters > PARAMETERS]
    assert not many or name_of(path) in MANY_PARAMETERS, "group some of them in an object"


@of_each(below("ottla/", ".py", ".pyx"))
def test_classes_have_at_most_400_lines(path: Path) -> None:
    """A class has one role. A class without methods is a table of declarations, and may have any
    length. More than 600 lines in a file hint at two ideas, but no rule forbids them."""
    assert not [each for each in classes_of(path) if each.methods and each.lines > CLASS_LENGTH]


@of_each(below("ottla/", *CODE))
def test_imports_point_one_way(path: Path) -> None:
    parts = path.relative_to(ROOT).parts
    if len(parts) < 3:
        return
    wrong = {
        module
        for module in imports_of(path)
        if module.startswith("ottla.") and module.split(".")[1] not in ALLOWED[parts[1]]
    }
    assert not wrong, f"{parts[1]} imports {', '.join(sorted(ALLOWED[parts[1]]))} only"


@of_each(below("ottla/", ".py", ".pyx"))
def test_core_folders_take_clock_disk_network_and_chance_as_arguments(path: Path) -> None:
    if path.relative_to(ROOT).parts[1] not in CORE or name_of(path) in EDGES:
        return
    used = {module.split(".")[0] for module in imports_of(path)} & OUTSIDE_WORLD
    assert not used, "take a clock, a disk or a function as an argument instead"


# Without one of these headers a Cython module cannot call a C function that uses a clock, a socket
# or a file.
C_OUTSIDE_WORLD = re.compile(
    r"^.*(?:\bc?import\b.*\b(?:libc|posix)\.(?:time|stdio|unistd|fcntl|select|signal)\b"
    r"|\b(?:libc|posix)\.(?:time|stdio|unistd|fcntl|select|signal)\s+cimport\b"
    r"|(?:#include\s*<|from \")(?:time|stdio|unistd|fcntl|poll|signal|pthread|netdb"
    r"|sys/(?:socket|time|epoll|stat|sendfile|random|uio))\.h).*$",
    re.MULTILINE,
)


@of_each(path for folder in CORE for path in below(f"ottla/{folder}/", ".pyx", ".pxd", ".h"))
def test_core_folders_call_no_clock_socket_or_file_in_c_either(path: Path) -> None:
    if name_of(path.with_suffix(".pyx")) not in EDGES:
        assert not C_OUTSIDE_WORLD.findall(text_of(path)), "take it as an argument instead"


@of_each(tracked(".pyx", ".pxd"))
def test_a_flag_of_c_is_0_or_1(path: Path) -> None:
    """`cdef bint b = attributes & FLAG` keeps the bit's value, such as 8, so compare with 0."""
    assert not re.findall(r"^.*\bbint\b.*=[^=\n]*&(?!.*!= 0).*$", text_of(path), re.MULTILINE)


@of_each(path for folder in (*CORE, "broker") for path in below(f"ottla/{folder}/", ".py"))
def test_a_pattern_from_outside_is_compiled_by_re2(path: Path) -> None:
    """Python's `re` gets only our own patterns, because it backtracks; see
    ottla/wire/patterns.py."""
    for node in ast.walk(tree_of(path)):
        if not isinstance(node, ast.Call) or not ast.unparse(node.func).startswith("re."):
            continue
        names = {each.id for each in ast.walk(node.args[0]) if isinstance(each, ast.Name)}
        assert all(map(str.isupper, names)), f"line {node.lineno}: use wire/patterns.compiled"


def test_the_rules_name_only_files_that_exist() -> None:
    named = EDGES | GENERATED | MANY_PARAMETERS
    assert not [name for name in named if not (ROOT / name).is_file()]
    assert all((ROOT / "ottla" / folder).is_dir() for folder in {*FOLDERS, *ALLOWED, *CORE})


@of_each(tracked(*CODE))
def test_modules_are_imported_through_the_package_never_through_the_links(path: Path) -> None:
    wrong = {module for module in imports_of(path) if module.split(".")[0] in FOLDERS}
    assert not wrong, "import ottla.wire.…, not wire.…"


@of_each(below("tests/", ".py"))
def test_tests_do_not_sleep(path: Path) -> None:
    # In the simulation the world controls time: asyncio's sleep takes no real time.
    modules = "time" if "simulation" in path.parts else "time|asyncio"
    slept = re.findall(rf"\b(?:{modules})\.sleep\(.*", text_of(path).replace(r"\.sleep", ""))
    assert not slept, "inject the clock (tests/fakes.py), or wait with tests.waiting.until"


@of_each(below("ottla/", *CODE))
def test_every_file_opens_with_what_it_is_for(path: Path) -> None:
    if path.suffix == ".pyi" or path.stat().st_size == 0:
        return
    lines = [line for line in text_of(path).splitlines() if line.strip()]
    opening = [line for line in lines[:3] if not line.startswith("# cython:")]
    starts = ('"""', 'r"""', "#", "/*", "//")
    assert opening[0].startswith(starts), "begin with a docstring: what the file is for"


@of_each(
    path for path in below("ottla/", ".py", ".pyx") if len(path.relative_to(ROOT).parts) > 2
)
def test_a_readme_lists_every_module_of_its_folder(path: Path) -> None:
    if path.stem in ("__init__", "__main__"):
        return
    folder = next(each for each in path.parents if (each / "README.md").exists())
    assert folder != ROOT
    text = (folder / "README.md").read_text()
    assert re.search(rf"\b{path.stem}\b", text), f"list it in {name_of(folder)}/README.md"


@of_each(tracked(".pyx"))
def test_every_compiled_module_has_a_stub(path: Path) -> None:
    assert path.with_suffix(".pyi").exists(), f"write {path.stem}.pyi beside it, for mypy"


@of_each(tracked(".pyx", ".pxd"))
def test_every_cimported_module_is_one_that_cython_rebuilds_for(path: Path) -> None:
    # Cython sees a dependency in `cimport a.b as c`, but not in `from a cimport b`. So with
    # `from a cimport b`, a change of b.pxd would leave modules with the old layout, which then
    # cannot be imported.
    pattern = re.compile(r"^from ([\w.]+) cimport (\([^)]*\)|.*)", re.MULTILINE)
    modules = {
        f"{package}.{name.split()[0]}"
        for package, names in pattern.findall(text_of(path))
        for name in names.strip("()").split(",")
        if name.strip()
    }
    found = [m for m in modules if (ROOT / (m.replace(".", "/") + ".pxd")).exists()]
    assert not found, "cimport names from the module, or `cimport package.module as module`"


@of_each(below("ottla/", ".py", ".pyx"))
def test_private_fields_are_assigned_by_their_own_object_only(path: Path) -> None:
    pattern = r"(?<![\w.])(?!(?:self|cls)\._)[\w.]+(?:\[[^\]]*\])?\._\w+\s*(?:=(?!=)|[-+|]=)"
    assert not re.findall(pattern, text_of(path)), "give that object a method"


NOUNS = {"housekeeping", "listing", "loading", "routing", "testing", "wording"}


def test_module_names_are_nouns_and_differ_by_more_than_an_ending() -> None:
    stems = {path.with_suffix("") for path in below("ottla/", ".py", ".pyx")}
    verbs = {stem.name for stem in stems if stem.name.endswith("ing")} - NOUNS
    assert not verbs, "name a module by a noun; if this is one, add it to NOUNS"
    near = {
        (name_of(stem), ending)
        for stem in stems
        for ending in ("s", "ed", "er", "ing", "ment", "ship", "or")
        if stem.with_name(stem.name + ending) in stems
    }
    assert not near, "two modules of a folder differ by this ending only"


REAL_TIME = {"tests/broker/upkeep/test_full_disk.py", "tests/waiting.py", "tests/test_tidy.py"}
"""Files that may let real time pass, besides the tests in folders `crashes`: the test of a full
disk, the module that defines `pause`, and this file, which has the patterns."""
PRIVATE_OF_OTHERS = {"tests/wire/test_kafka_python.py", "tests/simulation/loop.py"}
"""Files that use private names of kafka-python or asyncio."""


@of_each([*below("tests/", ".py"), *below("compat_tests/", ".py")])
def test_test_files_import_no_other_test_file(path: Path) -> None:
    wrong = {m for m in imports_of(path) if m.rpartition(".")[2].startswith("test_")}
    wrong = {m for m in wrong if m.startswith(("tests.", "compat_tests."))}
    assert not wrong, "move what both need to a module whose name does not begin with test_"


@of_each(below("tests/", ".py"))
def test_tests_wait_with_a_deadline_and_pause_only_beside_processes(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.While):
            assert not isinstance(node.body[0], ast.Pass), f"line {node.lineno}: use waiting.until"
    text = text_of(path)
    assert not re.search(r"threading\.Event\(\)\.wait\(", text)
    if path.parent.name != "crashes" and name_of(path) not in REAL_TIME:
        assert "select([], [], []" not in text
        assert not re.search(r"from tests.waiting import .*\bpause\b", text)


@of_each(path for path in below("tests/", ".py") if name_of(path) not in PRIVATE_OF_OTHERS)
def test_tests_use_no_private_names_of_others(path: Path) -> None:
    public = {
        "_replace", "_asdict", "_fields", "_field_defaults", "_make", "_exit", "_PARTITION_EOF",
        "_FATAL",
    }
    wrong = [
        f"line {node.lineno}: {node.attr}"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in public
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
        and not (isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()")
    ]
    assert not wrong


PURE_CALLS = {
    "abs", "all", "any", "base_offset", "bool", "callable", "counted", "endswith", "exists",
    "frozenset", "get", "hasattr", "int", "is_absolute", "isdigit", "isdisjoint", "isinstance",
    "issubclass", "items", "keys", "last_offset_delta", "len", "max", "min", "range",
    "record_count", "set", "sorted", "startswith", "str", "sum", "total_size", "tuple", "type",
    "values",
}
"""Functions that an assert may call. `python -O` skips asserts, so asserts must have no effect."""


def asserts_of(path: Path) -> Iterable[tuple[int, ast.AST]]:
    """The asserts of a file with their lines. ast cannot parse Cython files, so their asserts are
    parsed one by one, without casts."""
    if path.suffix == ".py":
        yield from (
            (node.lineno, node) for node in ast.walk(tree_of(path)) if isinstance(node, ast.Assert)
        )
        return
    lines = text_of(path).splitlines()
    for number, line in enumerate(lines):
        if re.match(r"\s*assert\b", line):
            yield number + 1, parsed_statement(lines[number:])


def parsed_statement(lines: list[str]) -> ast.AST:
    """The statement that begins in the first of these lines of Cython."""
    for end in range(1, len(lines) + 1):
        text = re.sub(r"<[\w ]+\*?>", "", "\n".join(lines[:end])).strip()
        try:
            return ast.parse(text)
        except SyntaxError:
            continue
    raise AssertionError(f"not understood: {lines[0].strip()}")


@of_each(below("ottla/", ".py", ".pyx"))
def test_no_assert_has_an_effect(path: Path) -> None:
    for number, statement in asserts_of(path):
        for node in ast.walk(statement):
            changes = isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom)
            if isinstance(node, ast.Call):
                called = node.func
                name = called.attr if isinstance(called, ast.Attribute) else ast.unparse(called)
                changes = name not in PURE_CALLS
            assert not changes, f"line {number}: {ast.unparse(node)} may have an effect"
