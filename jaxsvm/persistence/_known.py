"""The classes and functions that a file may name, and nothing else."""

import importlib
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp

_PACKAGES = (
    "kernels",
    "losses",
    "criteria",
    "criteria.priors",
    "approximations",
    "selection.stopping",
    "posteriors",
    "sampling",
    "selection",
    "evidence",
    "gp",
)
# parts of public objects that have no public name themselves
_PARTS = {
    "evidence._estimate": ("Path",),
    "evidence._thermodynamic": ("ThermodynamicDiagnostics",),
    "evidence._tempered": ("TemperedDiagnostics",),
    "datasets": ("Dataset", "Split"),
}
_ACTIVATIONS = (
    "celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh leaky_relu log_sigmoid "
    "log_softmax mish relu relu6 selu sigmoid silu soft_sign softmax softplus sparse_plus "
    "sparse_sigmoid squareplus swish"
)
_ELEMENTWISE = (
    "abs arctan arcsinh cos cosh exp expm1 log1p negative sign sin sinc sinh sqrt square tan tanh"
)


def is_named_tuple(cls: Any) -> bool:
    """Whether a class is a named tuple."""
    return inspect.isclass(cls) and issubclass(cls, tuple) and hasattr(cls, "_fields")


def is_own_name(name: Any) -> TypeGuard[str]:
    """Whether a file may name a user's function or class so: a plain name, and none of Python's own."""
    return isinstance(name, str) and name.isidentifier() and not name.startswith("__")


@cache
def classes() -> dict[str, type]:
    """Concrete classes of modules and named tuples by their public names, those of networks included."""
    from .._fit import Fit, Stats
    from .._machine import KernelMachine
    from .._parameters import Frozen
    from ..kernels import UserFunction

    special = {Frozen, UserFunction}  # which have descriptions of their own
    found: dict[str, type] = {c.__name__: c for c in (KernelMachine, Fit, Stats)}
    root = __package__.rsplit(".", 1)[0] if __package__ else "jaxsvm"
    for package in _PACKAGES:
        for name, thing in vars(importlib.import_module(f"{root}.{package}")).items():
            if not name.startswith("_") and _is_data(thing) and thing not in special:
                found[f"{package}.{name}"] = thing
    for package, names in _PARTS.items():
        module = importlib.import_module(f"{root}.{package}")
        for name in names:
            found[f"{package.split('.')[0]}.{name}"] = getattr(module, name)
    for name, thing in vars(eqx.nn).items():
        if not name.startswith("_") and _is_data(thing):
            found[f"equinox.nn.{name}"] = thing
    return found


def _is_data(thing: Any) -> bool:
    if not inspect.isclass(thing) or thing.__name__.startswith("Abstract"):
        return False
    return is_named_tuple(thing) or (issubclass(thing, eqx.Module) and thing is not eqx.Module)


@cache
def names_of_classes() -> dict[type, str]:
    """The name of each known class; the first one, for a class with several."""
    names: dict[type, str] = {}
    for name, cls in classes().items():
        names.setdefault(cls, name)
    return names


@cache
def functions() -> dict[str, Callable]:
    """Functions that are common in networks, by name."""
    found = {f"jax.nn.{name}": getattr(jax.nn, name, None) for name in _ACTIVATIONS.split()}
    found |= {f"jax.numpy.{name}": getattr(jnp, name, None) for name in _ELEMENTWISE.split()}
    # what `eqx.nn.MLP` has after its last layer unless told otherwise
    last = inspect.signature(eqx.nn.MLP.__init__).parameters["final_activation"].default
    found["equinox.nn.identity"] = last
    return {name: function for name, function in found.items() if callable(function)}


def name_of_function(function: Any) -> str | None:
    """The name of a known function; None for any other."""
    return next((name for name, known in functions().items() if known is function), None)
