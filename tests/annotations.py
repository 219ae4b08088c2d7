"""The shapes and types of arrays that the package declares, checked at each call while tests run.

`conftest.py` passes `checked` to jaxtyping's import hook.
"""

from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import jax
import numpy as np
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray

_strictly = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is a float
_ARRAY = Union[jax.Array, np.ndarray, np.generic]  # noqa: UP007, jaxtyping asks for this form

# these count frames to name the caller in a warning, and a check adds frames
_LEFT_OUT = {
    "jaxsvm.evidence._ascent",
    "jaxsvm.selection._select",
}


def modules() -> list[str]:
    """The modules of the package whose annotations are checked."""
    root = Path(__file__).parents[1]
    files = (file.relative_to(root).with_suffix("") for file in root.glob("jaxsvm/**/*.py"))
    names = {".".join(file.parts) for file in files if not file.name.startswith("__")}
    return sorted(names - _LEFT_OUT)


def checked(function):
    """A function whose annotations of arrays are checked at each call.

    The other annotations are left to the static checker: tests pass wrong numbers, texts and models on
    purpose, to see the error messages.
    """
    hints = function.__annotations__
    if not any(_is_about_arrays(hint) for hint in hints.values()):
        return function
    function.__annotations__ = {
        name: _with_numpy(hint) if _is_about_arrays(hint) else Any for name, hint in hints.items()
    }
    return _strictly(function)


def _is_array(hint) -> bool:
    return isinstance(hint, type) and issubclass(hint, AbstractArray)


def _is_about_arrays(hint) -> bool:
    if get_origin(hint) is Callable:  # what a function takes and returns is seen when it is called
        return False
    return _is_array(hint) or any(_is_about_arrays(part) for part in get_args(hint))


def _with_numpy(hint):
    """The same hint, in which arrays may be those of NumPy, as in JAX's own functions."""
    if _is_array(hint):
        return hint.dtype[_ARRAY, hint.dim_str] if hint.array_type is jax.Array else hint
    origin, parts = get_origin(hint), get_args(hint)
    if not parts or origin is Callable:
        return hint
    parts = tuple(_with_numpy(part) for part in parts)
    return Union[parts] if origin in (Union, UnionType) else origin[parts]  # noqa: UP007
