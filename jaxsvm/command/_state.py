"""Where `tune` saves its progress, so that an interrupted run resumes."""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from .. import selection
from ..persistence import WriteError, require_writable

_MARK = 12  # digits of a mark in the name of a folder
_IS_MARK = re.compile(f"[0-9a-f]{{{_MARK}}}")
_IS_CHECKPOINT = re.compile(r"[a-z0-9-]+\.jaxsvm")


class State:
    """A folder beside the output with the progress of all searches.

    The name of the folder has a part of the mark, so that runs with other data or settings have other
    folders. A run removes its own folder, with the checkpoints in it, and no other file.

    **Arguments:** `output`, the model file; `mark`, of the data and settings; `say`, which is told whether
    the run resumes, and of unfinished runs with other data or settings.
    """

    def __init__(self, output: Path, mark: str, say: Any):
        self._output = output
        self.folder = output.with_name(f"{output.name}.{mark[:_MARK]}.state")
        for other in self._others():
            say(f"{other} belongs to an unfinished run with other data or settings, and is kept")
        has_begun = os.path.isdir(self.folder)  # false for a name that is too long
        require_writable(self.folder / "search.jaxsvm" if has_begun else self.folder)
        if self.folder.is_symlink():  # to a folder whose files are not this run's to remove
            raise WriteError(f"{self.folder} is a link: remove it")
        if self.checkpoints():
            say(f"resuming from {self.folder}")

    def checkpoints(self) -> list[Path]:
        """The files of searches that have been saved."""
        with suppress(OSError):  # there is no such folder
            names = sorted(os.listdir(self.folder))
            return [self.folder / name for name in names if _IS_CHECKPOINT.fullmatch(name)]
        return []

    def remove(self) -> None:
        """Remove the checkpoints and their folder; a folder that holds anything else stays."""
        for path in self.checkpoints():
            with suppress(OSError):  # a folder of that name
                path.unlink(missing_ok=True)
        self.remove_empty()

    def remove_empty(self) -> None:
        """Remove the folder if it holds nothing."""
        with suppress(OSError):
            self.folder.rmdir()

    def _others(self) -> list[Path]:
        """Folders of unfinished runs with the same output."""
        prefix = self._output.name + "."
        found, names = [], []
        with suppress(OSError):  # of a folder that can be written, but not listed
            names = os.listdir(self._output.parent)
        for path in map(self._output.with_name, names):
            mark = path.name.removeprefix(prefix).removesuffix(".state")
            is_state = path.name == f"{prefix}{mark}.state" and _IS_MARK.fullmatch(mark)
            if is_state and path != self.folder:
                found.append(path)
        return sorted(found)


def fingerprint(estimator: Any, x: np.ndarray, y: np.ndarray) -> str:
    """The mark of a run: a hash of its data and settings."""
    apart = ("verbose", "seconds", "checkpoint")
    settings = {k: v for k, v in estimator.get_params().items() if k not in apart}
    return selection.fingerprint((type(estimator).__name__, settings, x, list(map(str, y))))
