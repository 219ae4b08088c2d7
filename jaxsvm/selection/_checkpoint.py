"""Checkpoints of long runs, and the fingerprints that identify a run across processes."""

import dataclasses
import functools
import hashlib
import inspect
import re
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..fields import Frozen
from ..kernels import UserFunction
from ..persistence import FileError, load_as, require_writable, save_as
from ..runtime import ask_all_processes, digest_of, is_divided, on_host

_KIND = "checkpoint"  # of file
_HINT = "an unfinished search: pass its path as `checkpoint` to `jaxsvm.select`"
_FORMAT = 3
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class Checkpoint:
    """A file with the state and the history of each start, in the format of `jaxsvm.save`.

    It belongs to one run: its fingerprint depends on the model, data, key, optimizer and settings. If several
    processes run together, all of them read the file, and the first one writes it.

    **Arguments:** `path`, the file, or None to save nothing; `identity`, a tree of everything that determines
    the course of the run; `several`, whether several processes run together.
    """

    def __init__(self, path: str | Path | None, identity: Any, several: bool = False):
        self._path = None if path is None else Path(path)
        self._fingerprint = "" if path is None else fingerprint(identity)
        self._lock = threading.Lock()
        self._entries: dict[int, tuple[list[np.ndarray], int]] = {}
        self._writes = not several or jax.process_index() == 0
        if self._path is None:
            return
        if self._writes:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            require_writable(self._path)  # now, and not after the first step
        if several:
            self._require_the_same_file()
        if self._path.exists():
            self._read()

    def _require_the_same_file(self) -> None:
        """Raise in all processes unless they see the same file, or none."""
        assert self._path is not None
        ask_all_processes([0])  # the first process has written what it had to
        content = self._path.read_bytes() if self._path.exists() else b""
        seen = ask_all_processes(list(hashlib.sha256(content).digest()))
        if np.any(seen != seen[0]):
            raise ValueError(
                f"the processes do not see the same file {self._path}: use a folder that all of them share"
            )

    def has(self, start: int) -> bool:
        """Whether a start has been saved."""
        return start in self._entries

    def load(self, start: int, example: Any) -> Any:
        """The state of a saved start, with the structure of `example`: arrays, or only their shapes."""
        arrays, steps = self._entries[start]
        leaves, structure = jax.tree.flatten(example)
        pairs = zip(arrays, leaves, strict=False)
        if len(leaves) != len(arrays) or not all(_fits(a, leaf, steps) for a, leaf in pairs):
            raise ValueError(
                f"{self._path} does not fit this run, or was written by another version of this library: "
                "remove it to start over"
            )
        pairs = zip(arrays, leaves, strict=True)
        return structure.unflatten([_as_leaf(array, leaf) for array, leaf in pairs])

    def save(self, start: int, tree: Any, steps: int) -> None:
        """Save a start, and the file with all starts."""
        if self._path is None:
            return
        with self._lock:
            self._entries[start] = ([_as_array(leaf) for leaf in jax.tree.leaves(tree)], steps)
            if self._writes:
                self._write()

    def _write(self) -> None:
        assert self._path is not None
        starts = {
            start: {"steps": steps, "leaves": leaves}
            for start, (leaves, steps) in self._entries.items()
        }
        content = {"format": _FORMAT, "fingerprint": self._fingerprint, "starts": starts}
        save_as(_KIND, self._path, content, hint=_HINT)

    def _read(self) -> None:
        assert self._path is not None
        try:
            content = load_as(_KIND, self._path)
        except FileError as error:
            raise ValueError(
                f"{self._path} is not a checkpoint, or is damaged: remove it to start over ({error})"
            ) from error
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise ValueError(
                f"{self._path} is not a checkpoint, or was written by another version of this library: "
                "use another file, or remove it to start over"
            )
        if content.get("fingerprint") != self._fingerprint:
            raise ValueError(
                f"{self._path} belongs to a run with another model, data, key or settings (those of the "
                "optimizer and of the stopping rules included): use another file, or remove it to start over"
            )
        starts = content.get("starts")
        if not isinstance(starts, dict) or not all(map(_is_start, starts, starts.values())):
            raise ValueError(
                f"{self._path} is not a checkpoint, or is damaged: remove it to start over"
            )
        self._entries = {
            start: (entry["leaves"], entry["steps"]) for start, entry in starts.items()
        }


def _is_start(number: Any, entry: Any) -> bool:
    if type(number) is not int or number < 0:
        return False
    if not isinstance(entry, dict) or set(entry) != {"steps", "leaves"}:
        return False
    steps, leaves = entry["steps"], entry["leaves"]
    whole = type(steps) is int and steps >= 0 and isinstance(leaves, list)
    return whole and all(isinstance(leaf, np.ndarray) for leaf in leaves)


def _fits(array: np.ndarray, leaf: Any, steps: int) -> bool:
    """Whether an array can replace a leaf of the example, in which a history has no rows."""
    if leaf.shape[:1] == (0,):
        return array.shape == (steps, *leaf.shape[1:]) and array.dtype.kind in "biuf"
    expected = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
    return array.shape == expected.shape and array.dtype == expected.dtype


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _as_array(leaf: Any) -> np.ndarray:
    return on_host(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _as_leaf(array: np.ndarray, leaf: Any) -> Any:
    if not _is_key(leaf):
        return jnp.asarray(array)
    # a key of the same kind: the example may be a shape, which does not say which one it is
    kind = jax.random.key_impl(jnp.empty((), leaf.dtype))
    return jax.random.wrap_key_data(jnp.asarray(array), impl=kind)


def fingerprint(tree: Any) -> str:
    """A text that identifies the content of a tree: equal for equal trees, different for all others.

    Arrays and frozen parameters count with their bytes. Functions count with their code, their defaults and
    the values they have closed over, such as the learning rate inside an optimizer, but not with their
    address in memory. Globals that a function reads from its module do not count. An object of any other
    class counts with its `repr`.

    **Arguments:** `tree`, a tree of arrays, plain values, modules and functions.

    **Returns:** 64 hexadecimal digits.
    """
    digest = hashlib.sha256()
    _feed(digest.update, tree, frozenset())
    return digest.hexdigest()


def _feed(add: Callable[[bytes], Any], node: Any, above: frozenset[int]) -> None:
    """Hash a node recursively; `above` holds the ids of its ancestors."""
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
    """The kind of a node, and either its content or its parts."""
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
    if isinstance(node, set | frozenset):  # the order differs from process to process
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
        function = inspect.unwrap(node)  # without the wrappers of `jax.jit` and the like
        if isinstance(function, types.FunctionType):
            return "function", _parts_of_function(function)
    return kind, node if isinstance(node, bytes) else _ADDRESS.sub("", repr(node)).encode()


def _parts_of_array(node: Any) -> tuple[str, bytes | list[Any]]:
    if jnp.issubdtype(node.dtype, jax.dtypes.prng_key):
        node = jax.random.key_data(node)
    if is_divided(node):
        return f"divided {node.dtype}{node.shape}", digest_of(node)
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
