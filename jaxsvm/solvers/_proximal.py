"""Piecewise losses to machine precision: a proximal-point method with semismooth Newton steps.

The dual of a piecewise loss is a convex quadratic program in a box. Each *stage* minimizes the dual plus
`step/2 |dual - center|^2`. Its own dual is to minimize, without constraints, the convex function

    P(beta, b) = 1/2 beta' K beta + sum_i phi_i((K beta)_i + b) + (b - b_center)^2 / (2 variance)

whose `phi_i`, the loss's Moreau envelope, has a continuous, piecewise linear derivative. Newton's method
with an exact line search ends on it after finitely many steps, whatever K: `step` keeps every matrix
positive definite. The stage's solution is the next center, and the step shrinks. So ill-conditioned and
singular K need no special treatment, and the limit is the exact solution.

Between stages the method *jumps*: it takes the free and the bound examples as they are, solves for the free
ones, sorts the examples again and repeats (a primal-dual active-set step). Near the solution one or two jumps
suffice, which makes warm starts cheap; far from it they may cycle, so after a few of them, or after the first
that makes matters worse, the method returns to the center and continues with the next stage.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..losses import AbstractPiecewise
from ..numerics import choose
from ..results import RESULTS
from ._box import Box, balanced, box_of, coordinate_descent, is_free, next_step, to_new_bounds
from ._optimality import (
    Verdict,
    best_offset,
    judge_piecewise,
    sharp_rounding_errors,
)
from ._problem import Options, Point, Problem, Solution, Start
from ._semismooth import Stage, direction, respond, search

_STAGE_LIMIT = 60  # Newton steps in a stage; more are needed only when rounding errors dominate
_STALL_LIMIT = 6  # stages without progress
_FAILURE_LIMIT = 8  # failed factorizations
_WARM_JUMPS, _STAGE_JUMPS = 5, 2
_SOFTENING = 0.1  # of the kinks in the first stage, in units of the latent function


class _State(NamedTuple):
    center: Point  # of the stage; its beta is feasible
    step: Float[Array, ""]
    floor: Float[Array, ""]  # the smallest step that keeps all factorizations sound
    stage_steps: Int[Array, ""]
    jumps: Int[Array, ""]  # left; zero in a stage
    now: Point
    best: Point
    verdict: Verdict  # on the best point
    residual: Float[Array, ""]  # the lowest so far
    iterations: Int[Array, ""]
    stalls: Int[Array, ""]
    failures: Int[Array, ""]


class _Method(NamedTuple):
    """The parts that stay the same over all iterations."""

    box: Box
    options: Options
    warm: bool
    long_step: Float[Array, ""]  # so long that a stage can move every latent value


def solve_piecewise(
    problem: Problem[AbstractPiecewise], start: Start, options: Options, warm: bool
) -> Solution:
    """Solve the dual of a kernel machine with a piecewise loss.

    **Arguments:** `problem`; `start`; `options`; `warm`, whether `start` is near the solution.

    **Returns:** the solution, verified by its KKT residual.
    """
    box = box_of(problem)
    point = _first_point(box, start, warm)
    method = _Method(box, options, warm, _long_step(box, point))
    return _run(method, _first_state(method, point))


def solve_piecewise_near(
    problem: Problem[AbstractPiecewise], near: Point, options: Options
) -> Solution:
    """Solve a kernel machine with a piecewise loss whose latent values are nearly known.

    **Arguments:** `problem`; `near`, a point whose coefficients need not be within their bounds; `options`.

    **Returns:** the solution, verified by its KKT residual.
    """
    box = box_of(problem)
    slopes, _ = problem.loss.softened(
        problem.y, near.latent, problem.weights, _SOFTENING * box.size
    )
    dual = jnp.clip(-slopes, box.lower, box.upper)
    latent = problem.latent(problem.gram.sparse_product(dual), near.offset)
    center = Point(dual, near.offset, latent)
    method = _Method(box, options, False, _long_step(box, center))
    return _run(method, _first_state(method, center)._replace(now=near))


def _run(method: _Method, first: _State) -> Solution:
    unfinished, iterate = partial(_unfinished, method.options), partial(_iterate, method)
    return _conclude(method, jax.lax.while_loop(unfinished, iterate, first))


def _long_step(box: Box, point: Point) -> Float[Array, ""]:
    """A first step so long that a stage can move each latent value by a tenth of the margin."""
    largest = jnp.maximum(jnp.max(jnp.abs(point.beta)), 1e-6 * box.size / box.amplitude)
    step = jnp.minimum(0.1 * box.amplitude, _SOFTENING * box.size / largest)
    return next_step(box, step, box.smallest_step)


def _first_point(box: Box, start: Start, warm: bool) -> Point:
    """Where to begin: a warm start moved to new bounds, or the end of a coordinate descent."""
    problem, dtype = box.problem, box.bound.dtype
    dual = start.dual.astype(dtype)
    if warm and problem.loss.shape().bound is not None:
        dual = to_new_bounds(dual, box.bound)
    dual = jnp.clip(dual, box.lower, box.upper)
    offset = start.offset.astype(dtype)
    latent = problem.latent(problem.gram.sparse_product(dual), offset)
    if not warm:
        penalty = jnp.maximum(box.amplitude, box.size / jnp.sum(box.reach))
        penalty = penalty if problem.has_offset else jnp.zeros((), dtype)
        steps, tolerance = problem.y.shape[0], 1e-3 * box.size
        dual, latent = coordinate_descent(problem, dual, latent, penalty, steps, tolerance)
        offset = offset + penalty * jnp.sum(dual)
    return Point(dual, offset, latent)


def _first_state(method: _Method, point: Point) -> _State:
    box, step = method.box, method.long_step
    if method.warm:
        # near the solution Newton's method needs no proximal step if the compliance of the loss suffices
        direct = next_step(box, 0.0, box.smallest_step)
        step = jnp.where(direct == 0, direct, method.long_step)
    verdict = _judge(method, point)
    return _State(
        center=point,
        step=step,
        floor=jnp.asarray(box.smallest_step, box.bound.dtype),
        stage_steps=jnp.array(0),
        jumps=jnp.array(_WARM_JUMPS if method.warm else 0),
        now=point,
        best=point,
        verdict=verdict,
        residual=verdict.residual,
        iterations=jnp.array(0),
        stalls=jnp.array(0),
        failures=jnp.array(0),
    )


def _unfinished(options: Options, state: _State) -> Bool[Array, ""]:
    return (
        ~state.verdict.is_solution
        & (state.iterations < options.max_iterations)
        & (state.stalls < _STALL_LIMIT)
        & (state.failures < _FAILURE_LIMIT)
    )


def _iterate(method: _Method, state: _State) -> _State:
    """One Newton step of a stage, or one jump, and what follows from it."""
    now, stage = state.now, _stage(method, state)
    jumping = stage.jumping
    dual, free = _sort(method, stage, state)
    precision = 0.1 * method.options.gap_tolerance_in(stage.step.dtype) * method.box.size
    near = jumping & (state.residual <= precision)
    change = direction(method.box, stage, now, dual, free, near)
    distance, uphill = search(method.box, stage, now, dual, change)
    moved = jax.tree.map(lambda a, b: a + distance * b, now, change)
    sound = jnp.all(jnp.isfinite(moved.beta)) & jnp.isfinite(moved.offset)
    moved_dual, moved_free = respond(method.box, stage, moved.latent)
    same_piece = jnp.all((moved_free == free) & (free | (moved_dual == dual)))
    steps = jnp.where(jumping, state.stage_steps, state.stage_steps + 1)
    ended = ((distance == 1) & same_piece) | uphill | (steps >= _STAGE_LIMIT)
    ended &= ~jumping

    def end():
        clipped = jnp.clip(moved.beta, method.box.lower, method.box.upper)
        clipped = jnp.where(moved_free, clipped, moved_dual)
        if method.box.problem.has_offset:
            clipped = balanced(clipped, moved_free)
        beta = jnp.where(jumping, jnp.where(free, moved.beta, dual), clipped)
        # recompute the latent values, so that accumulated rounding errors, such as those of a jump with a
        # singular matrix, cannot hide in the point that is judged
        problem = method.box.problem
        latent = problem.latent(problem.gram.sparse_product(beta), moved.offset)
        return Point(beta, moved.offset, latent)

    point = jax.lax.cond(jumping | ended, end, lambda: moved)
    reached = state._replace(now=point, stage_steps=steps)
    verdict = _judge(method, reached.now)
    after = choose(jumping, _after_jump(method, reached, verdict), reached)
    after = choose(ended, _after_stage(method, reached, verdict), after)
    after = choose(sound, after, _after_failure(state, jumping))
    return after._replace(iterations=state.iterations + 1)


def _stage(method: _Method, state: _State) -> Stage:
    box, jumping = method.box, state.jumps > 0
    # a jump sorts the examples as a long step from here would, and solves with a short one
    step = jnp.where(jumping, next_step(box, 0.0, state.floor), state.step)
    return Stage(
        jumping=jumping,
        step=step,
        length=jnp.where(jumping, box.amplitude, step),
        center=choose(jumping, state.now, state.center),
        variance=jnp.where(jumping, 1e12, 1e3) * box.offset_variance,
    )


def _sort(method: _Method, stage: Stage, state: _State):
    """The coefficients to aim for, and which examples are free."""
    dual, free = respond(method.box, stage, state.now.latent)
    if method.warm:  # begin with the sets of the start
        first = state.iterations == 0
        dual = jnp.where(first, state.now.beta, dual)
        free = jnp.where(first, is_free(method.box, state.now.beta), free)
    return dual, free


def _judge(method: _Method, point: Point, errors=None) -> Verdict:
    problem, options = method.box.problem, method.options
    return judge_piecewise(problem, options, point.beta, point.offset, point.latent, errors)


def _keep_best(state: _State, verdict: Verdict, allowed) -> tuple[Bool[Array, ""], _State]:
    """The better of the best point so far and the one reached."""
    better = allowed & (verdict.largest_gap < state.verdict.largest_gap)
    better |= allowed & verdict.is_solution
    return better, state._replace(
        best=choose(better, state.now, state.best),
        verdict=choose(better, verdict, state.verdict),
        residual=jnp.where(allowed, jnp.fmin(state.residual, verdict.residual), state.residual),
    )


def _after_jump(method: _Method, state: _State, verdict: Verdict) -> _State:
    """After the last jump go back to the center, unless the jump led to the solution."""
    residual, beta = state.residual, state.now.beta
    inside = jnp.all((beta >= method.box.lower) & (beta <= method.box.upper))
    _, state = _keep_best(state, verdict, inside)
    # a jump that makes matters worse is the first of a cycle
    left = jnp.where(verdict.residual < residual, state.jumps - 1, 0)
    back = (left == 0) & ~state.verdict.is_solution
    return state._replace(jumps=left, now=choose(back, state.center, state.now))


def _after_stage(method: _Method, state: _State, verdict: Verdict) -> _State:
    """Take the stage's solution as the next center."""
    stuck = state.stage_steps >= _STAGE_LIMIT
    stalled = (state.step <= state.floor) & ~(
        (verdict.largest_gap < 0.5 * state.verdict.largest_gap)
        | (verdict.residual < 0.5 * state.residual)
    )
    better, state = _keep_best(state, verdict, jnp.array(True))
    factor = jnp.where(state.stage_steps <= 2, 0.01, 0.1)
    longer = jnp.maximum(10 * state.step, method.long_step)
    step = jnp.where(stuck, longer, factor * state.step)
    return state._replace(
        center=state.now,
        step=next_step(method.box, step, state.floor),
        stage_steps=jnp.zeros_like(state.stage_steps),
        jumps=jnp.where(stuck, 0, _STAGE_JUMPS),
        stalls=jnp.where(stalled | stuck, state.stalls + 1, jnp.where(better, 0, state.stalls)),
    )


