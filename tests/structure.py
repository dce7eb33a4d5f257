"""The structure of the package in figures: rooms and the arrows between them, cycles, sizes.

    python -m tests.structure [--root DIRECTORY] [FOLDER ...]

A room is a sub-folder of a folder such as `ottla/log`, or a module that lies directly in the
folder. An arrow leads from a room to another room whose modules it imports, also within functions.
`tests/test_tidy.py` has rules about the same figures.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
Arrows = dict[str, set[str]]

IMPORT = re.compile(
    r"^[ \t]*(?:from\s+([\w.]+)\s+c?import\s+(\([^)]*\)|[^\n#]*)|c?import\s+([\w.]+))", re.MULTILINE
)
FOR_TYPES = re.compile(r"^if TYPE_CHECKING:\n(?:(?:[ \t]+.*)?\n)+", re.MULTILINE)
DOCSTRING = re.compile(r'"""[\s\S]*?"""')
CYTHON_FUNCTION = re.compile(r"^(\s*)(?:async\s+)?(?:def|cdef|cpdef)\s(?!class)[^=(]*?(\w+)\(")
CYTHON_CLASS = re.compile(r"^(\s*)(?:cdef\s+)?class\s+(\w+)")


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


def sources(root: Path, *suffixes: str) -> list[Path]:
    """The source files of the package that end in one of the suffixes."""
    return sorted(path for suffix in suffixes for path in (root / "ottla").rglob(f"*{suffix}"))


def module_name(root: Path, path: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def modules(root: Path, for_types: bool = False) -> Arrows:
    """Each module of the package with the modules that it imports, also within functions. Imports
    for the type checker alone are included only with `for_types`."""
    found: Arrows = {}
    for path in sources(root, ".py", ".pyx", ".pxd"):
        text = DOCSTRING.sub("", text_of(path))
        known = found.setdefault(module_name(root, path), set())
        for source, names, module in IMPORT.findall(text if for_types else FOR_TYPES.sub("", text)):
            # `from ottla.log.files import flush` imports a module, too.
            known |= {source or module, *(f"{source}.{n}" for n in re.findall(r"\w+", names))}
    packages = {module_name(root, path) for path in sources(root, "__init__.py")}
    return {
        name: {each for each in imported & found.keys() if each not in packages} - {name}
        for name, imported in found.items() if name not in packages
    }


def rooms(folder: str, arrows: Arrows) -> Arrows:
    """The rooms of a folder, such as `ottla.log`, with the other rooms that each room imports."""
    def room(name: str) -> str:
        return name[len(folder) + 1:].partition(".")[0]

    inside = [name for name in arrows if name.startswith(f"{folder}.")]
    found: Arrows = {room(name): set() for name in inside}
    for name in inside:
        found[room(name)] |= {room(each) for each in arrows[name] if each in inside} - {room(name)}
    return found


def cycles(arrows: Arrows) -> list[list[str]]:
    """The groups of names that all reach each other (Tarjan's algorithm)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        stack.append(name)
        for each in arrows[name]:
            if each not in number:
                visit(each)
            if each in stack:
                lowest[name] = min(lowest[name], lowest[each])
        if lowest[name] == number[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in arrows:
        if name not in number:
            visit(name)
    return found


def upward(arrows: Arrows) -> list[tuple[str, str]]:
    """A small set of arrows whose removal leaves no cycle (heuristic of Eades, Lin and Smyth). The
    rooms are ordered, mostly by their surplus of outgoing over incoming arrows, the largest first;
    the returned arrows lead against this order."""
    left, above, below = {name: set(to) for name, to in arrows.items()}, list[str](), list[str]()
    while left:
        needed = {each for to in left.values() for each in to}
        needs_none = [name for name in left if not left[name]]
        if needs_none:
            below.append(needs_none[0])
        else:
            above.append(max(left, key=lambda name: (
                name not in needed, len(left[name]) - sum(name in to for to in left.values()), name
            )))
        taken = (below if needs_none else above)[-1]
        left = {name: to - {taken} for name, to in left.items() if name != taken}
    place = {name: at for at, name in enumerate([*above, *reversed(below)])}
    return [(name, each) for name, to in arrows.items() for each in to if place[each] < place[name]]


class Function(NamedTuple):
    name: str
    lines: int
    parameters: int


class Class(NamedTuple):
    name: str
    lines: int
    methods: int


def block_end(lines: list[str], first: int, indent: int) -> int:
    """The index of the line after the Cython block that begins in line `first`."""
    last = first
    for number in range(first + 1, len(lines)):
        text = lines[number]
        if not text.strip():
            continue
        if len(text) - len(text.lstrip()) <= indent and text.strip()[0] not in ")]":
            break
        last = number
    return last + 1


def parameters_in(lines: list[str], first: int) -> int:
    """How many parameters the Cython function in line `first` has, without `self` and `cls`."""
    text, depth, count, filled = "\n".join(lines[first:first + 40]), 0, 0, False
    for character in re.sub(r"#.*", "", text[text.index("("):]):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0:
            break
        if character == "," and depth == 1:
            count, filled = count + filled, False
        elif depth > 1 or not (character.isspace() or character in "(*/"):
            filled = True
    own = re.match(r"[^(]*\(\s*(?:\w+\s+)?(?:self|cls)\b", text) is not None
    return count + filled - own


def functions_of(path: Path) -> list[Function]:
    """The functions of a file. In Cython files they are found by indentation, because ast cannot
    parse Cython."""
    if path.suffix == ".py":
        return [
            Function(node.name, (node.end_lineno or 0) - node.lineno + 1, len(named))
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for named in [[
                each for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                if each.arg not in ("self", "cls")
            ]]
        ]
    lines = text_of(path).splitlines()
    return [
        Function(match[2], block_end(lines, at, len(match[1])) - at, parameters_in(lines, at))
        for at, line in enumerate(lines) if (match := CYTHON_FUNCTION.match(line))
    ]


def classes_of(path: Path) -> list[Class]:
    """The classes of a file, with the number of their methods."""
    if path.suffix == ".py":
        return [
            Class(node.name, (node.end_lineno or 0) - node.lineno + 1, sum(
                isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body))
            for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef)
        ]
    lines, found = text_of(path).splitlines(), []
    for at, line in enumerate(lines):
        if match := CYTHON_CLASS.match(line):
            end = block_end(lines, at, len(match[1]))
            methods = sum(1 for each in lines[at + 1:end] if CYTHON_FUNCTION.match(each))
            found.append(Class(match[2], end - at, methods))
    return found


def asserts_in(path: Path) -> int:
    return len(re.findall(r"^\s*assert\b", text_of(path), re.MULTILINE))


def figures(root: Path, folder: str) -> Iterator[tuple[str, object]]:
    """The figures of one folder, such as `ottla.log`, each with its name."""
    running, named = modules(root), modules(root, for_types=True)
    inside = {
        name: {each for each in to if each.startswith(f"{folder}.")}
        for name, to in named.items() if name.startswith(f"{folder}.")
    }
    plan = rooms(folder, running)
    yield "rooms", len(plan)
    yield "arrows between rooms", sum(map(len, plan.values()))
    yield "upward arrows", len(upward(plan))
    yield "rooms in cycles, at run time", sum(map(len, cycles(plan)))
    yield "rooms in cycles, with types", sum(map(len, cycles(rooms(folder, named))))
    yield "modules in cycles, with types", sum(map(len, cycles(inside)))
    at = root / folder.replace(".", "/")
    paths = [path for path in sources(root, ".py", ".pyx") if path.is_relative_to(at)]
    functions = [each for path in paths for each in functions_of(path)]
    classes = [each for path in paths for each in classes_of(path)]
    yield "modules", sum(path.name != "__init__.py" for path in paths)
    yield "classes", len(classes)
    yield "classes above 400 lines", sum(each.lines > 400 for each in classes)
    yield "functions", len(functions)
    yield "parameters", sum(each.parameters for each in functions)
    yield "functions above nine parameters", sum(each.parameters > 9 for each in functions)
    yield "asserts", sum(map(asserts_in, paths))
    headers = [path for path in sources(root, ".pxd") if path.is_relative_to(at)]
    yield "files above 600 lines", sum(len(text_of(path).splitlines()) > 600 for path in paths)
    yield "lines", sum(len(text_of(path).splitlines()) for path in (*paths, *headers))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--root", type=Path, default=ROOT, help="a checkout of the project")
    parser.add_argument("folders", nargs="*", default=["wire", "log", "replication", "groups",
                                                       "broker", "client", "tools"])
    options = parser.parse_args()
    table = {folder: dict(figures(options.root, f"ottla.{folder}")) for folder in options.folders}
    width = max(map(len, next(iter(table.values()))))
    print(" " * width, *(f"{folder:>12}" for folder in table))
    for name in next(iter(table.values())):
        print(f"{name:<{width}}", *(f"{figure[name]:>12}" for figure in table.values()))


if __name__ == "__main__":
    main()
