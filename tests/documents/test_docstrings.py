"""Docstrings of everything public: complete, and their examples run.

The rules. Whatever can be reached by public names has a summary. Functions and methods name each of their
parameters under **Arguments:** and say under **Returns:** what comes back; a method that fills in one of its
parents' may leave both to the parent. `jaxsvm.sklearn` has NumPy's sections in their place.
A class names the arguments or fields that its constructor takes, or says that they are as for another
class. Kernels, losses and criteria have a formula or the number of an equation. Main entry points have an
example; all examples run one after the other, as in one session, which begins with that of `KernelMachine`.
"""

import doctest
import enum
import importlib
import importlib.util
import inspect
import pkgutil
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxsvm as jsvm

OPTIONAL = {"sklearn": "sklearn", "plot": "matplotlib"}  # subpackage -> what it needs


def public_modules():
    """The package and its public modules, at any depth."""
    found = [jsvm]
    for parent in found:
        for info in pkgutil.iter_modules(getattr(parent, "__path__", ())):
            # a module behind a function of the same name is not public, as `jaxsvm.fit`
            hidden = callable(getattr(parent, info.name, None))
            if info.name.startswith("_") or hidden:
                continue
            needed = OPTIONAL.get(info.name)
            if needed is None or importlib.util.find_spec(needed) is not None:
                found.append(importlib.import_module(f"{parent.__name__}.{info.name}"))
    return found


def public_objects():
    """Functions and classes by their names, each once: what packages export, and what modules define."""
    found = {}
    for module in public_modules():
        for name, thing in vars(module).items():
            home = getattr(thing, "__module__", None) or ""
            ours = (
                home.startswith("jaxsvm")
                if hasattr(module, "__path__")
                else home == module.__name__
            )
            is_object = inspect.isclass(thing) or inspect.isfunction(thing)
            if ours and is_object and not name.startswith("_"):
                found.setdefault(thing, f"{module.__name__}.{name}")
    return {name: thing for thing, name in found.items()}


def members(cls):
    """Public methods and properties of a class, by name, that this library defines."""
    for name in dir(cls):
        member = inspect.getattr_static(cls, name)
        if name.startswith("_"):
            continue
        if isinstance(member, staticmethod | classmethod):
            member = member.__func__
        home = next((c for c in cls.__mro__ if name in vars(c)), cls)
        if home.__module__.startswith("jaxsvm") and (
            inspect.isfunction(member) or isinstance(member, property)
        ):
            yield name, member


OBJECTS = public_objects()
FUNCTIONS = {name: thing for name, thing in OBJECTS.items() if inspect.isfunction(thing)}
CLASSES = {name: thing for name, thing in OBJECTS.items() if inspect.isclass(thing)}
METHODS = {}  # each once, under the first class that has it
for _name, _cls in CLASSES.items():
    for _member, _thing in members(_cls):
        if all(_thing is not other for _, _, other in METHODS.values()):
            METHODS[f"{_name}.{_member}"] = (_cls, _member, _thing)


def assert_summary(text):
    assert text and text.strip(), "no docstring"
    first = text.strip().split("\n\n")[0]
    assert first.rstrip().endswith((".", ":")), f"the summary is not a sentence: {first!r}"


def assert_complete(text, function, name, returns):
    """The text names all parameters and says what is returned, unless that is None."""
    signature = inspect.signature(function)
    taken = [p for p in signature.parameters if p not in ("self", "cls") and not p.startswith("_")]
    numpy_style = name.startswith("jaxsvm.sklearn.")
    headings = (_underlined("Parameters"), _underlined("Returns"))
    heading, returned = headings if numpy_style else ("**Arguments:**", "**Returns:**")
    arguments = text.partition(heading)[2]
    if taken:
        assert arguments, f"{name} has no {heading}"
    missing = [p for p in taken if not is_described(p, arguments)]
    assert not missing, f"{name} does not say what {missing} are"
    if returns is not None:
        assert taken == [] or returned in text, f"{name} has no {returned}"


def _underlined(heading):
    return f"{heading}\n{'-' * len(heading)}\n"


def is_described(parameter, text):
    """Whether a text describes a parameter, as `parameter` or in NumPy's style."""
    return f"`{parameter}`" in text or re.search(rf"^\s*{parameter} : ", text, re.MULTILINE)


