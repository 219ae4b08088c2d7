"""Compiled programs that are dropped before a process has too many of them.

On a CPU a program takes up to a thousand memory maps. Linux allows a process 65,530 of them by default
(`vm.max_map_count`); at the limit, the next compilation ends the process. So `jit` and `filter_jit` keep the
programs of each combination of shapes apart. Before they compile another one, `make_room` drops the least
recently used programs if more than a quarter of the limit is in use. A program that is needed again is
compiled again.
"""

import ctypes
import functools
import gc
import inspect
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import jax.core
import numpy as np

from ._fork import require_own_process
from ._reporting import announce_compilation, logger

_MAPS = Path("/proc/self/maps")
_LIMIT = Path("/proc/sys/vm/max_map_count")
_FULL, _ENOUGH = 1 / 4, 1 / 6  # of the limit: when to drop programs, and when to stop dropping
_CROWDED = 1 / 2  # of the limit: when to drop programs compiled elsewhere as well
_MORE = 1 / 8  # of the limit: how many maps may be added before programs are dropped again
_PORTION = 1 / 4  # of all programs: how many to drop before maps are counted again
_ROUNDS = 4  # every fourth time, all caches are cleared

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Key = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]  # a function, and shapes


class _Programs:
    """One jitted function for each function and combination of shapes, least recently used first."""

    def __init__(self):
        self._jitted: OrderedDict[_Key, Any] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: _Key) -> Any | None:
        """The jitted function of a key, which becomes the most recently used; None if there is none."""
        with self._lock:
            jitted = self._jitted.get(key)
            if jitted is not None:
                self._jitted.move_to_end(key)
            return jitted

    def add(self, key: _Key, jitted: Any) -> Any:
        """Add the jitted function of a key; return it, or the one that another thread has added meanwhile."""
        with self._lock:
            return self._jitted.setdefault(key, jitted)

    def of(self, function: Callable[..., Any]) -> list[Any]:
        """All jitted functions of a function."""
        with self._lock:
            return [jitted for key, jitted in self._jitted.items() if key[0] is function]

    def drop_oldest(self, share: float) -> int:
        """Drop a share of all jitted functions, least recently used first; return their number.

        A program that another thread is running stays until it ends: the call holds a reference.
        """
        with self._lock:
            count = math.ceil(share * len(self._jitted))
            dropped = [self._jitted.popitem(last=False)[1] for _ in range(count)]
        for jitted in dropped:
            jitted.clear_cache()
        return count


_PROGRAMS = _Programs()
_ROOM = threading.Lock()
_rounds = 0
_left = 0  # memory maps after the last round


def is_traced(*values: Any) -> bool:
    """Whether any of the values is traced, so that its numbers are not known yet.

    **Arguments:** `values`, pytrees.

    **Returns:** true if at least one leaf is traced.
    """
    return any(isinstance(v, jax.core.Tracer) for v in jax.tree.leaves(values))


def jit(function: _Function, **options: Any) -> _Function:
    """`jax.jit` for functions of modules, with programs that `make_room` can drop shape by shape.

    **Arguments:** `function`, a pure one; `options`, as for `jax.jit`.

    **Returns:** the compiled function.
    """

    @functools.wraps(function)
    def call(*args, **kwargs):
        require_own_process()
        arrays = [leaf for leaf in jax.tree.leaves((args, kwargs)) if eqx.is_array(leaf)]
        return _jitted(function, function, arrays, options)(*args, **kwargs)

    return cast(_Function, call)


def filter_jit(function: _Function) -> _Function:
    """`equinox.filter_jit` with programs that `make_room` can drop: arrays are traced, all else is static.

    **Arguments:** `function`, a pure one that returns arrays.

    **Returns:** the compiled function, which returns when its arrays are ready.
    """

    @functools.wraps(function)
    def run(arrays, static):
        structure, others = static
        leaves = [
            other if array is None else array for array, other in zip(arrays, others, strict=True)
        ]
        args, kwargs = jax.tree.unflatten(structure, leaves)
        return function(*args, **kwargs)

    # `run` does not have the arguments that `wraps` would claim
    del run.__wrapped__

    @functools.wraps(function)
    def call(*args, **kwargs):
        require_own_process()
        leaves, structure = jax.tree.flatten((args, kwargs))
        arrays = [leaf if eqx.is_array(leaf) else None for leaf in leaves]
        others = tuple(None if eqx.is_array(leaf) else leaf for leaf in leaves)
        shaped = [array for array in arrays if array is not None]
        jitted = _jitted(function, run, shaped, {"static_argnums": 1})
        return jax.block_until_ready(jitted(arrays, (structure, others)))

    return cast(_Function, call)


def _jitted(
    function: Callable[..., Any],
    run: Callable[..., Any],
    arrays: list[Any],
    options: dict[str, Any],
) -> Any:
    """The function jitted for arguments of these shapes only."""
    key = function, tuple(np.shape(array) for array in arrays)
    jitted = _PROGRAMS.find(key)
    if jitted is not None:
        return jitted
    if not is_traced(*arrays):  # a traced call becomes part of another program
        make_room()
        announce_compilation(function.__name__)

    @functools.wraps(run)  # a new function: JAX keeps the programs of each function together
    def call(*args, **kwargs):
        return run(*args, **kwargs)

    return _PROGRAMS.add(key, jax.jit(call, **options))


def make_room() -> None:
    """Drop programs, least recently used first, if the process approaches its limit of memory maps.

    If a process has many other maps, nothing is dropped until it has an eighth of the limit more than after
    the last round, or half of the limit. If half of the limit is in use and dropping our programs does not
    help, `jax.clear_caches` also drops programs compiled elsewhere. It is called in every fourth round as
    well, since JAX's record of tracing a program, some megabytes, stays when the program is dropped.
    On systems other than Linux this does nothing.
    """
    global _rounds, _left
    limit = _limit()
    if limit is None or not _ROOM.acquire(blocking=False):  # another thread does it
        return
    try:
        if count_maps() <= max(_FULL * limit, min(_left + _MORE * limit, _CROWDED * limit)):
            return
        _rounds += 1
        helped = False
        while not helped and _PROGRAMS.drop_oldest(_PORTION):
            gc.collect()  # programs are parts of cycles
            helped = count_maps() <= _ENOUGH * limit
        crowded = not helped and count_maps() > _CROWDED * limit
        if crowded or _rounds % _ROUNDS == 0:
            jax.clear_caches()
            gc.collect()
        _return_memory()
        _left = count_maps()
        logger.info("dropped compiled programs: %d of %d memory maps are left", _left, limit)
    finally:
        _ROOM.release()


def _return_memory() -> None:
    """Make the C library return freed memory to the system; otherwise it may keep gigabytes."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # only glibc has it
        return
    trim(0)


def programs_of(function: Callable[..., Any]) -> list[Any]:
    """The jitted functions behind a function, one for each combination of shapes.

    **Arguments:** `function`, as returned by `jit` or `filter_jit`.

    **Returns:** the jitted functions that have not been dropped.
    """
    return _PROGRAMS.of(inspect.unwrap(function, stop=_PROGRAMS.of))


def count_maps() -> int:
    """The number of memory maps of this process; zero if the system does not report it."""
    try:
        return _MAPS.read_bytes().count(b"\n")
    except OSError:
        return 0


@functools.cache
def _limit() -> int | None:
    try:
        return int(_LIMIT.read_text())
    except (OSError, ValueError):
        return None
