"""Progress of `tune` in a file, from which an interrupted run resumes."""

import hashlib
import json
import os
import re
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .. import persistence
from ..persistence import FileError
from ..selection import Selection
from ..sklearn import AbstractKeeper, described, rebuilt

_KIND = "state"  # of file
_HINT = "an unfinished run of `jaxsvm tune`: run the same command again to resume"
_MARK = 12  # digits of a mark in the name of a file
_IS_MARK = re.compile(f"[0-9a-f]{{{_MARK}}}")


class State(AbstractKeeper):
    """The best of the finished searches, and the progress of the others, in a file beside the output.

    The name of the file has a part of the mark, so that runs with other data or settings have other files.
    A run removes its own file and the checkpoints that it has recorded there, and no other file.

    **Arguments:** `output`, the model file; `mark`, of the data and settings; `seconds`, after which
    searches should end, or None; `say`, which is told whether the run resumes.
    """

    def __init__(self, output: Path, mark: str, seconds: float | None, say: Any):
        self._output = output
        self._mark = mark
        self._end = None if seconds is None else time.monotonic() + seconds
        self._lock = threading.Lock()
        self._is_stopped = False
        self._searches: dict[str, Selection] = {}
        self._checkpoints: list[str] = []
        self.done = 0
        self.best: Any = None
        persistence.require_writable(self.path)  # now, and not after the first steps
        self._resume(say)

    @property
    def path(self) -> Path:
        """The file."""
        return self._output.with_name(f"{self._output.name}.{self._mark[:_MARK]}.state")

    def found(self, name: str) -> Selection | None:
        """What was kept of a search, if anything was."""
        return self._searches.get(self._numbered(name))

    def keep(self, name: str, search: Selection) -> None:
        """Remember what a search has found so far."""
        with self._lock:
            self._searches[self._numbered(name)] = search
            self._write()

    def checkpoint(self, name: str) -> Path:
        """The file in which an ascent of the evidence keeps its state."""
        path = self.path.with_suffix(
            f".{self._numbered(name)}.state".replace(", ", "-").replace(" ", "-")
        )
        with self._lock:
            if path.name not in self._checkpoints:
                self._checkpoints.append(path.name)
            self._write()  # so that a later run knows that the checkpoint belongs to it
        return path

    def is_over(self) -> bool:
        """Whether searches should end as soon as they have something."""
        return self._is_stopped or (self._end is not None and time.monotonic() > self._end)

    def stop(self) -> None:
        """End searches that are still running in threads of their own."""
        self._is_stopped = True

    def finish_search(self, candidate: Any) -> None:
        """Another search is done: remember the better one, and no longer what was under way."""
        with self._lock:
            if self.best is None or candidate._score() < self.best._score():
                self.best = candidate
            self.done += 1
            self._searches.clear()
            self._write()

    def remove(self) -> None:
        """Remove the files that this run has written."""
        for name in (*self._checkpoints, self.path.name):
            self.path.with_name(name).unlink(missing_ok=True)

    def _numbered(self, name: str) -> str:
        return f"search {self.done}, {name}"

    def _write(self) -> None:
        if self._is_stopped:  # whoever interrupted has been told what is there
            return
        best = None if self.best is None else described(self.best)
        content = {
            "of": self._mark,
            "done": self.done,
            "best": best,
            "searches": self._searches,
            "checkpoints": self._checkpoints,
        }
        persistence.save_as(_KIND, self.path, content, hint=_HINT)

    def _resume(self, say: Any) -> None:
        for other in self._others():
            say(f"{other} belongs to an unfinished run with other data or settings, and is kept")
        if not self.path.exists():
            return
        try:
            with jax.enable_x64(True):
                content = _checked(persistence.load_as(_KIND, self.path), self._mark)
                best = None if content["best"] is None else rebuilt(content["best"])
        except FileError as error:
            say(f"{self.path} cannot be used; starting over: {error}")
            return
        prefix = self.path.name.removesuffix("state")
        self.done, self.best, self._searches = content["done"], best, content["searches"]
        # a name from a file is not trusted with the removal of other files
        names = content["checkpoints"]
        self._checkpoints = [name for name in names if name.startswith(prefix) and "/" not in name]
        say(f"resuming after {self.done} finished searches, from {self.path}")

    def _others(self) -> list[Path]:
        """States of unfinished runs with the same output."""
        prefix = self._output.name + "."
        found, names = [], []
        with suppress(OSError):  # of a folder that can be written, but not listed
            names = os.listdir(self._output.parent)
        for path in map(self._output.with_name, names):
            mark = path.name.removeprefix(prefix).removesuffix(".state")
            is_state = path.name == f"{prefix}{mark}.state" and _IS_MARK.fullmatch(mark)
            if is_state and path != self.path:
                found.append(path)
        return sorted(found)


def _checked(content: Any, mark: str) -> dict[str, Any]:
    """The content of a state, if it is of the right kind; a `FileError` otherwise."""
    kinds = {"done": int, "searches": dict, "checkpoints": list}
    sound = isinstance(content, dict) and set(content) == {"of", "best", *kinds}
    sound = sound and all(type(content[name]) is kind for name, kind in kinds.items())
    if not sound or content["of"] != mark or content["done"] < 0:
        raise FileError("it is not the state of this run")
    searches = content["searches"].items()
    if not all(isinstance(n, str) and isinstance(s, Selection) for n, s in searches):
        raise FileError("it holds something else than searches")
    if not all(isinstance(name, str) for name in content["checkpoints"]):
        raise FileError("it holds something else than the names of checkpoints")
    return content


def fingerprint(estimator: Any, x: np.ndarray, y: np.ndarray) -> str:
    """The mark of a run: a hash of its data and settings."""
    digest = hashlib.sha256()
    settings = {k: v for k, v in estimator.get_params().items() if k not in ("verbose", "restarts")}
    digest.update(json.dumps([type(estimator).__name__, settings], sort_keys=True).encode())
    digest.update(np.ascontiguousarray(x).tobytes())
    digest.update("\0".join(map(str, y)).encode())
    return digest.hexdigest()
