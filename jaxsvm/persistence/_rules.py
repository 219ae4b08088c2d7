"""How classes say that they are stored, and whether the fields of a module are valid."""

import dataclasses
import inspect
import types
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin

import jax
import numpy as np
from jaxtyping import AbstractArray


class ArrayRule(NamedTuple):
    """How an object is stored as one array, under a key of the format."""

    key: str
    array_of: Callable[[Any], np.ndarray]
    rebuild: Callable[[np.ndarray], Any]


class PartsRule(NamedTuple):
    """How an object is stored as parts other than its fields."""

    names: tuple[str, ...]
    take_apart: Callable[[Any], tuple]
    rebuild: Callable[..., Any]


ARRAY_RULES: dict[type, ArrayRule] = {}
PARTS_RULES: dict[type, PartsRule] = {}
_CHECKS: dict[type, Callable[[Any], str | None]] = {}
_STAND_INS: dict[type, tuple[type, ...]] = {}


def store_as_array(
    cls: type,
    key: str,
    array_of: Callable[[Any], np.ndarray],
    rebuild: Callable[[np.ndarray], Any],
) -> None:
    """Store the objects of a class as one array each.

    **Arguments:** `cls`, the class; `key`, which marks the array in a description; `array_of`, from the
    object to its array; `rebuild`, from the array to the object.
    """
    ARRAY_RULES[cls] = ArrayRule(key, array_of, rebuild)


def store_in_parts(
    cls: type,
    names: tuple[str, ...],
    take_apart: Callable[[Any], tuple],
    rebuild: Callable[..., Any],
) -> None:
    """Store the objects of a public class as parts other than its fields.

    **Arguments:** `cls`, the class; `names` of the parts; `take_apart`, from the object to its parts, in
    which modules may lack values; `rebuild`, from the parts to the object. It must not call anything from a
    file, and must raise a `ValueError` for parts that do not fit together.
    """
    PARTS_RULES[cls] = PartsRule(names, take_apart, rebuild)


def check_fields(
    cls: type,
    problem_of: Callable[[Any], str | None] | None = None,
    *,
    stand_ins: tuple[type, ...] = (),
) -> None:
    """Declare conditions on the fields of a class and its subclasses, beyond their types.

    **Arguments:** `cls`, the class; `problem_of`, a function of an object whose fields have the right types
    that returns what is wrong with them, or None; `stand_ins`, classes of `store_as_array` whose objects may
    replace an array in a field.
    """
    if problem_of is not None:
        _CHECKS[cls] = problem_of
    _STAND_INS[cls] = stand_ins


def problem_of(module: Any) -> str | None:
    """What is wrong with the fields of a module of this library, or None.

    Types are compared with the annotations; `check_fields` adds further conditions.
    """
    for field in dataclasses.fields(cast(Any, module)):
        problem = _problem_of_field(module, field.name, field.type)
        if problem is not None:
            return problem
    checks = [_CHECKS[base] for base in type(module).__mro__ if base in _CHECKS]
    problems = (check(module) for check in checks)
    return next((problem for problem in problems if problem is not None), None)


def _problem_of_field(module: Any, name: str, wanted: Any) -> str | None:
    """Why a field does not have the type of an annotation, or None; only classes and unions are compared."""
    if isinstance(wanted, TypeVar):
        wanted = wanted.__bound__
    if get_origin(wanted) in (Union, types.UnionType):
        problems = [_problem_of_field(module, name, choice) for choice in get_args(wanted)]
        return None if None in problems else problems[0]
    value = getattr(module, name)
    if inspect.isclass(wanted) and issubclass(wanted, AbstractArray):
        rule = ARRAY_RULES.get(type(value))
        if rule is not None:
            if not _may_stand_in(value, type(module)):
                return f"`{name}` is {rule.key}, which a field of its class cannot be"
            value = rule.array_of(value)
        kind = getattr(value, "dtype", np.dtype(object)).name
        if kind not in wanted.dtypes:
            return f"`{name}` must be an array of type {wanted.__name__}, but is {kind}"
        return None
    if wanted is jax.Array and isinstance(value, np.ndarray | np.generic):
        return None  # as for annotations of jaxtyping, NumPy arrays are accepted
    if inspect.isclass(wanted) and not isinstance(value, wanted):
        return f"`{name}` must be a {wanted.__name__}, not a {type(value).__name__}"
    return None


def _may_stand_in(value: Any, cls: type) -> bool:
    """Whether the value may replace an array in a field of the class."""
    return any(type(value) in _STAND_INS.get(base, ()) for base in cls.__mro__)
