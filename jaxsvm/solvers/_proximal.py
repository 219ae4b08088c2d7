"""Piecewise losses to machine precision: a proximal-point method with semismooth Newton steps.

The dual of a piecewise loss is a convex quadratic program in a box. Each *stage* minimizes the dual plus
`step/2 |dual - center|^2`. Its own dual is to minimize, without constraints, the convex function

    P(beta, b) = 1/2 beta' K beta + sum_i phi_i((K beta)_i + b) + (b - b_center)^2 / (2 variance)

whose `phi_i`, the loss's Moreau envelope, has a continuous, piecewise linear derivative. Newton's method
with an exact line search ends on it after finitely many steps, whatever K: `step` keeps every matrix
positive definite. The stage's solution is the next center, and the step shrinks. So ill-conditioned and
singular K are no special case, and the limit is the exact solution.

Between stages the method *jumps*: it takes the free and the bound examples as they are, solves for the
free ones, sorts the examples anew and tries again (a primal-dual active-set step). Near the solution one
or two jumps end the matter, which makes warm starts cheap; far from it they may cycle, so after a few
of them, or the first that makes matters worse, the method goes back to the center and on with the next
stage.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._results import RESULTS
from ..losses import AbstractPiecewise, weighted_bound, weighted_compliance
from ._coordinate import coordinate_descent
from ._optimality import (
    Verdict,
    best_offset,
    judge_piecewise,
    latent_size,
    rounding_errors,
    sharp_rounding_errors,
)
from ._types import Options, Problem, Solution, Start

_STAGE_LIMIT = 60  # Newton steps in a stage; more than these happen only when rounding errors rule
_STALL_LIMIT = 6  # stages without progress
_FAILURE_LIMIT = 8  # failed factorizations
_WARM_JUMPS, _STAGE_JUMPS = 5, 2


class _Point(NamedTuple):
    """Coefficients, offset, and the latent values `K beta + offset` that belong to them."""

    beta: Float[Array, " n"]
    offset: Float[Array, ""]
    latent: Float[Array, " n"]


class _State(NamedTuple):
    center: _Point  # of the stage; its beta is feasible
    step: Float[Array, ""]
    floor: Float[Array, ""]  # the smallest step that keeps all factorizations sound
    stage_steps: Int[Array, ""]
    jumps: Int[Array, ""]  # left; zero in a stage
    now: _Point
    best: _Point
    verdict: Verdict  # on the best point
    residual: Float[Array, ""]  # the lowest so far
    iterations: Int[Array, ""]
    stalls: Int[Array, ""]
    failures: Int[Array, ""]


def solve_piecewise(
    problem: Problem[AbstractPiecewise], start: Start, options: Options, warm: bool
) -> Solution:
    """Solve a kernel machine with a piecewise loss.

    **Arguments:** `problem`; `start`; `options`; `warm`, whether `start` is near the solution.

    **Returns:** the solution, verified by its KKT residual.
    """
    loss, y, weights, gram = problem.loss, problem.y, problem.weights, problem.gram
    dtype = gram.dtype
    epsilon = jnp.finfo(dtype).eps
    examples = y.shape[0]
    variances = gram.diagonal()
    amplitude = jnp.maximum(jnp.mean(variances), jnp.finfo(dtype).tiny / epsilon)
    compliance = weighted_compliance(loss, weights, dtype)
    stiffest = jnp.min(compliance)
    bound = weighted_bound(loss, weights, dtype)
    lower = -bound if loss.is_two_sided else jnp.minimum(0, y * bound)
    upper = bound if loss.is_two_sided else jnp.maximum(0, y * bound)
    size = latent_size(problem)
    # the coefficients that the examples can have, or need
    reach = jnp.minimum(bound, size / (amplitude + compliance))
    smallest = jnp.min(jnp.where(reach > 0, reach, jnp.inf))
    offset_variance = jnp.maximum(amplitude, size / smallest)  # free, also for the lightest example
    smallest_step = 4 * max(examples, 64) * epsilon * amplitude

    def next_step(step, floor):
        step = jnp.maximum(step, floor)
        # where the loss's own compliance is larger than the step, the step is not needed
        return jnp.where(stiffest >= 10 * step, 0.0, step).astype(dtype)

    def judge(point, errors=None):
        return judge_piecewise(problem, options, point.beta, point.offset, point.latent, errors)

    def is_free(beta):
        magnitude = jnp.abs(beta)
        inside = magnitude < bound
        return inside & (magnitude > 0) if loss.has_flat_zone else inside

    def keep_best(state, verdict, allowed):
        """The better of the best point so far and the one reached."""
        better = allowed & (verdict.largest_gap < state.verdict.largest_gap)
        better |= allowed & verdict.is_solution
        return better, state._replace(
            best=_choose(better, state.now, state.best),
            verdict=_choose(better, verdict, state.verdict),
            residual=jnp.where(allowed, jnp.fmin(state.residual, verdict.residual), state.residual),
        )

    def direction(now, dual, free, step, center, variance, near):
        """Newton's change of the point: free examples on their piece, the others at their bounds."""
        away = jnp.where(free, 0.0, now.beta - dual)
        pieces = compliance + step
        target = loss.target(y, dual)
        if loss.shape().compliance is None and loss.has_flat_zone:
            # at a kink, aim for the side where a rounding error costs less
            errors = rounding_errors(problem, now.beta, now.offset)
            target += jnp.where(near, 2.5 * loss.cheaper_side(y, dual, bound) * errors, 0.0)
        gap = target + step * center.beta - pieces * now.beta - now.latent
        rights = [jnp.where(free, gap + gram.sparse_product(away), 0.0)]
        if problem.has_offset:
            rights.append(free.astype(dtype))
        diagonal = jnp.where(free, pieces, 1.0)
        answer, *per_offset = gram.reduced_solve(free.astype(dtype), diagonal, *rights)
        change, offset_change = answer - away, jnp.zeros((), dtype)
        if problem.has_offset:
            pull = (now.offset - center.offset) / variance
            offset_change = jnp.sum(now.beta + change) - pull
            offset_change = offset_change / (jnp.sum(per_offset[0]) + 1 / variance)
            change = change - offset_change * per_offset[0]
        return change, offset_change

    def after_jump(state, verdict):
        """After the last jump go back to the center, unless the jump led to the solution."""
        residual = state.residual
        inside = jnp.all((state.now.beta >= lower) & (state.now.beta <= upper))
        _, state = keep_best(state, verdict, inside)
        # a jump that makes matters worse is the first of a cycle
        left = jnp.where(verdict.residual < residual, state.jumps - 1, 0)
        back = (left == 0) & ~state.verdict.is_solution
        return state._replace(jumps=left, now=_choose(back, state.center, state.now))

    def after_stage(state, verdict):
        """Take the stage's solution as the next center."""
        stuck = state.stage_steps >= _STAGE_LIMIT
        stalled = (state.step <= state.floor) & ~(
            (verdict.largest_gap < 0.5 * state.verdict.largest_gap)
            | (verdict.residual < 0.5 * state.residual)
        )
        better, state = keep_best(state, verdict, jnp.array(True))
        factor = jnp.where(state.stage_steps <= 2, 0.01, 0.1)
        step = jnp.where(stuck, jnp.maximum(10 * state.step, long_step), factor * state.step)
        return state._replace(
            center=state.now,
            step=next_step(step, state.floor),
            stage_steps=jnp.zeros_like(state.stage_steps),
            jumps=jnp.where(stuck, 0, _STAGE_JUMPS),
            stalls=jnp.where(stalled | stuck, state.stalls + 1, jnp.where(better, 0, state.stalls)),
        )

    def body(state):
        now, jumping = state.now, state.jumps > 0
        # a jump sorts the examples as a long step from here would, and solves with a short one
        step = jnp.where(jumping, next_step(0.0, state.floor), state.step)
        center = _choose(jumping, now, state.center)
        length = jnp.where(jumping, amplitude, step)
        variance = jnp.where(jumping, 1e12, 1e3) * offset_variance

        def respond(latent):
            return loss.respond(y, latent - length * center.beta, compliance + length, bound)

        dual, free = respond(now.latent)
        if warm:  # begin with the sets of the start
            first = state.iterations == 0
            dual = jnp.where(first, now.beta, dual)
            free = jnp.where(first, is_free(now.beta), free)
        near = jumping & (state.residual <= 0.1 * options.gap_tolerance_in(dtype) * size)
        beta_change, offset_change = direction(now, dual, free, step, center, variance, near)
        # along a jump nobody looks at the latent values, and a vector of zeros costs nothing
        along = gram.sparse_product(jnp.where(jumping, 0.0, beta_change))
        change = _Point(beta_change, offset_change, along + offset_change)
        slope = (now.beta - dual) @ (change.latent - change.offset)
        bend = change.beta @ (change.latent - change.offset)
        if problem.has_offset:
            pull = (now.offset - center.offset) / variance
            slope += change.offset * (pull - jnp.sum(dual))
            bend += change.offset**2 / variance

        def slope_at(distance):
            moved, _ = respond(now.latent + distance * change.latent)
            return slope + distance * bend - (moved - dual) @ change.latent

        distance = _exact_line_search(slope_at, slope, ~jumping)
        moved = jax.tree.map(lambda a, b: a + distance * b, now, change)
        sound = jnp.all(jnp.isfinite(moved.beta)) & jnp.isfinite(moved.offset)
        moved_dual, moved_free = respond(moved.latent)
        same_piece = jnp.all((moved_free == free) & (free | (moved_dual == dual)))
        steps = jnp.where(jumping, state.stage_steps, state.stage_steps + 1)
        ended = ((distance == 1) & same_piece) | (slope >= 0) | (steps >= _STAGE_LIMIT)
        ended &= ~jumping

        def end():
            # latent values anew: the rounding errors of a long way, such as that of a jump with a
            # singular matrix, must not hide in what is judged
            clipped = jnp.where(moved_free, jnp.clip(moved.beta, lower, upper), moved_dual)
            if problem.has_offset:
                clipped = _balanced(clipped, moved_free)
            beta = jnp.where(jumping, jnp.where(free, moved.beta, dual), clipped)
            return _Point(beta, moved.offset, gram.sparse_product(beta) + moved.offset)

        reached = state._replace(
            now=jax.lax.cond(jumping | ended, end, lambda: moved), stage_steps=steps
        )
        verdict = judge(reached.now)
        after = _choose(jumping, after_jump(reached, verdict), reached)
        after = _choose(ended, after_stage(reached, verdict), after)
        # a factorization that fails ends the jumps, or else asks for larger steps from here on
        floor = jnp.where(jumping, state.floor, 10 * jnp.maximum(state.step, state.floor))
        retry = state._replace(
            floor=floor,
            step=jnp.where(jumping, state.step, floor),
            jumps=jnp.zeros_like(state.jumps),
            now=state.center,
            failures=state.failures + jnp.where(jumping, 0, 1),
        )
        after = _choose(sound, after, retry)
        return after._replace(iterations=state.iterations + 1)

    def unfinished(state):
        return (
            ~state.verdict.is_solution
            & (state.iterations < options.max_iterations)
            & (state.stalls < _STALL_LIMIT)
            & (state.failures < _FAILURE_LIMIT)
        )

    dual = start.dual.astype(dtype)
    if warm and loss.shape().bound is not None:
        dual = _to_new_bounds(dual, bound)
    dual = jnp.clip(dual, lower, upper)
    offset = start.offset.astype(dtype)
    latent = gram.sparse_product(dual) + offset
    if not warm:
        penalty = jnp.maximum(amplitude, size / jnp.sum(reach))
        penalty = penalty if problem.has_offset else jnp.zeros((), dtype)
        dual, latent = coordinate_descent(problem, dual, latent, penalty, examples, 1e-3 * size)
        offset = offset + penalty * jnp.sum(dual)
    # a first step with which a stage can move each latent value by a tenth of the margin
    largest = jnp.maximum(jnp.max(jnp.abs(dual)), 1e-6 * size / amplitude)
    long_step = next_step(jnp.minimum(0.1 * amplitude, 0.1 * size / largest), smallest_step)
    first_step = long_step
    if (
        warm
    ):  # near the solution Newton's method needs no help, if the loss's own compliance suffices
        direct = next_step(0.0, smallest_step)
        first_step = jnp.where(direct == 0, direct, long_step)
    point = _Point(dual, offset, latent)
    verdict = judge(point)
    initial = _State(
        center=point,
        step=first_step,
        floor=jnp.asarray(smallest_step, dtype),
        stage_steps=jnp.array(0),
        jumps=jnp.array(_WARM_JUMPS if warm else 0),
        now=point,
        best=point,
        verdict=verdict,
        residual=verdict.residual,
        iterations=jnp.array(0),
        stalls=jnp.array(0),
        failures=jnp.array(0),
    )
    last = jax.lax.while_loop(unfinished, body, initial)
    best = last.best
    # where the quick estimate of rounding errors is too large, the sharp one decides
    verdict = jax.lax.cond(
        last.verdict.is_solution,
        lambda: last.verdict,
        lambda: judge(best, sharp_rounding_errors(problem, best.beta, best.offset)),
    )
    if problem.has_offset:
        product = best.latent - best.offset
        middle = best_offset(problem, best.beta, product, best.offset)
        centered = _Point(best.beta, middle, product + middle)
        other = judge(centered)
        better = other.is_solution | (other.largest_gap <= verdict.largest_gap)
        best, verdict = _choose(better, (centered, other), (best, verdict))
    indefinite = (last.floor > 10 * epsilon**0.5 * amplitude) | (last.failures >= _FAILURE_LIMIT)
    result = jnp.select(
        [verdict.is_solution, indefinite, last.stalls >= _STALL_LIMIT],
        [RESULTS.successful, RESULTS.factorization_failed, RESULTS.precision_limit],
        RESULTS.iteration_limit,
    )
    return Solution(
        dual=best.beta,
        offset=best.offset,
        free=is_free(best.beta),
        result=result,
        iterations=last.iterations,
        residual=verdict.residual,
        gap=verdict.gap,
    )


