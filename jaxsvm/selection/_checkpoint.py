"""Long runs that can be killed and then continue as if nothing had happened."""

import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..persistence import FileError, load_as, require_writable, save_as
from ._fingerprint import fingerprint

_KIND = "checkpoint"  # of file
_HINT = "an unfinished search: pass its path as `checkpoint` to `jaxsvm.select`"
_FORMAT = 3


class Checkpoint:
    """A file with the state and the history of each start, in the format of `jaxsvm.save`.

    It belongs to one run: a fingerprint tells apart models, data, keys, optimizers and settings.

    **Arguments:** `path`, of the file, or None for nothing to be saved; `identity`, a tree of all that
    decides the course of the run.
    """

    def __init__(self, path: str | Path | None, identity: Any):
        self._path = None if path is None else Path(path)
        self._fingerprint = "" if path is None else fingerprint(identity)
        self._lock = threading.Lock()
        self._entries: dict[int, tuple[list[np.ndarray], int]] = {}
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            require_writable(self._path)  # now, and not after the first step
            if self._path.exists():
                self._read()

    def has(self, start: int) -> bool:
        """Whether a start has been saved."""
        return start in self._entries

    def load(self, start: int, example: Any) -> Any:
        """The state of a saved start, with the structure of `example`."""
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
        """Remember a start, on disk."""
        if self._path is None:
            return
        with self._lock:
            self._entries[start] = ([_as_array(leaf) for leaf in jax.tree.leaves(tree)], steps)
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
                "take another file, or remove it to start over"
            )
        if content.get("fingerprint") != self._fingerprint:
            raise ValueError(
                f"{self._path} belongs to a run with another model, data, key or settings (those of the "
                "optimizer and of when to stop included): take another file, or remove it to start over"
            )
        starts = content.get("starts")
        if not isinstance(starts, dict) or not all(map(_is_entry, starts.values())):
            raise ValueError(
                f"{self._path} is not a checkpoint, or is damaged: remove it to start over"
            )
        self._entries = {
            start: (entry["leaves"], entry["steps"]) for start, entry in starts.items()
        }


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or set(entry) != {"steps", "leaves"}:
        return False
    steps, leaves = entry["steps"], entry["leaves"]
    whole = type(steps) is int and steps >= 0 and isinstance(leaves, list)
    return whole and all(isinstance(leaf, np.ndarray) for leaf in leaves)


def _fits(array: np.ndarray, leaf: Any, steps: int) -> bool:
    """Whether an array can take the place of a leaf; a history in the example has no rows yet."""
    if leaf.shape[:1] == (0,):
        return array.shape == (steps, *leaf.shape[1:]) and array.dtype.kind in "biuf"
    example = _as_array(leaf)
    return array.shape == example.shape and array.dtype == example.dtype


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _as_array(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _as_leaf(array: np.ndarray, leaf: Any) -> Any:
    if _is_key(leaf):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    return jnp.asarray(array)