@pytest.mark.parametrize("module", public_modules(), ids=lambda module: module.__name__)
def test_modules(module):
    assert_summary(module.__doc__)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    text = inspect.getdoc(FUNCTIONS[name])
    assert_summary(text)
    returns = inspect.signature(FUNCTIONS[name]).return_annotation
    assert_complete(text, FUNCTIONS[name], name, returns)


@pytest.mark.parametrize("name", CLASSES)
def test_classes(name):
    cls = CLASSES[name]
    assert_summary(cls.__doc__)
    is_protocol = getattr(cls, "_is_protocol", False)
    if issubclass(cls, BaseException | enum.Enum) or inspect.isabstract(cls) or is_protocol:
        return
    parents = [parent for parent in cls.__mro__ if parent.__module__.startswith("jaxsvm")]
    text = "\n".join(parent.__doc__ or "" for parent in parents)
    for other in re.findall(r"as for `(\w+)`", text):  # parameters described there are not repeated
        text += next(c.__doc__ for c in CLASSES.values() if c.__name__ == other)
    taken = [p for p in inspect.signature(cls).parameters if not p.startswith("_")]
    missing = [p for p in taken if not is_described(p, text)]
    assert not missing, f"{name} does not say what {missing} are"


@pytest.mark.parametrize("name", METHODS)
def test_methods(name):
    cls, member, thing = METHODS[name]
    versions = [vars(c)[member] for c in cls.__mro__ if member in vars(c)]
    texts = [version.__doc__ for version in versions]
    texts = [inspect.cleandoc(text) for text in texts if text]
    assert texts, "no docstring"
    assert_summary(texts[0])
    if inspect.isfunction(thing):
        returns = inspect.signature(versions[-1]).return_annotation  # as its first parent says
        assert_complete("\n\n".join(texts), thing, name, returns)


@pytest.mark.parametrize("name", METHODS)
def test_no_docstring_repeats_a_parents(name):
    """A method without a docstring inherits one, so only what differs is worth writing."""
    cls, member, _ = METHODS[name]
    home = next(c for c in cls.__mro__ if member in vars(c))
    mine = vars(home)[member].__doc__
    for parent in home.__mro__[1:]:
        theirs = getattr(vars(parent).get(member), "__doc__", None)
        if mine and theirs and parent.__module__.startswith("jaxsvm"):
            theirs = inspect.cleandoc(theirs)
            repeated = inspect.cleandoc(mine) in (theirs, theirs.split("\n\n")[0])
            assert not repeated, f"{name} repeats the docstring of {parent.__name__}"


FORMULA = re.compile(r"\beqs?\. |`[^`]*[=^*/(+-][^`]*`")


@pytest.mark.parametrize("name", CLASSES)
def test_formulas(name):
    cls = CLASSES[name]
    parents = (
        jsvm.kernels.AbstractKernel,
        jsvm.losses.AbstractLoss,
        jsvm.criteria.AbstractCriterion,
    )
    if issubclass(cls, parents):
        assert FORMULA.search(cls.__doc__), f"{name} has neither a formula nor a reference"


ENTRIES = (
    "KernelMachine fit select sample sample_jointly laplace evidence_gradient evidence_ascent log_evidence "
    "save load "
    "parameters replace freeze unfreeze frozen regression.adapt gp.mean_field gp.laplace "
    "gp.expectation_propagation calibration.log_loss calibration.brier_score calibration.reliability "
    "calibration.expected_calibration_error calibration.coverage"
)


def test_main_entry_points_have_examples():
    for name in ENTRIES.split():
        thing = jsvm
        for part in name.split("."):
            thing = getattr(thing, part)
        assert ">>> " in thing.__doc__, f"{name} has no example"


def test_examples_run(tmp_path, monkeypatch):
    """One after the other, in one namespace."""
    monkeypatch.chdir(tmp_path)  # for examples that write files
    texts = {name: thing.__doc__ for name, thing in OBJECTS.items()}
    texts |= {name: thing.__doc__ for name, (_, _, thing) in METHODS.items()}
    first = "jaxsvm.KernelMachine"
    session = {"jax": jax, "jnp": jnp, "np": np, "optax": optax, "eqx": eqx, "jsvm": jsvm}
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    parser = doctest.DocTestParser()
    printed = []
    for name in [first, *(name for name in texts if name != first)]:
        if ">>> " in (texts[name] or ""):
            example = parser.get_doctest(texts[name], session, name, None, None)
            runner.run(example, out=printed.append, clear_globs=False)
            session = example.globs  # a copy, in which names were added
    assert runner.summarize(verbose=False).failed == 0, "".join(printed)
