"""What a benchmark prints, shown and kept in a file."""

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def printed_to(path: Path | None) -> Iterator[None]:
    """Whatever is printed inside also goes into the file, line by line, since benchmarks take long.

    Without a path it is only shown.
    """
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", buffering=1) as file, contextlib.redirect_stdout(_Both(sys.stdout, file)):
        yield


class _Both(io.TextIOBase):
    """Two places to write to."""

    def __init__(self, first, second):
        self.places = (first, second)

    def write(self, text):
        """To both."""
        for place in self.places:
            place.write(text)
        return len(text)

    def flush(self):
        """Both."""
        for place in self.places:
            place.flush()
