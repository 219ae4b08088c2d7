"""Walls and layers between the packages, lengths, and the pattern of abstract and final classes.

The lists of exceptions can only shrink: a test fails if one of their entries is no longer needed.
"""

import ast
import importlib
import inspect
import pkgutil
from collections import Counter
from graphlib import CycleError
from typing import ClassVar, get_origin

import architecture
import equinox as eqx
import pytest
from architecture import FILES, HEAD, PACKAGE, ROOT, graph, tree_of

import jaxsvm

TOP = {"plot", "sklearn", "command"}
BOTTOM = {"persistence", "fields", "hyperparameters", "linalg", "kernels", "losses"}
LONGEST_FILE = 400
LONGEST_FUNCTION = 60
PRIVATE_IMPORTS: set[str] = set()
LONG_FUNCTIONS: dict[str, int] = {}  # and their lines of code
USES_OF_HASATTR: set[str] = set()
# found from the values of a loss, unless a class has a closed form
DEFAULTS_OF_LOSSES = {
    "derivative", "curvature", "log_normalizer", "noise_variance", "sample_noise", "noise_cumulative",
    "optimality", "optimality_slopes", "laplace_curvature", "softened", "stationary_objective",
}  # fmt: skip
# a criterion is differentiated as a whole, unless it is made from another objective
DEFAULTS_OF_CRITERIA = {"traits", "prepare", "init", "observe", "compare", "problems"}


# ---------------------------------------------------------------------------- imports


def test_no_cycles():
    try:
        architecture.levels()
    except CycleError as error:
        pytest.fail(f"these import each other: {' <- '.join(error.args[1])}")


def test_no_private_import_across_packages():
    places = set(architecture.private_imports())
    assert {f"{p.split(':')[0]}: {p.split(': ')[1]}" for p in places} == PRIVATE_IMPORTS, places


def test_nothing_imports_the_top():
    for node, others in graph().items():
        if node not in TOP | {"__main__"}:
            assert not others & TOP, f"{node} imports {others & TOP}"
    assert not (graph()["plot"] | graph()["sklearn"]) & TOP


def test_nothing_but_the_top_imports_the_whole():
    for node, others in graph().items():
        assert HEAD not in others or node in TOP | {"__main__"}, f"{node} imports {HEAD}"


def test_the_top_uses_the_public_library():
    private = set(filter(architecture.is_private, graph()))
    for node in TOP:
        assert not graph()[node] & private, f"{node} imports {graph()[node] & private}"


def test_the_bottom_imports_the_bottom_only():
    for node in BOTTOM:
        above = {o for o in graph()[node] if not architecture.is_ground(o)} - BOTTOM
        assert not above, f"{node} imports {above}"


def test_support_packages_import_nothing_above_the_ground():
    for node in architecture.SUPPORT:
        assert architecture.is_ground(node), f"{node} imports {graph()[node]}"


def test_the_graph_sees_imports_of_every_form():
    """A wall must have no hole: the forms that an import can take."""
    folder = ("criteria",)
    forms = {
        "from .._fit import fit": [(("_fit",), "fit")],
        "from .. import losses, kernels": [((), "losses"), ((), "kernels")],
        "from ._base import x": [(("criteria", "_base"), "x")],
        "from ..sampling._chains import _x": [(("sampling", "_chains"), "_x")],
        "from jaxsvm.gp import Laplace": [(("gp",), "Laplace")],
        "import jaxsvm.sampling._chains as c": [(("sampling", "_chains"), None)],
        "import jax, numpy.linalg": [],
    }
    for form, expected in forms.items():
        statement = ast.parse(form).body[0]
        assert list(architecture._targets(statement, folder)) == expected, form
    assert {"criteria", "losses"} <= graph()["posteriors"] and "sklearn" in graph()["command"]