def _after_failure(state: _State, jumping) -> _State:
    """A factorization that fails ends the jumps, or else asks for larger steps from here on."""
    floor = jnp.where(jumping, state.floor, 10 * jnp.maximum(state.step, state.floor))
    return state._replace(
        floor=floor,
        step=jnp.where(jumping, state.step, floor),
        jumps=jnp.zeros_like(state.jumps),
        now=state.center,
        failures=state.failures + jnp.where(jumping, 0, 1),
    )


def _conclude(method: _Method, last: _State) -> Solution:
    """The best point, its final verdict and the result code."""
    box, problem, best = method.box, method.box.problem, last.best
    # where the quick estimate of rounding errors is too large, the sharp one decides
    verdict = jax.lax.cond(
        last.verdict.is_solution,
        lambda: last.verdict,
        lambda: _judge(method, best, sharp_rounding_errors(problem, best.beta, best.offset)),
    )
    if problem.has_offset:
        product = best.latent - best.offset
        middle = best_offset(problem, best.beta, product, best.offset)
        centered = Point(best.beta, middle, product + middle)
        other = _judge(method, centered)
        better = other.is_solution | (other.largest_gap <= verdict.largest_gap)
        best, verdict = choose(better, (centered, other), (best, verdict))
    largest_floor = 10 * jnp.finfo(box.bound.dtype).eps ** 0.5 * box.amplitude
    indefinite = (last.floor > largest_floor) | (last.failures >= _FAILURE_LIMIT)
    result = jnp.select(
        [verdict.is_solution, indefinite, last.stalls >= _STALL_LIMIT],
        [RESULTS.successful, RESULTS.factorization_failed, RESULTS.precision_limit],
        RESULTS.iteration_limit,
    )
    return Solution(
        dual=best.beta,
        offset=best.offset,
        free=is_free(box, best.beta),
        result=result,
        iterations=last.iterations,
        residual=verdict.residual,
        gap=verdict.gap,
    )