def _balanced(dual, free) -> Float[Array, " n"]:
    """Coefficients that nearly sum to zero made to do so, by shrinking the free ones of one sign."""
    excess = jnp.sum(dual)
    side = free & (dual * excess > 0)
    on_side = jnp.sum(jnp.where(side, jnp.abs(dual), 0.0))
    share = jnp.abs(excess) / jnp.where(on_side > 0, on_side, 1.0)
    return jnp.where(side & (share < 0.01), dual * (1 - share), dual)


def _choose(condition, yes, no):
    """One of two pytrees of arrays."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def _to_new_bounds(dual, bound) -> Float[Array, " n"]:
    """Scale a solution for bounds that changed a little, as one can tell from several examples being there.

    Latent values scale too, by that little; they would change much more if only the examples at their
    bounds were moved.
    """
    ratio = jnp.where(bound > 0, jnp.abs(dual) / jnp.where(bound > 0, bound, 1.0), 0.0)
    largest = jnp.max(ratio)
    held = ratio >= largest * (1 - 64 * jnp.finfo(dual.dtype).eps)
    scaled = jnp.where(held, jnp.sign(dual) * bound, dual / largest)
    changed = (largest > 0.5) & (largest < 2) & (jnp.sum(held) > 2)
    return jnp.where(changed, scaled, dual)


def _exact_line_search(slope, first, wanted) -> Float[Array, ""]:
    """The distance in (0, 1] at which an increasing slope vanishes, one if it is not positive there."""
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
