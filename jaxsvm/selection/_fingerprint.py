"""By what a run is known again, in another process as well."""

import dataclasses
import functools
import hashlib
import inspect
import re
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._parameters import Frozen
from ..kernels import UserFunction

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def fingerprint(tree: Any) -> str:
    """A text that is the same for two trees of the same content, and only for those.

    Arrays count by their bytes, frozen parameters too; functions by what they do, not by where in memory they
    are: their code, their defaults, and the values they have closed over, such as the learning rate inside an
    optimizer. What a function reads from its module is not seen. An object of a class that is not known
    here counts by how it prints.

    **Arguments:** `tree`, of arrays, plain values, modules and functions.

    **Returns:** 64 hexadecimal digits.
    """
    digest = hashlib.sha256()
    _feed(digest.update, tree, frozenset())
    return digest.hexdigest()


def _feed(add: Callable[[bytes], Any], node: Any, above: frozenset[int]) -> None:
    """Add all that makes out a node; `above` are those that it is a part of."""
    if id(node) in above:  # a function may have closed over itself
        add(b"<above>")
        return
    kind, parts = _parts(node)
    if isinstance(parts, bytes):
        add(f"<{kind} {len(parts)}>".encode() + parts)
        return
    add(f"<{kind} of {len(parts)}>".encode())
    for part in parts:
        _feed(add, part, above | {id(node)})


def _parts(node: Any) -> tuple[str, bytes | list[Any]]:
    """What kind of thing it is, and either its content or what it consists of."""
    kind = type(node).__name__
    if isinstance(node, Frozen):
        return kind, [node.constant.array]
    if isinstance(node, UserFunction):
        function, static = node.rest
        return kind, [node.parameters, function, static.tree, node.is_function]
    if isinstance(node, jax.Array | np.ndarray | np.generic):
        return _parts_of_array(node)
    if isinstance(node, dict):
        return kind, sorted(node.items(), key=lambda pair: str(pair[0]))
    if isinstance(node, list | tuple):
        return kind, list(node)
    if isinstance(node, set | frozenset):  # whose order differs from process to process
        return kind, sorted(fingerprint(member) for member in node)
    if isinstance(node, type):
        return kind, f"{node.__module__}.{node.__qualname__}".encode()
    if dataclasses.is_dataclass(node):
        return kind, [(f.name, getattr(node, f.name, None)) for f in dataclasses.fields(node)]
    if isinstance(node, functools.partial):
        return kind, [node.func, node.args, node.keywords]
    if isinstance(node, types.MethodType):
        return kind, [node.__func__, node.__self__]
    if isinstance(node, types.CodeType):
        return kind, [node.co_code, node.co_names, node.co_consts]
    if callable(node):
        function = inspect.unwrap(node)  # of what `jax.jit` and its kind put around it
        if isinstance(function, types.FunctionType):
            return "function", _parts_of_function(function)
    return kind, node if isinstance(node, bytes) else _ADDRESS.sub("", repr(node)).encode()


def _parts_of_array(node: Any) -> tuple[str, bytes | list[Any]]:
    if jnp.issubdtype(node.dtype, jax.dtypes.prng_key):
        node = jax.random.key_data(node)
    array = np.asarray(node)
    kind = f"array {array.dtype}{array.shape}"
    return kind, array.ravel().tolist() if array.dtype == object else array.tobytes()


def _parts_of_function(function: types.FunctionType) -> list[Any]:
    closed = []
    for cell in function.__closure__ or ():
        try:
            closed.append(cell.cell_contents)
        except ValueError:  # not assigned yet
            closed.append(None)
    return [
        function.__qualname__, function.__code__, function.__defaults__, function.__kwdefaults__, closed
    ]  # fmt: skip
