"""The structure of the package, read from its source: who imports whom, how long files and functions are.

`python tests/architecture.py` rewrites the import graph in CONTRIBUTING.md.
"""

import ast
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "jaxsvm"
FILES = sorted(PACKAGE.rglob("*.py"))
HEAD = "jaxsvm"  # the node of `jaxsvm/__init__.py`
SUPPORT = {"runtime", "validation", "numerics", "results"}  # what all others are built on


class Import(NamedTuple):
    """`name` of the module `source`, imported at `place`; modules are names below the package."""

    place: str
    importer: tuple[str, ...]
    source: tuple[str, ...]
    name: str | None


@cache
def tree_of(file: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(file.read_text())


def module_of(file: Path) -> tuple[str, ...]:
    """The names of a module below the package: `("criteria", "_span")`, and `("criteria",)` for a package."""
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


MODULES = {module_of(file) for file in FILES}


def node_of(module: tuple[str, ...]) -> str:
    """The node of the graph that a module belongs to: a package, a module beside them, or the head."""
    return module[0] if module else HEAD


def imports() -> Iterator[Import]:
    """Every import of a part of the package by another, those inside functions included."""
    for file in FILES:
        importer = module_of(file)
        folder = file.relative_to(PACKAGE).parts[:-1]
        for statement in ast.walk(tree_of(file)):
            if not isinstance(statement, ast.Import | ast.ImportFrom):
                continue
            place = f"{file.relative_to(ROOT)}:{statement.lineno}"
            for source, name in _targets(statement, folder):
                if name is not None and (*source, name) in MODULES:
                    source, name = (*source, name), None
                yield Import(place, importer, source, name)


def _targets(statement, folder) -> Iterator[tuple[tuple[str, ...], str | None]]:
    """The module and the name of each part of an import statement that is about this package."""
    for alias in statement.names:
        if isinstance(statement, ast.Import):
            head, *rest = alias.name.split(".")
            if head == PACKAGE.name:
                yield tuple(rest), None
            continue
        named = tuple(statement.module.split(".")) if statement.module else ()
        if statement.level:
            yield (*folder[: len(folder) + 1 - statement.level], *named), alias.name
        elif named[0] == PACKAGE.name:
            yield named[1:], alias.name


@cache
def graph() -> dict[str, set[str]]:
    """The nodes each node imports from."""
    edges: dict[str, set[str]] = {node_of(module): set() for module in MODULES}
    for found in imports():
        if node_of(found.importer) != node_of(found.source):
            edges[node_of(found.importer)].add(node_of(found.source))
    return edges


def is_private(name: str) -> bool:
    """Whether a name is private: `_x`, but not `__x__`."""
    return name.startswith("_") and not name.startswith("__")


def private_imports() -> Iterator[str]:
    """Imports of a private module or name of another package.

    The private modules beside the packages (`jaxsvm/_fit.py`) are private to the library, so all of it may
    import them, but not their private names.
    """
    for found in imports():
        if node_of(found.importer) == node_of(found.source):
            continue
        names = (*found.source[1:], *([found.name] if found.name else []))
        if any(is_private(name) for name in names):
            yield f"{found.place}: {'.'.join((*found.source, found.name or ''))}".rstrip(".")
    for file in FILES:  # `from .. import criteria`, then `criteria._base`
        for part in ast.walk(tree_of(file)):
            if (
                isinstance(part, ast.Attribute)
                and is_private(part.attr)
                and isinstance(part.value, ast.Name)
                and (part.value.id,) in MODULES
                and part.value.id != node_of(module_of(file))
            ):
                place = f"{file.relative_to(ROOT)}:{part.lineno}"
                yield f"{place}: {part.value.id}.{part.attr}"


def functions() -> Iterator[tuple[str, int]]:
    """Each function as `file:name`, and its lines of code without docstrings, comments and blank lines."""
    for file in FILES:
        lines = file.read_text().splitlines()
        for name, function in _named_functions(tree_of(file), ""):
            yield f"{file.relative_to(PACKAGE)}:{name}", _lines_of_code(function, lines)


def _named_functions(node, above):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            name = f"{above}{child.name}"
            if isinstance(child, ast.FunctionDef):
                yield name, child
            yield from _named_functions(child, f"{name}.")
        else:
            yield from _named_functions(child, above)


def _lines_of_code(function, lines):
    text: set[int] = set()
    for part in ast.walk(function):
        if isinstance(part, ast.FunctionDef) and ast.get_docstring(part, clean=False) is not None:
            text |= set(range(part.body[0].lineno, (part.body[0].end_lineno or 0) + 1))
    counted = (n for n in range(function.lineno, function.end_lineno + 1) if n not in text)
    return sum(bool(lines[n - 1].strip()) and lines[n - 1].lstrip()[0] != "#" for n in counted)


def drawing() -> str:
    """The import graph as text, the top first; the ground stands once, at the end.

    A node imports only from nodes in blocks below its own.
    """
    ground = sorted(node for node in graph() if is_ground(node))
    blocks = []
    for group in reversed(levels()):
        lines = []
        for node in sorted(set(group) - set(ground)):
            others = ", ".join(sorted(graph()[node] - set(ground))) or "(ground)"
            lines += textwrap.wrap(f"{node:<12} -> {others}", 100, subsequent_indent=" " * 16)
        blocks += ["\n".join(lines)] if lines else []
    last = textwrap.wrap(f"ground: {', '.join(ground)}", 100, subsequent_indent=" " * 8)
    return "\n\n".join([*blocks, "\n".join(last)])


def is_ground(node: str) -> bool:
    """Whether a node is for support, or a private module that imports nothing but ground."""
    return (node in SUPPORT or is_private(node)) and all(map(is_ground, graph()[node]))


def levels() -> list[list[str]]:
    """The nodes in levels: each one imports from lower levels only. The first is the lowest."""
    sorter = TopologicalSorter(graph())
    sorter.prepare()  # raises CycleError
    groups = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        groups.append(ready)
        sorter.done(*ready)
    return groups


# in CONTRIBUTING.md
DRAWN = re.compile(r"(?<=<!-- import graph -->\n```text\n).*?(?=\n```)", re.DOTALL)


if __name__ == "__main__":
    page = ROOT / "CONTRIBUTING.md"
    page.write_text(DRAWN.sub(lambda _: drawing(), page.read_text()))
