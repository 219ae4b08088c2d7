"""Forked processes: JAX cannot run in a child of a process that has used it."""

import os
from typing import Any

import jax.monitoring

_COMPILING = "/jax/core/compile/"  # how the names of these events begin
_owner: int | None = None  # the process whose threads run JAX's programs


def require_own_process() -> None:
    """Raise in a forked child of a process that has used JAX, where JAX would wait forever.

    A child that was forked before the first use of JAX has threads of its own, and passes.
    """
    if _owner is not None and _owner != os.getpid():
        raise RuntimeError(
            "this process was forked from one that had already used JAX. JAX's threads do not survive a "
            'fork, so it would wait forever. Use joblib\'s "loky" backend (its default), '
            '`multiprocessing.get_context("spawn")` or threads instead, or fork before the first use '
            "of JAX"
        )


def _note_compilation(event: str, duration_secs: float, **_: Any) -> None:
    global _owner
    if _owner is None and event.startswith(_COMPILING):
        _owner = os.getpid()


# whoever compiles: a kernel of the user's or `jnp.asarray` starts JAX's threads as well as a fit
jax.monitoring.register_event_duration_secs_listener(_note_compilation)
