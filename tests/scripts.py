"""Run example scripts and the code of pages inside this process, where programs are compiled already."""

import contextlib
import importlib
import io
import re
import runpy
import sys
import warnings
from pathlib import Path
from typing import Any

import jax

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


def names_of(page: str) -> dict[str, Any]:
    """Run the Python blocks of a page one after the other; return the names that they define."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL):
        exec(compile(block, page, "exec"), names)
    return names


def output_of(script: str, *arguments: str) -> str:
    """Return the output of `python examples/<script> <arguments>`."""
    path = EXAMPLES / script
    printed = io.StringIO()
    with (
        _beside(path.parent),
        _replaced_arguments([str(path), *arguments]),
        contextlib.redirect_stdout(printed),
        # as for users, for whom warnings are not errors
        warnings.catch_warnings(),
        jax.numpy_rank_promotion("allow"),
    ):
        warnings.simplefilter("ignore")
        runpy.run_path(str(path), run_name="__main__")
    return printed.getvalue()


def module_of(script: str):
    """Import a script as a module."""
    path = EXAMPLES / script
    with _beside(path.parent):
        return importlib.import_module(path.stem)


@contextlib.contextmanager
def _beside(folder: Path):
    """Import from a folder of examples, and forget its modules afterwards: folders share module names."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and EXAMPLES in Path(file).parents:
                del sys.modules[name]


@contextlib.contextmanager
def _replaced_arguments(arguments: list[str]):
    before = sys.argv
    sys.argv = arguments
    try:
        yield
    finally:
        sys.argv = before