def test_contributing_shows_the_graph():
    drawn = architecture.DRAWN.search((ROOT / "CONTRIBUTING.md").read_text())
    assert drawn is not None and drawn[0] == architecture.drawing(), (
        "the import graph has changed; draw it again: python tests/architecture.py"
    )


def test_no_two_modules_have_the_same_name():
    names = Counter(file.stem for file in FILES if file.stem != "__init__")
    assert not [name for name, count in names.items() if count > 1]


# ---------------------------------------------------------------------------- lengths


def test_no_file_is_too_long():
    lengths = {str(f.relative_to(ROOT)): len(f.read_text().splitlines()) for f in FILES}
    assert not {name: n for name, n in lengths.items() if n > LONGEST_FILE}


def test_no_function_is_too_long():
    long = {name: n for name, n in architecture.functions() if n > LONGEST_FUNCTION}
    new = {name: n for name, n in long.items() if n > LONG_FUNCTIONS.get(name, LONGEST_FUNCTION)}
    assert not new, f"split these along their meaning: {new}"
    assert long.keys() == LONG_FUNCTIONS.keys(), "take these off the list, they are short now"


# ---------------------------------------------------------------------------- classes


def _modules():
    for module in pkgutil.walk_packages(jaxsvm.__path__, "jaxsvm."):
        if module.name != "jaxsvm.__main__":
            yield importlib.import_module(module.name)


CLASSES = {
    thing
    for module in _modules()
    for thing in vars(module).values()
    if inspect.isclass(thing)
    and issubclass(thing, eqx.Module)
    and thing.__module__.startswith("jaxsvm.")
}
ABSTRACT = {c for c in CLASSES if c.__name__.startswith("Abstract")}


def _fields(cls):
    """What a class itself declares as fields, other than abstract ones."""
    kinds = (eqx.AbstractVar, eqx.AbstractClassVar, ClassVar)
    for name, annotation in vars(cls).get("__annotations__", {}).items():
        if annotation not in kinds and get_origin(annotation) not in kinds:
            yield name


def test_classes_are_abstract_or_final():
    assert len(ABSTRACT) > 10 and len(CLASSES) > 80
    for cls in CLASSES:
        for parent in set(cls.__mro__[1:]) & CLASSES:
            assert parent in ABSTRACT, f"{cls.__name__} subclasses {parent.__name__}"


def test_abstract_classes_are_never_instantiated():
    names = {c.__name__ for c in ABSTRACT}
    for file in FILES:
        for part in ast.walk(tree_of(file)):
            if isinstance(part, ast.Call):
                called = getattr(part.func, "attr", getattr(part.func, "id", None))
                assert called not in names, f"{file.relative_to(ROOT)}:{part.lineno}: {called}()"


def test_abstract_classes_have_no_fields():
    assert not {c.__name__ for c in ABSTRACT if any(_fields(c))}


def test_no_concrete_method_is_overridden():
    for cls in CLASSES:
        for parent in set(cls.__mro__[1:]) & CLASSES:
            for name, member in vars(parent).items():
                concrete = inspect.isfunction(member) or isinstance(member, property)
                abstract = getattr(member, "__isabstractmethod__", False)
                default = (
                    parent.__module__ == "jaxsvm.losses._likelihood" and name in DEFAULTS_OF_LOSSES
                )
                default |= parent.__name__ == "AbstractCriterion" and name in DEFAULTS_OF_CRITERIA
                if concrete and not abstract and not default and not name.startswith("__"):
                    assert name not in vars(cls), f"{cls.__name__} overrides {name}"


def _calls(name):
    """The files of the package that call a function of that name."""
    for file in FILES:
        for part in ast.walk(tree_of(file)):
            if isinstance(part, ast.Call) and getattr(part.func, "id", None) == name:
                yield str(file.relative_to(PACKAGE))


def test_no_hasattr_and_no_super():
    assert set(_calls("hasattr")) == USES_OF_HASATTR
    assert not set(_calls("super"))
