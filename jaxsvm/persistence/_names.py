"""The names that a file may use for classes and functions."""

import inspect
import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp

from ._rules import ARRAY_RULES

_LIBRARY = __name__.split(".")[0]
_NETWORKS = eqx.nn.__name__
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
    return inspect.isclass(cls) and issubclass(cls, tuple) and "_fields" in vars(cls)


def is_user_name(name: Any) -> TypeGuard[str]:
    """Whether a file may use this name for a user's function or class: an identifier, not a dunder name."""
    return isinstance(name, str) and name.isidentifier() and not name.startswith("__")


def is_ours(cls: type) -> bool:
    """Whether a class belongs to this library."""
    return cls.__module__.split(".")[0] == _LIBRARY


def name_of_class(cls: type) -> str | None:
    """The name of a class in files, such as `kernels.RBF`; None for a class that files may not name.

    Files may name concrete modules and named tuples that are public in the package that defines them, in
    this library and in `equinox.nn`. What is stored as an array has no name.
    """
    package, _, file = cls.__module__.rpartition(".")
    if not file.startswith("_"):
        package = cls.__module__
    within_library = f"{package}.".startswith(f"{_LIBRARY}.")
    if not (within_library or package == _NETWORKS) or not _is_data(cls):
        return None
    if "._" in package or vars(sys.modules[package]).get(cls.__name__) is not cls:
        return None
    name = f"{package}.{cls.__name__}"
    return name.removeprefix(f"{_LIBRARY}.")


def class_of_name(name: Any) -> type | None:
    """The class with this name in files, or None. Nothing is imported to find it."""
    if not isinstance(name, str):
        return None
    path, _, last = name.rpartition(".")
    package = path if path == _NETWORKS else f"{_LIBRARY}.{path}".rstrip(".")
    home = sys.modules.get(package)
    cls = vars(home).get(last) if isinstance(home, ModuleType) else None
    return cls if inspect.isclass(cls) and name_of_class(cls) == name else None


def _is_data(cls: type) -> bool:
    if cls.__name__.startswith(("Abstract", "_")) or cls in ARRAY_RULES:
        return False
    return is_named_tuple(cls) or issubclass(cls, eqx.Module)


@cache
def functions() -> dict[str, Callable]:
    """Functions that are common in networks, by their names in files."""
    by_name = {f"jax.nn.{name}": getattr(jax.nn, name, None) for name in _ACTIVATIONS.split()}
    by_name |= {f"jax.numpy.{name}": getattr(jnp, name, None) for name in _ELEMENTWISE.split()}
    # the default of `eqx.nn.MLP` after its last layer
    last = inspect.signature(eqx.nn.MLP.__init__).parameters["final_activation"].default
    by_name["equinox.nn.identity"] = last
    return {name: function for name, function in by_name.items() if callable(function)}


def name_of_function(function: Any) -> str | None:
    """The name of a function in files, or None if it is not among `functions`."""
    return next((name for name, value in functions().items() if value is function), None)
