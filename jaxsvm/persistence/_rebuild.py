"""From the descriptions in a file to values, without calling anything from the file."""

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..results import RESULTS
from ..runtime import require_own_process
from ._describe import MAX_DEPTH
from ._names import class_of_name, functions, is_named_tuple, is_ours, is_user_name
from ._rules import ARRAY_RULES, PARTS_RULES, problem_of
from ._writer import FileError


class Rebuilder:
    """Rebuilds values from their descriptions.

    **Arguments:** `arrays` of the file; `module`, in which the user's functions and classes are looked up:
    a module, a mapping, or any object with attributes.
    """

    def __init__(self, arrays: Sequence[np.ndarray], module: Any):
        self._arrays = arrays
        self._module = module

    def rebuild(self, node: Any, *, depth: int = 0, partial: bool = False) -> Any:
        """Rebuild a value.

        **Arguments:** `node`, the description; `depth`, the number of structures around it; `partial`,
        whether modules may lack values.

        **Returns:** the value; raises `FileError` if the description is invalid.
        """
        if depth > MAX_DEPTH:
            raise FileError("its description is nested too deeply")
        if node is None or isinstance(node, bool | int | float | str):
            return node
        deeper = {"depth": depth + 1, "partial": partial}
        if isinstance(node, list):
            return [self.rebuild(entry, **deeper) for entry in node]
        keys = set(node)
        if keys == {"float"} and node["float"] in ("nan", "inf", "-inf"):
            return float(node["float"])
        if keys == {"tuple"} and isinstance(node["tuple"], list):
            return tuple(self.rebuild(entry, **deeper) for entry in node["tuple"])
        if keys == {"dict"} and isinstance(node["dict"], list):
            return self._dict(node["dict"], deeper)
        if keys == {"array", "as"}:
            return self._array(self._numbered(node["array"]), node["as"])
        for rule in ARRAY_RULES.values():
            if keys == {rule.key}:
                return rule.rebuild(self._supported(self._numbered(node[rule.key])))
        if keys == {"result"}:
            return self._lookup(RESULTS.__members__, node["result"], "result")
        if keys == {"class", "fields"} and isinstance(node["fields"], dict):
            return self._object(node["class"], node["fields"], deeper)
        if keys == {"function"}:
            return self._lookup(functions(), node["function"], "function")
        if keys == {"yours"}:
            return self._user_object(node["yours"], wants_class=False)
        if keys == {"yours", "fields"} and isinstance(node["fields"], dict):
            cls = self._user_object(node["yours"], wants_class=True)
            return self._module_of(cls, node["yours"], node["fields"], deeper)
        raise FileError(f"its description has an unknown entry: {sorted(keys)}")

    def _dict(self, pairs, deeper):
        rebuilt = {}
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2:
                raise FileError("a dictionary in it does not consist of pairs")
            key = self.rebuild(pair[0])
            if not isinstance(key, str | int | float | bool | None) or key in rebuilt:
                raise FileError("a dictionary in it has the same key twice, or an invalid key")
            rebuilt[key] = self.rebuild(pair[1], **deeper)
        return rebuilt

    def _numbered(self, number) -> np.ndarray:
        if type(number) is not int or not 0 <= number < len(self._arrays):
            raise FileError(f"it has no array {number!r}")
        return self._arrays[number]

    def _array(self, array: np.ndarray, kind):
        if kind == "numpy":
            return array
        if kind == "scalar" and array.ndim == 0:
            return array[()]
        if kind != "jax" or array.dtype.kind not in "biufc":
            raise FileError(f"it has an array of type {array.dtype} for {kind!r}")
        require_own_process()
        return jnp.asarray(self._supported(array.astype(array.dtype.newbyteorder("="))))

    def _supported(self, array: np.ndarray) -> np.ndarray:
        """The array itself, if JAX supports its type at present."""
        if array.dtype.kind not in "biufc":
            raise FileError(f"it has a parameter of type {array.dtype}")
        if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
            raise FileError(
                f"it holds numbers of type {array.dtype}, which JAX would cut to half their length: call "
                "`jax.config.update('jax_enable_x64', True)` before loading"
            )
        return array

    def _object(self, name, fields, deeper):
        cls = class_of_name(name)
        if cls is None:
            raise FileError(f"it names the class {name!r}, which this jaxsvm does not know")
        if cls in PARTS_RULES:
            return self._from_parts(cls, name, fields, deeper["depth"])
        if not is_named_tuple(cls):
            return self._module_of(cls, name, fields, deeper)
        named = cast(Any, cls)
        self._check_names(name, fields, named._fields)
        return named._make(self.rebuild(fields[field], **deeper) for field in named._fields)

    def _module_of(self, cls, name, fields, deeper):
        """Rebuild a module by setting its fields; its constructor is not called."""
        self._check_names(name, fields, [field.name for field in dataclasses.fields(cls)])
        module = object.__new__(cls)
        for field, node in fields.items():
            object.__setattr__(module, field, self.rebuild(node, **deeper))
        checked = is_ours(cls) and not deeper["partial"]
        if checked and (problem := problem_of(module)):
            raise FileError(f"it has an invalid {name}: {problem}")
        return module

    def _from_parts(self, cls, name, fields, depth):
        rule = PARTS_RULES[cls]
        self._check_names(name, fields, rule.names)
        parts = [self.rebuild(fields[part], depth=depth, partial=True) for part in rule.names]
        try:
            return rule.rebuild(*parts)
        except ValueError as error:
            raise FileError(f"it has an invalid {name}: {error}") from error

    @staticmethod
    def _check_names(name, fields, wanted):
        if set(fields) != set(wanted):
            raise FileError(
                f"a {name} has the fields {', '.join(wanted)}, but the file has {', '.join(fields)}"
            )

    @staticmethod
    def _lookup(values: Mapping[str, Any], name, what):
        if not isinstance(name, str) or name not in values:
            raise FileError(f"it names the {what} {name!r}, which this jaxsvm does not know")
        return values[name]

    def _user_object(self, name, *, wants_class: bool):
        what = "class" if wants_class else "function"
        if not is_user_name(name):
            raise FileError(f"it names the {what} {name!r}, which is not a valid name")
        if self._module is None:
            raise FileError(
                f"it was saved with your {what} `{name}`: pass the module that has it, "
                "`jaxsvm.load(path, module=...)`, or a dictionary with it"
            )
        mapping = isinstance(self._module, Mapping)
        value = self._module.get(name) if mapping else getattr(self._module, name, None)
        if value is None:
            raise FileError(f"it was saved with the {what} `{name}`, which `module` does not have")
        if wants_class:
            fits = inspect.isclass(value) and issubclass(value, eqx.Module)
        else:
            fits = callable(value) and not inspect.isclass(value)
        if not fits:
            wanted = "a subclass of `eqx.Module`" if wants_class else "a function"
            raise FileError(f"`{name}` in `module` is not {wanted}")
        return value
