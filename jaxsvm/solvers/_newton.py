"""Smooth losses: Newton's method with backtracking."""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..numerics import choose
from ..results import RESULTS
from ._optimality import (
    Verdict,
    judge_smooth,
    rounding_errors,
    sharp_rounding_errors,
    weighted_curvatures,
)
from ._problem import Options, Point, Problem, Solution, Start

_STALL_LIMIT = 60  # steps without progress
_PATIENCE = 3  # such steps once the tolerance is met
_SHORTEST = 1e-12  # step, relative to Newton's
_LIGHT = 1e-3  # lighter examples than this, relative to the heaviest, are lifted at a wall


class _State(NamedTuple):
    now: Point
    best: Point
    verdict: Verdict  # on the best
    milestone: Float[Array, ""]  # the largest gap when the last progress was made
    lift: Float[Array, ""]  # lighter examples count as this heavy
    iterations: Int[Array, ""]
    stalls: Int[Array, ""]
    sound: Bool[Array, ""]


def solve_smooth(problem: Problem, start: Start, options: Options) -> Solution:
    """Minimize `1/2 beta' K beta + sum_i weights_i L(y_i, (K beta)_i + offset)`.

    The Newton step is found from `I + H^(1/2) K H^(1/2)`, `H` the weighted curvatures, so K is never
    inverted. Each step is halved until the objective falls enough, which also keeps latent values on this
    side of a wall where the loss is infinite. If the loss is not convex, negative curvatures count as zero,
    and the method ends at a stationary point.

    An example with a wall and a small weight is felt only next to its wall, where Newton's method crawls.
    So light examples begin with a larger weight, which falls with each full step, like the barrier of
    an interior-point method.

    **Arguments:** `problem`; `start`, where to begin; `options`.

    **Returns:** a `Solution`.
    """
    weights = problem.weights
    first = _initial(problem, start)
    advance = partial(_advance, problem, options, jnp.min(jnp.where(weights > 0, weights, jnp.inf)))
    last = jax.lax.while_loop(partial(_unfinished, options), advance, first)
    return _conclude(problem, options, last)


def _initial(problem: Problem, start: Start) -> _State:
    dtype = problem.gram.dtype
    beta, offset = start.dual.astype(dtype), start.offset.astype(dtype)
    point = Point(beta, offset, problem.gram @ beta + offset)
    # do not start where the loss is infinite
    possible = jnp.isfinite(_total_loss(problem, point.latent))
    point = jax.tree.map(lambda value: jnp.where(possible, value, 0.0), point)
    endless = jnp.array(jnp.inf, dtype)
    lift = _LIGHT * jnp.max(problem.weights) if problem.loss.has_wall else 0.0
    return _State(
        now=point,
        best=point,
        verdict=Verdict(endless, endless, endless, jnp.array(False), jnp.array(False)),
        milestone=endless,
        lift=jnp.asarray(lift, dtype),
        iterations=jnp.array(0),
        stalls=jnp.array(0),
        sound=jnp.array(True),
    )


def _unfinished(options: Options, state: _State) -> Bool[Array, ""]:
    return (
        ~state.verdict.is_solution
        & state.sound
        & (state.iterations < options.max_iterations)
        & (state.stalls < jnp.where(state.verdict.is_acceptable, _PATIENCE, _STALL_LIMIT))
    )


def _advance(problem: Problem, options: Options, lightest, state: _State) -> _State:
    """One step of Newton's method, judged; `lightest` is the smallest weight."""
    weights, lifted = problem.weights, problem
    if problem.loss.has_wall:
        heavier = jnp.where(weights > 0, jnp.maximum(weights, state.lift), 0.0)
        lifted = eqx.tree_at(lambda problem: problem.weights, problem, heavier)
    now, distance = _step(lifted, state.now)
    verdict = judge_smooth(problem, options, *now)
    sound = jnp.all(jnp.isfinite(now.latent)) & jnp.isfinite(verdict.residual)
    better = verdict.is_solution | (sound & (verdict.largest_gap < state.verdict.largest_gap))
    lowered = (state.lift > lightest) & (distance >= 1)
    progress = (verdict.largest_gap < 0.9 * state.milestone) | lowered
    best, best_verdict = choose(better, (now, verdict), (state.best, state.verdict))
    return _State(
        now=now,
        best=best,
        verdict=best_verdict,
        milestone=jnp.where(progress, best_verdict.largest_gap, state.milestone),
        lift=jnp.where(lowered, 0.03 * state.lift, state.lift),
        iterations=state.iterations + 1,
        stalls=jnp.where(progress, 0, state.stalls + 1),
        sound=sound,
    )


