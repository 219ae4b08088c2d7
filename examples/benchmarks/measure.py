"""Time a function, and copy the output of a benchmark to a file."""

import contextlib
import io
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax


def best_time(function, repeats: int) -> float:
    """The seconds of the fastest of several calls, after one that compiles."""
    jax.block_until_ready(function())
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - begin)
    return min(times)


@contextlib.contextmanager
def printed_to(path: Path | None) -> Iterator[None]:
    """Copy printed output to the file, line by line, since benchmarks take long.

    If the path is None, only print.
    """
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", buffering=1) as file, contextlib.redirect_stdout(_Both(sys.stdout, file)):
        yield


class _Both(io.TextIOBase):
    """A stream that writes to two others."""

    def __init__(self, first, second):
        self.streams = (first, second)

    def write(self, text):
        """Write to both."""
        for stream in self.streams:
            stream.write(text)
        return len(text)

    def flush(self):
        """Flush both."""
        for stream in self.streams:
            stream.flush()
