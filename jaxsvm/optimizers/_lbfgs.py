"""L-BFGS with a line search that needs one evaluation per step."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from ..validation import check_count, check_number

_SUFFICIENT = 1e-4  # a step has to achieve this share of the decrease that the slope predicts
_SHORTEST = 1e-10  # of a step, relative to the first one tried on its line


class LBFGSState(NamedTuple):
    """The last accepted point, the line of the present search, and past differences."""

    point: Float[Array, " p"]
    value: Float[Array, ""]
    gradient: Float[Array, " p"]
    direction: Float[Array, " p"]
    step: Float[Array, ""]
    first_step: Float[Array, ""]  # the first one tried on this line
    moves: Float[Array, "m p"]
    changes: Float[Array, "m p"]
    recent: Float[Array, " w"]  # the last accepted values; -inf before there are any
    begun: Bool[Array, ""]


def lbfgs(
    memory_size: int = 10,
    max_move: float = 2.0,
    window: int = 1,
    first_move: float | None = None,
) -> optax.GradientTransformationExtraArgs:
    """L-BFGS as an optax transformation that never evaluates the function by itself.

    Each update receives the value and the gradient at the last trial point. If the value has decreased
    enough, the point is accepted and a new line begins; otherwise the update goes back to a shorter step on
    the same line. So one step costs exactly one evaluation, and optimizations in a batch do not wait for
    each other's line searches, as they do with `optax.lbfgs`. A value that is not finite does not count as a
    decrease. The last parameters may be a rejected trial: keep the best ones, as `jaxsvm.select` does.

    **Arguments:**

    - `memory_size`: the number of past differences that shape the direction.
    - `max_move`: the largest move of any parameter in one step, in its (logarithmic) units.
    - `window`: a value has to be below the largest of this number of last accepted values. With one, the
      value always decreases; with several, small jumps of the function, such as those of the evidence when
      the set of support vectors changes, do not stop the descent (Grippo, Lampariello and Lucidi, "A
      nonmonotone line search technique for Newton's method").
    - `first_move`: the largest move of any parameter in the first step, while the curvature is unknown. By
      default that step is minus the gradient, but at most 0.1: too short if the function is a mean with a
      small gradient.

    **Returns:** a gradient transformation whose `update` needs `value=`.
    """
    check_count("memory_size", memory_size)
    check_count("window", window)
    check_number("max_move", max_move, above=0)
    if first_move is not None:
        check_number("first_move", first_move, above=0)

    def init(params: Any) -> LBFGSState:
        point, _ = ravel_pytree(params)
        differences = jnp.zeros((memory_size, point.shape[0]), point.dtype)
        zero = jnp.zeros_like(point)
        infinity = jnp.asarray(jnp.inf, point.dtype)
        one = jnp.ones((), point.dtype)
        recent = jnp.full(window, -infinity)
        begun = jnp.asarray(False)
        pairs = (differences, differences)
        return LBFGSState(point, infinity, zero, zero, one, one, *pairs, recent, begun)

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        value = extra["value"]
        point, unravel = ravel_pytree(params)
        gradient, _ = ravel_pytree(updates)
        move = point - state.point
        promised = state.gradient @ move
        enough = value <= jnp.max(state.recent) + _SUFFICIENT * jnp.minimum(promised, 0.0)
        accepted = jnp.isfinite(value) & (enough | ~state.begun)
        new = jax.lax.cond(
            accepted,
            lambda: _new_line(state, point, value, gradient, max_move, first_move),
            lambda: _shorter(state, promised, value),
        )
        return unravel(new.point + new.step * new.direction - point), new

    return optax.GradientTransformationExtraArgs(init, update)


def _new_line(state: LBFGSState, point, value, gradient, max_move, first_move) -> LBFGSState:
    move, change = point - state.point, gradient - state.gradient
    sizes = jnp.linalg.norm(move) * jnp.linalg.norm(change)
    # only a difference along which the curvature is positive
    keep = state.begun & (move @ change > 1e-8 * sizes)
    moves = jnp.where(keep, _push(state.moves, move), state.moves)
    changes = jnp.where(keep, _push(state.changes, change), state.changes)
    direction = -_inverse_hessian_product(moves, changes, gradient)
    descends = direction @ gradient < 0
    direction = jnp.where(descends, direction, -gradient)
    longest = jnp.max(jnp.abs(direction))
    # before the first difference the curvature is unknown: move at most a tenth, or by `first_move`
    is_first = jnp.all(changes[-1] == 0)
    limit = jnp.where(is_first, 0.1 if first_move is None else first_move, max_move)
    is_limited = (longest > limit) | (is_first & (first_move is not None))
    step = jnp.where(is_limited, limit / jnp.where(longest > 0, longest, 1.0), 1.0)
    recent = _push(state.recent, value)
    begun = jnp.ones_like(state.begun)
    pairs = (moves, changes)
    return LBFGSState(point, value, gradient, direction, step, step, *pairs, recent, begun)


def _shorter(state: LBFGSState, promised, value) -> LBFGSState:
    # the minimum of the parabola through the accepted value, its slope and the trial value
    excess = value - state.value - promised
    factor = jnp.where(jnp.isfinite(excess) & (excess > 0), -promised / (2 * excess), 0.25)
    step = state.step * jnp.clip(factor, 0.1, 0.5)
    # the line search has failed: forget the curvatures and follow the gradient
    lost = step < _SHORTEST * state.first_step
    steepest = 0.1 / jnp.maximum(jnp.max(jnp.abs(state.gradient)), 1e-30)
    return state._replace(
        direction=jnp.where(lost, -state.gradient, state.direction),
        step=jnp.where(lost, steepest, step),
        first_step=jnp.where(lost, steepest, state.first_step),
        moves=jnp.where(lost, 0.0, state.moves),
        changes=jnp.where(lost, 0.0, state.changes),
    )


def _push(rows, row):
    return jnp.concatenate([rows[1:], jnp.expand_dims(row, 0)])


def _inverse_hessian_product(moves, changes, gradient):
    """The two-loop recursion; empty rows hold zeros and change nothing."""
    products = jnp.sum(moves * changes, axis=1)
    filled = products > 0
    weights = jnp.where(filled, 1 / jnp.where(filled, products, 1.0), 0.0)

    def backward(vector, row):
        move, change, weight = row
        share = weight * (move @ vector)
        return vector - share * change, share

    def forward(vector, row):
        move, change, weight, share = row
        return vector + move * (share - weight * (change @ vector)), None

    rows = (moves, changes, weights)
    vector, shares = jax.lax.scan(backward, gradient, rows, reverse=True)
    squared = changes[-1] @ changes[-1]
    scale = jnp.where(squared > 0, products[-1] / jnp.where(squared > 0, squared, 1.0), 1.0)
    vector, _ = jax.lax.scan(forward, scale * vector, (*rows, shares))
    return vector
