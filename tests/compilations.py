"""How often functions of the library, and programs of any kind, were compiled."""

import jax.monitoring

from jaxsvm.runtime import programs_of

_COMPILED = "/jax/core/compile/backend_compile_duration"
_durations: list[float] = []


def compilations(function) -> int:
    """The number of compiled programs of a function."""
    return sum(jitted._cache_size() for jitted in programs_of(function))


def programs_so_far() -> int:
    """The number of programs this process has compiled, or taken from a cache on disk."""
    return len(_durations)


def _listen(event: str, duration_secs: float, **_):
    if event == _COMPILED:
        _durations.append(duration_secs)


jax.monitoring.register_event_duration_secs_listener(_listen)
