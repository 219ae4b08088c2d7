"""From values to their descriptions in a file."""

import dataclasses
import inspect
import math
import sys
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..results import RESULTS
from ..runtime import is_traced
from ..validation import require_unmasked
from ._container import is_storable
from ._names import is_named_tuple, is_ours, is_user_name, name_of_class, name_of_function
from ._rules import ARRAY_RULES, PARTS_RULES, problem_of

MAX_DEPTH = 100  # levels of nesting; a deeper structure probably contains itself


class Describer:
    """Describes values, and collects their arrays in `arrays`."""

    def __init__(self):
        self.arrays: list[np.ndarray] = []

    def describe(self, value: Any, where: str = "it", *, depth: int = 0, partial: bool = False):
        """Describe a value.

        **Arguments:**

        - `value`: what to save.
        - `where`: its name in error messages.
        - `depth`: the number of structures around it.
        - `partial`: whether modules may lack values, as the halves of a network inside a kernel do.

        **Returns:** a description that JSON can hold.
        """
        if depth > MAX_DEPTH:
            raise ValueError("the value is nested too deeply, or holds itself")
        if isinstance(value, jax.Array) and is_traced(value):
            raise ValueError(
                f"{where} is a traced value, whose numbers are not known yet: save it outside of jit, "
                "vmap and grad"
            )
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, RESULTS):
            return {"result": value.name}
        if isinstance(value, jax.Array | np.ndarray | np.generic):
            require_unmasked(value, where)
            return self._array(value, where)
        if type(value) in (int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        deeper = {"depth": depth + 1, "partial": partial}
        if type(value) is list:
            return [self.describe(v, f"{where}[{i}]", **deeper) for i, v in enumerate(value)]
        if type(value) is tuple:
            entries = [self.describe(v, f"{where}[{i}]", **deeper) for i, v in enumerate(value)]
            return {"tuple": entries}
        if type(value) is dict:
            return {"dict": [self._pair(k, v, where, deeper) for k, v in value.items()]}
        if type(value) in ARRAY_RULES:
            rule = ARRAY_RULES[type(value)]
            return {rule.key: self._number(np.asarray(rule.array_of(value)), where)}
        if type(value) in PARTS_RULES:
            return self._in_parts(value, where, depth)
        if isinstance(value, eqx.Module):
            return self._module(value, where, deeper)
        if is_named_tuple(type(value)):
            return self._named_tuple(value, where, deeper)
        if inspect.isclass(value):
            raise TypeError(
                f"{where} is the class {value.__name__} itself, which cannot be saved: save an instance, "
                f"such as `{value.__name__}(...)`"
            )
        if callable(value):
            return self._function(value, where)
        raise TypeError(
            f"{where} is a {type(value).__name__}, which cannot be saved: save numbers, text, arrays, lists, "
            "tuples, dictionaries, and models and fits of jaxsvm"
        )

    def _array(self, array, where):
        if isinstance(array, jax.Array):
            if jnp.issubdtype(array.dtype, jax.dtypes.extended):
                raise TypeError(f"{where} is a random key: save `jax.random.key_data(key)` instead")
            return {"array": self._number(np.asarray(array), where), "as": "jax"}
        kind = "scalar" if isinstance(array, np.generic) else "numpy"
        return {"array": self._number(np.asarray(array), where), "as": kind}

    def _number(self, array: np.ndarray, where) -> int:
        if not is_storable(array.dtype):
            raise TypeError(
                f"{where} is an array of {array.dtype}, which cannot be saved: save arrays of numbers, "
                "truth values or text"
            )
        self.arrays.append(np.array(array, order="C", subok=False))
        return len(self.arrays) - 1

    def _pair(self, key, value, where, deeper):
        if not isinstance(key, str | int | float | bool | None):
            raise TypeError(f"{where} has the key {key!r}: keys must be text or numbers")
        where = f"{where}[{key!r}]"
        return [self.describe(key, where), self.describe(value, where, **deeper)]

    def _module(self, module, where, deeper):
        name = name_of_class(type(module))
        if name is None:
            head = {"yours": self._user_name(type(module), where)}
        else:
            head = {"class": name}
            checked = is_ours(type(module)) and not deeper["partial"]
            if checked and (problem := problem_of(module)):
                raise ValueError(f"{where}, a {name}, cannot be saved: {problem}")
        names = [field.name for field in dataclasses.fields(cast(Any, module))]
        if set(vars(module)) != set(names):
            raise TypeError(f"{where} is a {type(module).__name__} with fields that are not set")
        fields = {
            name: self.describe(getattr(module, name), f"{where}.{name}", **deeper)
            for name in names
        }
        return {**head, "fields": fields}

    def _named_tuple(self, value, where, deeper):
        name = name_of_class(type(value))
        if name is None:
            raise TypeError(
                f"{where} is a {type(value).__name__}, a named tuple that jaxsvm does not know: save a "
                "dictionary instead"
            )
        pairs = zip(value._fields, value, strict=True)
        fields = {field: self.describe(v, f"{where}.{field}", **deeper) for field, v in pairs}
        return {"class": name, "fields": fields}

    def _in_parts(self, value, where, depth):
        """Describe the parts, which may be halves of modules that lack values."""
        rule = PARTS_RULES[type(value)]
        fields = {
            name: self.describe(part, where, depth=depth + 1, partial=True)
            for name, part in zip(rule.names, rule.take_apart(value), strict=True)
        }
        return {"class": name_of_class(type(value)), "fields": fields}

    def _function(self, function, where):
        name = name_of_function(function)
        if name is not None:
            return {"function": name}
        return {"yours": self._user_name(function, where)}

    def _user_name(self, value, where) -> str:
        """The name of a user's function or class in its module."""
        name = getattr(value, "__qualname__", None)
        home = sys.modules.get(getattr(value, "__module__", None) or "")
        if not is_user_name(name) or getattr(home, name, None) is not value:
            raise TypeError(
                f"{where} has {name or value!r}, which is not at the top level of a module: lambdas, "
                "functions inside functions and partial functions cannot be saved. Define it at the top "
                "level of a module, with its parameters as an argument"
            )
        return name
