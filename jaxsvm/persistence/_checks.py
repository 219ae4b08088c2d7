"""Whether the fields of a module are of the kind that its class says."""

import dataclasses
import inspect
from typing import Any, cast

import jax
import numpy as np
from jaxtyping import AbstractArray

from ._rules import ARRAY_RULES, checks_of, may_stand_in


def problem_of(module: Any) -> str | None:
    """What is wrong with the fields of a module of this library, in words; None if nothing is.

    Types are those of the annotations; `check_fields` adds what else a class says of its fields.
    """
    for field in dataclasses.fields(cast(Any, module)):
        value = getattr(module, field.name)
        wanted = field.type
        if inspect.isclass(wanted) and issubclass(wanted, AbstractArray):
            rule = ARRAY_RULES.get(type(value))
            if rule is not None:
                if not may_stand_in(value, type(module)):
                    return f"`{field.name}` is {rule.key}, which no field of its class can be"
                value = rule.array_of(value)
            kind = getattr(value, "dtype", np.dtype(object)).name
            if kind not in wanted.dtypes:
                return f"`{field.name}` must be an array of type {wanted.__name__}, but is {kind}"
        elif wanted is jax.Array and isinstance(value, np.ndarray | np.generic):
            continue  # as the annotations of jaxtyping have it, of which both are arrays
        elif inspect.isclass(wanted) and not isinstance(value, wanted):
            return f"`{field.name}` must be a {wanted.__name__}, not a {type(value).__name__}"
    problems = (check(module) for check in checks_of(type(module)))
    return next((problem for problem in problems if problem is not None), None)
