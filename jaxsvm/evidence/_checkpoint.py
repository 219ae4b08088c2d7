"""Long runs that can be killed and go on as if nothing had happened."""

import json
import os
import threading
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._identity import fingerprint

_FORMAT = 2


class Checkpoint:
    """A file with the state and the history of each start, written whole and at once.

    It holds arrays and one line of text, no code. It belongs to one run: model, data, key, optimizer and
    settings are told apart by a fingerprint.

    **Arguments:** `path`, of the file, or None for nothing to be saved; `identity`, a tree of all that
    makes out the run.
    """

    def __init__(self, path: str | Path | None, identity: Any):
        self._path = None if path is None else Path(path)
        self._fingerprint = "" if path is None else fingerprint(identity)
        self._lock = threading.Lock()
        self._entries: dict[int, tuple[list[np.ndarray], int]] = {}
        if self._path is not None and self._path.exists():
            self._read()

    def load(self, start: int, example: Any) -> tuple[Any, int] | None:
        """State and number of steps of a start, with the structure of `example`; None if there is none."""
        if start not in self._entries:
            return None
        arrays, steps = self._entries[start]
        leaves, structure = jax.tree.flatten(example)
        if len(leaves) != len(arrays):
            raise ValueError(f"{self._path} was written by another version of this library")
        return structure.unflatten([jnp.asarray(array) for array in arrays]), steps

    def save(self, start: int, tree: Any, steps: int) -> None:
        """Remember a start, on disk."""
        if self._path is None:
            return
        with self._lock:
            self._entries[start] = ([np.asarray(leaf) for leaf in jax.tree.leaves(tree)], steps)
            self._write()

    def _write(self) -> None:
        assert self._path is not None
        arrays = {
            f"{start}/{place}": array
            for start, (leaves, _) in self._entries.items()
            for place, array in enumerate(leaves)
        }
        steps = {str(start): steps for start, (_, steps) in self._entries.items()}
        about = {"format": _FORMAT, "fingerprint": self._fingerprint, "steps": steps}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_name(self._path.name + ".partial")
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, about=np.array(json.dumps(about)), **arrays)
        os.replace(temporary, self._path)

    def _read(self) -> None:
        assert self._path is not None
        try:
            with self._path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                content = {name: file[name] for name in file.files}
            about = json.loads(str(content.pop("about")))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{self._path} is not a checkpoint, or is damaged: remove it to begin anew"
            ) from error
        if about.get("format") != _FORMAT:
            raise ValueError(f"{self._path} was written by another version of this library")
        if about["fingerprint"] != self._fingerprint:
            raise ValueError(
                f"{self._path} belongs to a run with another model, data, key or settings (those of the "
                "optimizer and of when to stop included): take another file, or remove it to begin anew"
            )
        for start, steps in about["steps"].items():
            count = sum(name.startswith(f"{start}/") for name in content)
            leaves = [content[f"{start}/{place}"] for place in range(count)]
            self._entries[int(start)] = (leaves, int(steps))
