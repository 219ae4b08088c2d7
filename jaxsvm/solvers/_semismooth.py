"""One semismooth Newton step in the dual of a piecewise loss: its direction and its length."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ._box import Box
from ._optimality import rounding_errors
from ._problem import Point


class Stage(NamedTuple):
    """The setting of one Newton step: a proximal step from a center, or a jump."""

    jumping: Bool[Array, ""]
    step: Float[Array, ""]  # the proximal step in the linear system
    length: Float[Array, ""]  # the proximal step that decides which examples are free
    center: Point
    variance: Float[Array, ""]  # of the offset around the center's


def respond(
    box: Box, stage: Stage, latent: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Bool[Array, " n"]]:
    """The coefficients that the loss asks for after a proximal step, and which of them are free."""
    shifted = latent - stage.length * stage.center.beta
    problem = box.problem
    return problem.loss.respond(problem.y, shifted, box.compliance + stage.length, box.bound)


def direction(
    box: Box, stage: Stage, now: Point, dual: Float[Array, " n"], free: Bool[Array, " n"], near
) -> Point:
    """Newton's change of the point: free examples on their piece, the others at their bounds.

    `near` says whether the solution is so near that rounding errors matter.
    """
    problem, dtype = box.problem, box.bound.dtype
    away = jnp.where(free, 0.0, now.beta - dual)
    pieces = box.compliance + stage.step
    target = _target(box, now, dual, near)
    gap = target + stage.step * stage.center.beta - pieces * now.beta - now.latent
    rights = [jnp.where(free, gap + problem.gram.sparse_product(away), 0.0)]
    if problem.has_offset:
        rights.append(free.astype(dtype))
    diagonal = jnp.where(free, pieces, 1.0)
    answer, *per_offset = problem.gram.reduced_solve(free.astype(dtype), diagonal, *rights)
    change, offset_change = answer - away, jnp.zeros((), dtype)
    if problem.has_offset:
        pull = (now.offset - stage.center.offset) / stage.variance
        offset_change = jnp.sum(now.beta + change) - pull
        offset_change = offset_change / (jnp.sum(per_offset[0]) + 1 / stage.variance)
        change = change - offset_change * per_offset[0]
    # a jump does not use the latent values along the way, and a product with zeros costs nothing
    along = problem.gram.sparse_product(jnp.where(stage.jumping, 0.0, change))
    return Point(change, offset_change, along + offset_change)


def _target(box: Box, now: Point, dual, near) -> Float[Array, " n"]:
    """The value of `f + compliance dual` for a free example."""
    problem, loss, y = box.problem, box.problem.loss, box.problem.y
    target = loss.target(y, dual)
    if loss.shape().compliance is None and loss.has_flat_zone:
        # at a kink, aim for the side where a rounding error costs less
        errors = rounding_errors(problem, now.beta, now.offset)
        target += jnp.where(near, 2.5 * loss.cheaper_side(y, dual, box.bound) * errors, 0.0)
    return target


def search(
    box: Box, stage: Stage, now: Point, dual: Float[Array, " n"], change: Point
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """How far to go along a change, and whether it leads uphill."""
    slope = (now.beta - dual) @ (change.latent - change.offset)
    bend = change.beta @ (change.latent - change.offset)
    if box.problem.has_offset:
        pull = (now.offset - stage.center.offset) / stage.variance
        slope += change.offset * (pull - jnp.sum(dual))
        bend += change.offset**2 / stage.variance

    def slope_at(distance):
        moved, _ = respond(box, stage, now.latent + distance * change.latent)
        return slope + distance * bend - (moved - dual) @ change.latent

    return _exact_line_search(slope_at, slope, ~stage.jumping), slope >= 0


def _exact_line_search(slope, first, wanted) -> Float[Array, ""]:
    """The distance in (0, 1] at which an increasing, piecewise linear slope vanishes, or one."""
    last = slope(1.0)
    small = 1e-3 * jnp.abs(first)

    def body(state):
        count, low, high, slope_low, slope_high, _ = state
        secant = low - slope_low * (high - low) / (slope_high - slope_low)
        # a root near zero is a matter of orders of magnitude
        halfway = jnp.where(low > 0, jnp.sqrt(low * high), high / 64)
        middle = jnp.where(count % 3 == 2, halfway, jnp.clip(secant, low, high))
        value = slope(middle)
        return (
            count + 1,
            jnp.where(value > 0, low, middle),
            jnp.where(value > 0, middle, high),
            jnp.where(value > 0, slope_low, value),
            jnp.where(value > 0, value, slope_high),
            (jnp.abs(value) > small) & (count < 30),
        )

    zero, one = jnp.zeros_like(first), jnp.ones_like(first)
    search = wanted & (first < 0) & (last > small)
    _, low, high, slope_low, slope_high, _ = jax.lax.while_loop(
        lambda state: state[-1], body, (0, zero, one, first, last, search)
    )
    best = jnp.where(jnp.abs(slope_low) < jnp.abs(slope_high), low, high)
    return jnp.where(search, best, one)
