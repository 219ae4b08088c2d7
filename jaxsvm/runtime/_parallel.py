"""Runs in parallel, in threads under the settings of the caller or on groups of devices."""

import contextlib
import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
from threadpoolctl import threadpool_limits

from ._devices import device_groups, move_to

_LARGE = 3000  # the number of examples from which factorizations gain from several threads


def map_in_threads(
    run_one: Callable[[int], Any],
    count: int,
    examples: int,
    compile_it: Callable[[], Any] | None = None,
) -> list[Any]:
    """Compute `[run_one(0), run_one(1), ...]`, as many at a time as there are cores.

    Each run has the caller's context variables and JAX settings, such as
    `jax.default_matmul_precision("highest")` or `jax.debug_nans(True)`, which JAX keeps per thread. If a
    setting cannot be passed to another thread, all runs happen in the caller's thread, one after the other.

    **Arguments:** `run_one`, a function of the number of a run; `count`, the number of runs; `examples`, the
    number of examples of each; `compile_it`, called first, so that the program is compiled once, not once
    per thread; without it, the first run ends before the others begin.

    **Returns:** the results of the runs, in order.
    """
    if count == 1:
        # on a busy machine, threads that wait for each other slow small factorizations a hundredfold
        with contextlib.nullcontext() if examples >= _LARGE else one_blas_thread:
            return [run_one(0)]
    settings = _Settings()
    with one_blas_thread, _pool() as pool:
        if not pool.submit(settings.run, settings.hold).result():
            return [run_one(number) for number in range(count)]
        done = []
        if compile_it is None:
            done.append(run_one(0))
        else:
            compile_it()
        rest = range(len(done), count)
        return done + list(pool.map(lambda number: settings.run(run_one, number), rest))


def map_over_data(
    run_one: Callable[[int, Any], Any],
    count: int,
    shared: Any,
    x: Any,
    compile_it: Callable[[], Any] | None = None,
) -> list[Any]:
    """Compute `[run_one(0, shared), run_one(1, shared), ...]` where the data are.

    On one device the runs are in threads, as those of `map_in_threads`. Where devices share the rows of the
    data, they must work together, so the runs are one after the other. If the mesh has a second axis, each
    group of devices along it takes some of the runs.

    **Arguments:** `run_one`, a function of the number of a run and of `shared`; `count`, the number of runs;
    `shared`, a pytree of data, models and keys; `x`, the inputs among the data; `compile_it`, called first if
    the runs are in threads.

    **Returns:** the results of the runs, in order, on the devices of the data.
    """
    groups = device_groups(x)
    if not groups:
        return map_in_threads(lambda run: run_one(run, shared), count, x.shape[0], compile_it)
    if len(groups) == 1:
        return [run_one(number, shared) for number in range(count)]

    def run_group(group: int) -> list[Any]:
        own = move_to(groups[group], shared)
        runs = range(group, count, len(groups))
        return [move_to(x.sharding.mesh, run_one(number, own)) for number in runs]

    settings = _Settings()
    with _pool() as pool:
        if pool.submit(settings.run, settings.hold).result():
            numbers = range(len(groups))
            parts = list(pool.map(lambda number: settings.run(run_group, number), numbers))
        else:
            parts = [run_group(number) for number in range(len(groups))]
    return [parts[number % len(groups)][number // len(groups)] for number in range(count)]


class _Settings:
    """Context variables and JAX settings of the thread that creates this object, for other threads.

    Only public names of JAX are used: the option `jax_debug_nans` has the context manager
    `jax.debug_nans`. Settings without one, such as a mesh or a user context, are noticed by `hold`.
    """

    def __init__(self):
        self._variables = contextvars.copy_context()
        self._options = dict(jax.config.values)
        self._traces = 0

        @jax.jit
        def probe():
            self._traces += 1
            return jnp.zeros(())

        self._probe = probe
        jax.eval_shape(probe)

    def run(self, function: Callable, *arguments: Any) -> Any:
        """Call a function in another thread, under these settings."""
        return self._variables.copy().run(self._run, function, *arguments)

    def _run(self, function, *arguments):
        with contextlib.ExitStack() as stack:
            for name, value in _differences(self._options):
                manager = getattr(jax, name.removeprefix("jax_"), None)
                if manager is not None:
                    stack.enter_context(manager(value))
            return function(*arguments)

    def hold(self) -> bool:
        """Whether this thread has the same options and everything else that programs depend on.

        JAX traces a function again if a program from another thread does not fit.
        """
        before = self._traces
        jax.eval_shape(self._probe)
        return not _differences(self._options) and self._traces == before


def _differences(options: dict[str, Any]) -> list[tuple[str, Any]]:
    """The options that have a different value in this thread."""
    here = jax.config.values
    return [(name, value) for name, value in options.items() if here[name] != value]


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


class _OneBlasThread:
    """A context in which linear algebra uses one thread, since the runs already use all cores.

    The number of threads belongs to the process. So the first to enter sets it and the last to leave
    restores it, however the contexts of several threads overlap.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._inside = 0
        self._limits: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limits = threadpool_limits(1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: Any) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limits.restore_original_limits()
                self._limits = None


one_blas_thread: _OneBlasThread = _OneBlasThread()