def _conclude(problem: Problem, options: Options, last: _State) -> Solution:
    """The best point, its final verdict and the result code."""
    loss, (beta, offset, _) = problem.loss, last.best
    latent = problem.gram @ beta + offset
    # where the quick estimate of rounding errors is too large, the sharp one decides
    verdict = jax.lax.cond(
        last.verdict.is_acceptable,
        lambda: last.verdict,
        lambda: judge_smooth(
            problem, options, beta, offset, latent, sharp_rounding_errors(problem, beta, offset)
        ),
    )
    success = RESULTS.successful if loss.is_convex else RESULTS.local_optimum
    result = jnp.select(
        [verdict.is_acceptable, ~last.sound | (last.stalls >= _STALL_LIMIT)],
        [success, RESULTS.precision_limit],
        RESULTS.iteration_limit,
    )
    free = _weighted(problem, loss.curvature(problem.y, latent)) != 0
    gap = verdict.gap if loss.is_convex else jnp.full_like(verdict.gap, jnp.nan)
    return Solution(beta, offset, free, result, last.iterations, verdict.residual, gap)


def _step(problem: Problem, now: Point) -> tuple[Point, Float[Array, ""]]:
    """The point after one step of Newton's method, and the fraction of the step taken."""
    loss, y, gram = problem.loss, problem.y, problem.gram
    slopes = _weighted(problem, loss.derivative(y, now.latent))
    change = _direction(problem, now, slopes)

    # the objective's change along the step, in a form that does not cancel
    linear = change.beta @ (now.latent - now.offset)
    quadratic = change.beta @ (change.latent - change.offset)
    slope = linear + slopes @ change.latent
    values = loss.value(y, now.latent)

    def rise(distance):
        moved = loss.value(y, now.latent + distance * change.latent)
        return distance * (linear + distance * quadratic / 2) + jnp.sum(
            _weighted(problem, moved - values)
        )

    noise = jnp.sum(_weighted(problem, jnp.abs(values))) + jnp.abs(linear)
    noise = 16 * jnp.finfo(gram.dtype).eps * noise

    def too_far(distance):
        return ~(rise(distance) <= 1e-4 * distance * slope + noise) & (distance > _SHORTEST)

    distance = jax.lax.while_loop(too_far, lambda t: t / 2, jnp.ones((), gram.dtype))

    def land(distance):
        beta = now.beta + distance * change.beta
        offset = now.offset + distance * change.offset
        # recompute the latent values, so that accumulated rounding errors cannot hide in the point that is
        # judged
        return distance, Point(beta, offset, gram @ beta + offset)

    def behind_the_wall(landing):
        distance, point = landing
        return ~jnp.isfinite(_total_loss(problem, point.latent)) & (distance > _SHORTEST)

    landing = land(distance)
    if loss.has_wall:  # rounding errors can carry a latent value across
        landing = jax.lax.while_loop(behind_the_wall, lambda it: land(it[0] / 2), landing)
    distance, point = landing
    return point, distance


def _direction(problem: Problem, now: Point, slopes) -> Point:
    """Newton's change of the point."""
    gram = problem.gram
    dtype = gram.dtype
    errors = rounding_errors(problem, now.beta, now.offset)
    curvatures = jnp.maximum(weighted_curvatures(problem, now.latent, errors), 0)
    root = jnp.sqrt(curvatures)
    residual = now.beta + slopes
    rights = [root * (gram @ residual)]
    if problem.has_offset:
        rights.append(root)
    # relative to the diagonal, so that rounding errors leave the matrix positive definite
    diagonal = 1 + 4 * root.shape[0] * jnp.finfo(dtype).eps * curvatures * gram.diagonal()
    answer, *rest = gram.reduced_solve(root, diagonal, *rights)
    change, offset_change = root * answer - residual, jnp.zeros((), dtype)
    if problem.has_offset:
        per_offset = root * rest[0]
        total = jnp.sum(per_offset)
        determined = total > 0  # where no example has a curvature the offset stays
        offset_change = jnp.sum(now.beta + change) / jnp.where(determined, total, 1.0)
        offset_change = jnp.where(determined, offset_change, 0.0)
        change = change - offset_change * per_offset
    return Point(change, offset_change, gram @ change + offset_change)


def _weighted(problem: Problem, values):
    return jnp.where(problem.weights > 0, problem.weights * values, 0.0)


def _total_loss(problem: Problem, latent):
    return jnp.sum(_weighted(problem, problem.loss.value(problem.y, latent)))
