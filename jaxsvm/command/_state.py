"""What an interrupted `tune` leaves behind, for the same command to go on from."""

import hashlib
import json
import threading
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .. import persistence
from ..persistence import FileError
from ..selection import Selection
from ..sklearn._files import described, rebuilt
from ..sklearn._pieces import AbstractKeeper


class State(AbstractKeeper):
    """The best of the searches that are done, and how far those under way have come, in a file.

    **Arguments:** `output`, the model file, beside which the state is kept; `mark`, of the data and
    settings it belongs to; `seconds`, after which searches should end, or None; `say`, which is told
    what became of a state that was there.
    """

    def __init__(self, output: Path, mark: str, seconds: float | None, say: Any):
        self._output = output
        self._mark = mark
        self._end = None if seconds is None else time.monotonic() + seconds
        self._lock = threading.Lock()
        self._is_stopped = False
        self._searches: dict[str, Selection] = {}
        self.done = 0
        self.best: Any = None
        if not self._resume(say):
            self.remove()

    @property
    def path(self) -> Path:
        """The file."""
        return self._output.with_name(self._output.name + ".state")

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
        with self._lock:
            self._write()  # by which the checkpoint is known to belong to this run
        return self.path.with_name(f"{self.path.name}.{self._numbered(name)}".replace(" ", "-"))

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
        """Leave nothing behind."""
        for path in (self.path, *self.path.parent.glob(_literal(self.path.name) + ".*")):
            path.unlink(missing_ok=True)

    def _numbered(self, name: str) -> str:
        return f"search {self.done}, {name}"

    def _write(self) -> None:
        if self._is_stopped:  # whoever interrupted has been told what is there
            return
        best = None if self.best is None else described(self.best)
        content = {"of": self._mark, "done": self.done, "best": best, "searches": self._searches}
        persistence.save(self.path, content)

    def _resume(self, say: Any) -> bool:
        if not self.path.exists():
            return False
        try:
            with jax.enable_x64(True):
                content = persistence.load(self.path)
                if isinstance(content, dict) and content.get("of") == self._mark:
                    self.done, self._searches = int(content["done"]), dict(content["searches"])
                    self.best = None if content["best"] is None else rebuilt(content["best"])
                    say(f"going on after {self.done} searches, by {self.path}")
                    return True
        except (FileError, KeyError, TypeError) as error:
            say(f"{self.path} is of no use, and everything begins anew: {error}")
            return False
        say(f"{self.path} is of other data or settings, and everything begins anew")
        return False


def fingerprint(estimator: Any, x: np.ndarray, y: np.ndarray) -> str:
    """What a state must belong to: the same data and the same settings."""
    digest = hashlib.sha256()
    settings = {k: v for k, v in estimator.get_params().items() if k not in ("verbose", "restarts")}
    digest.update(json.dumps([type(estimator).__name__, settings], sort_keys=True).encode())
    digest.update(np.ascontiguousarray(x).tobytes())
    digest.update("\0".join(map(str, y)).encode())
    return digest.hexdigest()


def _literal(name: str) -> str:
    """A name as a pattern that matches nothing else."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)
