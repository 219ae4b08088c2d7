"""Several independent runs at a time, one on each core."""

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax

_LARGE = 3000  # examples, from which on factorizations gain from threads of their own


def map_in_threads(
    run_one: Callable[[int], Any],
    count: int,
    examples: int,
    compile_it: Callable[[], Any] | None = None,
) -> list[Any]:
    """`[run_one(0), run_one(1), ...]`, as many at a time as there are cores.

    **Arguments:** `run_one`, which takes the number of a run; `count`, of runs; `examples`, of each;
    `compile_it`, called first, so that not each thread compiles the same; without it the first run
    goes alone.

    **Returns:** what the runs gave back.
    """
    if count == 1:
        # on a busy machine threads that wait for each other make small factorizations a hundred times
        # slower
        with contextlib.nullcontext() if examples >= _LARGE else _one_blas_thread():
            return [run_one(0)]
    precision = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]

    def run_in_thread(start):
        with jax.enable_x64(precision):  # a context of the caller's thread does not reach others
            return run_one(start)

    with _one_blas_thread(), _pool() as pool:
        if compile_it is None:
            return [run_one(0), *pool.map(run_in_thread, range(1, count))]
        compile_it()
        return list(pool.map(run_in_thread, range(count)))


@contextlib.contextmanager
def _pool():
    """A pool that does not wait for its threads when the caller is interrupted."""
    pool = ThreadPoolExecutor(os.cpu_count() or 1)
    waits = True
    try:
        yield pool
    except KeyboardInterrupt:
        waits = False
        raise
    finally:
        pool.shutdown(wait=waits, cancel_futures=True)


def _one_blas_thread():
    """Where it can be told: linear algebra with threads of its own would fight over the same cores."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:  # it comes with scikit-learn
        return contextlib.nullcontext()
    return threadpool_limits(1)
