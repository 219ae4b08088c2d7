"""From things to descriptions: what is written into a file."""

import dataclasses
import inspect
import math
import sys
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._results import RESULTS
from ..runtime import is_traced
from ..validation import require_unmasked
from ._container import is_storable
from ._known import is_named_tuple, is_ours, is_own_name, name_of_class, name_of_function
from ._rules import ARRAY_RULES, PARTS_RULES, problem_of

DEEPEST = 100  # levels of nesting; more is a structure that holds itself


class Describer:
    """Describes things, and collects their arrays in `arrays`."""

    def __init__(self):
        self.arrays: list[np.ndarray] = []

    def describe(self, thing: Any, where: str = "it", *, depth: int = 0, partial: bool = False):
        """The description of a thing.

        **Arguments:**

        - `thing`: whatever is to be saved.
        - `where`: how an error names it.
        - `depth`: levels of nesting above it.
        - `partial`: whether modules may lack fields, as the halves of a network inside a kernel do.

        **Returns:** what JSON can hold.
        """
        if depth > DEEPEST:
            raise ValueError("what is to be saved is nested too deeply, or holds itself")
        if isinstance(thing, jax.Array) and is_traced(thing):
            raise ValueError(
                f"{where} is a traced value, which has no numbers yet: save outside of jit, vmap and grad"
            )
        if thing is None or isinstance(thing, bool):
            return thing
        if isinstance(thing, RESULTS):
            return {"result": thing.name}
        if isinstance(thing, jax.Array | np.ndarray | np.generic):
            require_unmasked(thing, where)
            return self._array(thing, where)
        if type(thing) in (int, str):
            return thing
        if type(thing) is float:
            return thing if math.isfinite(thing) else {"float": str(thing)}
        deeper = {"depth": depth + 1, "partial": partial}
        if type(thing) is list:
            return [self.describe(v, f"{where}[{i}]", **deeper) for i, v in enumerate(thing)]
        if type(thing) is tuple:
            entries = [self.describe(v, f"{where}[{i}]", **deeper) for i, v in enumerate(thing)]
            return {"tuple": entries}
        if type(thing) is dict:
            return {"dict": [self._pair(k, v, where, deeper) for k, v in thing.items()]}
        if type(thing) in ARRAY_RULES:
            rule = ARRAY_RULES[type(thing)]
            return {rule.key: self._number(np.asarray(rule.array_of(thing)), where)}
        if type(thing) in PARTS_RULES:
            return self._in_parts(thing, where, depth)
        if isinstance(thing, eqx.Module):
            return self._module(thing, where, deeper)
        if is_named_tuple(type(thing)):
            return self._named_tuple(thing, where, deeper)
        if inspect.isclass(thing):
            raise TypeError(
                f"{where} is the class {thing.__name__} itself, which cannot be saved: save an instance, "
                f"such as `{thing.__name__}(...)`"
            )
        if callable(thing):
            return self._function(thing, where)
        raise TypeError(
            f"{where} is a {type(thing).__name__}, which cannot be saved: numbers, text, arrays, lists, "
            "tuples, dictionaries, and models and fits of jaxsvm can"
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
                f"{where} is an array of {array.dtype}, which cannot be saved: numbers, truth values and "
                "text can"
            )
        self.arrays.append(np.array(array, order="C", subok=False))
        return len(self.arrays) - 1

    def _pair(self, key, value, where, deeper):
        if not isinstance(key, str | int | float | bool | None):
            raise TypeError(f"{where} has the key {key!r}: keys must be text or numbers")
        place = f"{where}[{key!r}]"
        return [self.describe(key, place), self.describe(value, place, **deeper)]

    def _module(self, module, where, deeper):
        name = name_of_class(type(module))
        if name is None:
            head = {"yours": self._own_name(type(module), where)}
        else:
            head = {"class": name}
            checked = is_ours(type(module)) and not deeper["partial"]
            if checked and (problem := problem_of(module)):
                raise ValueError(f"{where}, a {name}, cannot be saved: {problem}")
        names = [field.name for field in dataclasses.fields(cast(Any, module))]
        if set(vars(module)) != set(names):
            raise TypeError(f"{where} is a {type(module).__name__} whose fields are not all set")
        fields = {
            name: self.describe(getattr(module, name), f"{where}.{name}", **deeper)
            for name in names
        }
        return {**head, "fields": fields}

    def _named_tuple(self, thing, where, deeper):
        name = name_of_class(type(thing))
        if name is None:
            raise TypeError(
                f"{where} is a {type(thing).__name__}, a named tuple that jaxsvm does not know: save a "
                "dictionary instead"
            )
        pairs = zip(thing._fields, thing, strict=True)
        fields = {field: self.describe(v, f"{where}.{field}", **deeper) for field, v in pairs}
        return {"class": name, "fields": fields}

    def _in_parts(self, thing, where, depth):
        """Parts may be halves of modules, which lack values."""
        rule = PARTS_RULES[type(thing)]
        fields = {
            name: self.describe(part, where, depth=depth + 1, partial=True)
            for name, part in zip(rule.names, rule.take_apart(thing), strict=True)
        }
        return {"class": name_of_class(type(thing)), "fields": fields}

    def _function(self, function, where):
        name = name_of_function(function)
        if name is not None:
            return {"function": name}
        return {"yours": self._own_name(function, where)}

    def _own_name(self, thing, where) -> str:
        """The name of a user's function or class, under which its module has it."""
        name = getattr(thing, "__qualname__", None)
        home = sys.modules.get(getattr(thing, "__module__", None) or "")
        if not is_own_name(name) or getattr(home, name, None) is not thing:
            raise TypeError(
                f"{where} has {name or thing!r}, which no module has under that name: lambdas, functions "
                "inside functions and partial functions cannot be saved. Define it at the top level of "
                "a module, with its parameters as an argument"
            )
        return name
