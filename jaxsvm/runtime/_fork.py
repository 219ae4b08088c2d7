"""Protection from forked processes, in which JAX would hang."""

import os
from typing import Any

import jax.monitoring

_COMPILING = "/jax/core/compile/"  # the prefix of JAX's events
_owner: int | None = None  # the process whose threads run JAX's programs


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
