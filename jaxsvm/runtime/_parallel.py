"""Runs in parallel threads under the settings of the caller, and protection from forked processes."""

import contextlib
import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
from threadpoolctl import threadpool_limits

_LARGE = 3000  # the number of examples from which factorizations gain from several threads
_COMPILING = "/jax/core/compile/"  # the prefix of JAX's events
_owner: int | None = None  # the process whose threads run JAX's programs


def map_in_threads(
    run_one: Callable[[int], Any],
    count: int,
    examples: int,
    compile_it: Callable[[], Any] | None = None,
    in_order: bool = False,
) -> list[Any]:
    """Compute `[run_one(0), run_one(1), ...]`, as many at a time as there are cores.

    Each run has the caller's context variables and JAX settings, such as
    `jax.default_matmul_precision("highest")` or `jax.debug_nans(True)`, which JAX keeps per thread. If a
    setting cannot be passed to another thread, all runs happen in the caller's thread, one after the other.

    **Arguments:** `run_one`, a function of the number of a run; `count`, the number of runs; `examples`, the
    number of examples of each; `compile_it`, called first, so that the program is compiled once, not once
    per thread; without it, the first run ends before the others begin; `in_order`, whether to run one after
    the other, as programs must that several devices or processes run together.

    **Returns:** the results of the runs, in order.
    """
    if count == 1:
        # on a busy machine, threads that wait for each other slow small factorizations a hundredfold
        with contextlib.nullcontext() if examples >= _LARGE else one_blas_thread:
            return [run_one(0)]
    if in_order:
        return [run_one(number) for number in range(count)]
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


def require_own_process() -> None:
    """Raise an error in a forked child of a process that has used JAX, where JAX would hang.

    A child that was forked before the first use of JAX starts its own threads, and passes.
    """
    if _owner is not None and _owner != os.getpid():
        raise RuntimeError(
            "this process was forked from one that had already used JAX. JAX's threads do not survive a "
            'fork, so it would hang. Use joblib\'s "loky" backend (its default), '
            '`multiprocessing.get_context("spawn")` or threads instead, or fork before the first use '
            "of JAX"
        )


def _note_compilation(event: str, duration_secs: float, **_: Any) -> None:
    global _owner
    if _owner is None and event.startswith(_COMPILING):
        _owner = os.getpid()


# any compilation counts: `jnp.asarray` starts JAX's threads as well as a fit
jax.monitoring.register_event_duration_secs_listener(_note_compilation)
