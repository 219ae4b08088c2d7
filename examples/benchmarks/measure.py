"""Time functions, and copy the output of a benchmark to a file."""

import contextlib
import io
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TextIO, TypeVar

import jax
import numpy as np
from numpy.typing import ArrayLike

Value = TypeVar("Value")


def timed(function: Callable[[], Value]) -> tuple[Value, float]:
    """What a function returns, and the seconds until it is computed."""
    begin = time.perf_counter()
    value = function()
    jax.block_until_ready(value)
    return value, time.perf_counter() - begin


def best_time(function: Callable[[], Any], repeats: int) -> float:
    """The seconds of the fastest of several calls, after one that compiles."""
    timed(function)
    return min(timed(function)[1] for _ in range(repeats))


def growth(sizes: ArrayLike, costs: ArrayLike) -> float:
    """The exponent p of a cost that grows like `size^p`: the slope of log cost against log size."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


@contextlib.contextmanager
def printed_to(path: Path | None) -> Generator[None]:
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
    """A stream that writes to others."""

    def __init__(self, *streams: TextIO):
        self.streams = streams

    def write(self, text: str) -> int:
        """Write to all of them."""
        for stream in self.streams:
            stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush all of them."""
        for stream in self.streams:
            stream.flush()
