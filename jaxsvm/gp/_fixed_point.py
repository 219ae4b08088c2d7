"""The loop that mean field theory and expectation propagation share, and its stopping rule."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..results import RESULTS
from ..runtime import is_traced


class Limits(NamedTuple):
    """When an iteration ends: at a residual of `tolerance`, or after `max_iterations`."""

    tolerance: Any
    max_iterations: Any


class Outcome(NamedTuple):
    """How an iteration ended: a code of `jaxsvm.RESULTS`, its length, and its last residual."""

    result: Int[Array, ""]
    iterations: Int[Array, ""]
    residual: Float[Array, ""]


class _Progress(NamedTuple):
    residual: Float[Array, ""]
    least: Float[Array, ""]  # the smallest residual so far
    stalls: Int[Array, ""]  # iterations since the residual last fell below it by 1 %
    iterations: Int[Array, ""]


def check_tolerance(tolerance: Any) -> None:
    """Raise unless the tolerance is None, for the default, or from zero to below one."""
    if tolerance is None or is_traced(tolerance):
        return
    if not 0 <= tolerance < 1:  # a start at zero has a residual of one
        raise ValueError(
            f"`tolerance` must be at least zero and less than one, since it is relative, but is {tolerance}"
        )


def iterate(
    advance: Callable[[Any], tuple[Any, Float[Array, ""]]],
    start: Any,
    residual: Float[Array, ""],
    limits: Limits,
    *,
    patience: int | Int[Array, ""],
    success: RESULTS,
    is_finite: Bool[Array, ""],
) -> tuple[Any, Outcome]:
    """Advance a state until its residual is small, stops falling, or the iteration limit is reached.

    **Arguments:** `advance`, a function from a state to the next state and its residual; `start`, the first
    state, and `residual`, its residual; `limits`; `patience`, the number of iterations without progress
    after which to stop; `success`, the code when the tolerance is reached; `is_finite`, whether the
    kernel matrix is finite.

    **Returns:** the last state and an `Outcome`.
    """

    def body(carry):
        state, progress = carry
        state, residual = advance(state)
        falls = residual < 0.99 * progress.least
        return state, _Progress(
            residual=residual,
            least=jnp.minimum(residual, progress.least),
            stalls=jnp.where(falls, 0, progress.stalls + 1),
            iterations=progress.iterations + 1,
        )

    def unfinished(carry) -> Bool[Array, ""]:
        _, progress = carry
        return (
            (progress.residual > limits.tolerance)
            & (progress.stalls < patience)
            & (progress.iterations < limits.max_iterations)
        )

    zero = jnp.zeros((), int)
    first = (start, _Progress(residual, residual, zero, zero))
    state, last = jax.lax.while_loop(unfinished, body, first)
    ended = {
        RESULTS.nonfinite: ~(is_finite & jnp.isfinite(last.residual)),
        success: last.residual <= limits.tolerance,
        RESULTS.precision_limit: last.stalls >= patience,
    }
    result = jnp.select(list(ended.values()), list(ended), RESULTS.iteration_limit)
    return state, Outcome(result.astype(jnp.int32), last.iterations, last.residual)
