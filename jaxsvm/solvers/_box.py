"""The dual of a piecewise loss: a box of coefficients, and coordinate descent in it for a first point."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..losses import AbstractPiecewise, weighted_bound, weighted_compliance
from ._optimality import latent_size
from ._problem import Problem


class Box(NamedTuple):
    """The parts of a dual problem that stay fixed while it is solved.

    Each example has a `compliance`, a `bound` on the magnitude of its coefficient, the ends `lower` and
    `upper` of the interval of its coefficient, and a `reach`: its bound or, if smaller, the coefficient that
    moves a latent value by its typical size. `stiffest` is the least compliance, `size` the typical size of
    latent values, `amplitude` the mean variance. `offset_variance` is so large that even the lightest example
    can move the offset freely. `smallest_step` is the smallest proximal step that keeps matrices positive
    definite and that moves latent values by more than their rounding errors, however small the bounds.
    """

    problem: Problem[AbstractPiecewise]
    compliance: Float[Array, " n"]
    stiffest: Float[Array, ""]
    bound: Float[Array, " n"]
    lower: Float[Array, " n"]
    upper: Float[Array, " n"]
    reach: Float[Array, " n"]
    size: Float[Array, ""]
    amplitude: Float[Array, ""]
    offset_variance: Float[Array, ""]
    smallest_step: Float[Array, ""]


def box_of(problem: Problem[AbstractPiecewise]) -> Box:
    """The box of a problem."""
    loss, y, weights, gram = problem.loss, problem.y, problem.weights, problem.gram
    dtype = gram.dtype
    epsilon = jnp.finfo(dtype).eps
    examples = y.shape[0]
    variances = gram.diagonal()
    amplitude = jnp.maximum(jnp.mean(variances), jnp.finfo(dtype).tiny / epsilon)
    compliance = weighted_compliance(loss, weights, dtype)
    bound = weighted_bound(loss, weights, dtype)
    lower = -bound if loss.is_two_sided else jnp.minimum(0, y * bound)
    upper = bound if loss.is_two_sided else jnp.maximum(0, y * bound)
    size = latent_size(problem)
    reach = jnp.minimum(bound, size / (amplitude + compliance))
    smallest = jnp.min(jnp.where(reach > 0, reach, jnp.inf))
    softest = size / jnp.maximum(jnp.max(reach), jnp.finfo(dtype).tiny / epsilon)
    return Box(
        problem=problem,
        compliance=compliance,
        stiffest=jnp.min(compliance),
        bound=bound,
        lower=lower,
        upper=upper,
        reach=reach,
        size=size,
        amplitude=amplitude,
        offset_variance=jnp.maximum(amplitude, size / smallest),
        smallest_step=4 * epsilon * jnp.maximum(max(examples, 64) * amplitude, 16 * softest),
    )


def next_step(box: Box, step, floor) -> Float[Array, ""]:
    """A proximal step of at least `floor`, or zero if the compliance of the loss is enough."""
    step = jnp.maximum(step, floor)
    # if the compliance of the loss is much larger than the step, the step is not needed
    return jnp.where(box.stiffest >= 10 * step, 0.0, step).astype(box.bound.dtype)


def is_free(box: Box, beta: Float[Array, " n"]) -> Bool[Array, " n"]:
    """Which coefficients are inside their intervals."""
    magnitude = jnp.abs(beta)
    inside = magnitude < box.bound
    return inside & (magnitude > 0) if box.problem.loss.has_flat_zone else inside


def balanced(dual, free) -> Float[Array, " n"]:
    """Make coefficients that nearly sum to zero do so exactly, by shrinking the free ones of one sign."""
    excess = jnp.sum(dual)
    side = free & (dual * excess > 0)
    on_side = jnp.sum(jnp.where(side, jnp.abs(dual), 0.0))
    share = jnp.abs(excess) / jnp.where(on_side > 0, on_side, 1.0)
    return jnp.where(side & (share < 0.01), dual * (1 - share), dual)


def to_new_bounds(dual, bound) -> Float[Array, " n"]:
    """Scale a solution to bounds that have changed a little, if several examples at the old bounds show it.

    Latent values change by the same small factor. If only the examples at their bounds were moved, they would
    change much more.
    """
    ratio = jnp.where(bound > 0, jnp.abs(dual) / jnp.where(bound > 0, bound, 1.0), 0.0)
    largest = jnp.max(ratio)
    held = ratio >= largest * (1 - 64 * jnp.finfo(dual.dtype).eps)
    scaled = jnp.where(held, jnp.sign(dual) * bound, dual / largest)
    changed = (largest > 0.5) & (largest < 2) & (jnp.sum(held) > 2)
    return jnp.where(changed, scaled, dual)


def coordinate_descent(
    problem: Problem[AbstractPiecewise],
    dual: Float[Array, " n"],
    latent: Float[Array, " n"],
    offset_variance: Float[Array, ""],
    steps: int,
    tolerance: Float[Array, ""],
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Minimize the dual along one coordinate at a time, always the one that moves the latent value most.

    The exact minimum along coordinate `i` is the resolvent of the loss with step `K_ii`. An offset
    counts as a constant kernel of variance `offset_variance` here.

    **Returns:** the dual coefficients and latent values after `steps` steps, or once no single step
    would move a latent value by more than `tolerance`.
    """
    loss, y, gram = problem.loss, problem.y, problem.gram
    dtype = gram.dtype
    variances = gram.diagonal() + offset_variance
    variances = jnp.maximum(variances, jnp.finfo(dtype).eps * jnp.max(variances))
    compliance = weighted_compliance(loss, problem.weights, dtype) + variances
    bound = weighted_bound(loss, problem.weights, dtype)

    def moves(dual, latent):
        target, _ = loss.respond(y, latent - variances * dual, compliance, bound)
        move = target - dual
        index = jnp.argmax(jnp.abs(move) * variances)
        return index, move[index]

    def body(state):
        step, dual, latent, index, move = state
        dual = dual.at[index].add(move)
        latent = latent + move * (gram.row(index) + offset_variance)
        return step + 1, dual, latent, *moves(dual, latent)

    def unfinished(state):
        step, _, _, index, move = state
        return (step < steps) & (jnp.abs(move) * variances[index] > tolerance)

    start = (0, dual, latent, *moves(dual, latent))
    _, dual, latent, _, _ = jax.lax.while_loop(unfinished, body, start)
    return dual, latent
