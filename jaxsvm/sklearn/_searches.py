"""The searches of one fit: where they save their progress, and how long they may take."""

import re
import time
from pathlib import Path
from typing import Any, NamedTuple

from ..validation import check_number


class Searches(NamedTuple):
    """What all searches of a fit share.

    `folder` is where each of them has a file of its own, or None; `deadline` is the time (of
    `time.monotonic`) after which they end, or None; `verbose` is whether to show progress.
    """

    folder: Path | None
    deadline: float | None
    verbose: bool

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.deadline is not None and time.monotonic() > self.deadline

    def options(self, name: str) -> dict[str, Any]:
        """The options of `jaxsvm.select` for the search of that name."""
        file = None
        if self.folder is not None:
            file = self.folder / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.jaxsvm"
        left = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
        return {"checkpoint": file, "seconds": left, "progress": self.verbose}


def as_searches(checkpoint: Any, seconds: Any, verbose: bool) -> Searches:
    """What the parameters of an estimator mean, after checks; the time begins now."""
    folder = None
    if checkpoint is not None:
        if not isinstance(checkpoint, str | Path) or str(checkpoint) == "":
            raise TypeError(f"`checkpoint` must be the path of a folder, not {checkpoint!r}")
        folder = Path(checkpoint)
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"`checkpoint` must be a folder, but {folder} is a file")
        folder.mkdir(parents=True, exist_ok=True)
    if seconds is None:
        return Searches(folder, None, bool(verbose))
    check_number("seconds", seconds, least=0)
    return Searches(folder, time.monotonic() + seconds, bool(verbose))
