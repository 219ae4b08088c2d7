"""Several independent runs at a time, one on each core."""

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax


def map_in_threads(run_one: Callable[[int], Any], count: int) -> list[Any]:
    """`[run_one(0), run_one(1), ...]`, as many at a time as there are cores."""
    if count == 1:
        return [run_one(0)]
    first = run_one(0)  # compiles, which the others should not all do again
    precision = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]

    def run_in_thread(start):
        with jax.enable_x64(precision):  # a context of the caller's thread does not reach others
            return run_one(start)

    with _one_blas_thread(), ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return [first, *pool.map(run_in_thread, range(1, count))]


def _one_blas_thread():
    """Where it can be told: linear algebra with threads of its own would fight over the same cores."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:  # it comes with scikit-learn
        return contextlib.nullcontext()
    return threadpool_limits(1)
