"""Piecewise losses to machine precision: a proximal-point method with semismooth Newton steps.

The dual of a piecewise loss is a convex quadratic program in a box. Each stage minimizes the dual plus
`step/2 |dual - center|^2`. Its own dual is to minimize, without constraints, the convex function

    P(beta, b) = 1/2 beta' K beta + sum_i phi_i((K beta)_i + b) + (b - b_center)^2 / (2 variance)

whose `phi_i`, the loss's Moreau envelope, has a continuous, piecewise linear derivative. Newton's method
with an exact line search ends on it after finitely many steps, whatever K: `step` keeps every matrix
positive definite. The stage's solution is the next center, and the step shrinks. So ill-conditioned and
singular K are no special case, the limit is the exact solution, and a start near it costs one or two steps.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._results import RESULTS
from ..losses._piecewise import AbstractPiecewise, weighted_bound, weighted_compliance
from ._coordinate import coordinate_descent
from ._system import reduced_solve, sparse_product
from ._types import Options, Problem, Solution, Start

_STAGE_LIMIT = 60  # Newton steps in a stage; more than these happen only when rounding errors rule
_STALL_LIMIT = 6  # stages without progress


class _State(NamedTuple):
    # the stage
    center: Float[Array, " n"]
    offset_center: Float[Array, ""]
    step: Float[Array, ""]
    stage_steps: Int[Array, ""]
    # the Newton iterate, with latent = K beta + offset
    beta: Float[Array, " n"]
    offset: Float[Array, ""]
    latent: Float[Array, " n"]
    # the best solution so far
    best: Solution
    converged: Bool[Array, ""]
    stalls: Int[Array, ""]
    failures: Int[Array, ""]


def solve_piecewise(problem: Problem, start: Start, options: Options, warm: bool) -> Solution:
    """Solve a kernel machine with a piecewise loss.

    **Arguments:** `problem`; `start`; `options`; `warm`, whether `start` is near the solution.

    **Returns:** the solution, verified by its KKT residual.
    """
    loss, y, weights, gram = problem.loss, problem.y, problem.weights, problem.gram
    assert isinstance(loss, AbstractPiecewise)
    dtype = gram.dtype
    epsilon = jnp.finfo(dtype).eps
    examples = y.shape[0]
    variances = jnp.diag(gram)
    amplitude = jnp.maximum(jnp.mean(variances), jnp.finfo(dtype).tiny / epsilon)
    compliance = weighted_compliance(loss, weights, dtype)
    stiffest = jnp.min(compliance)
    bound = weighted_bound(loss, weights, dtype)
    lower = -bound if loss.is_two_sided else jnp.minimum(0, y * bound)
    upper = bound if loss.is_two_sided else jnp.maximum(0, y * bound)
    size = jnp.maximum(1.0, jnp.max(jnp.abs(y)))
    tolerance = (default_tolerance(dtype) if options.tolerance is None else options.tolerance) * size
    smallest_step = 4 * max(examples, 64) * epsilon * amplitude

    def next_step(step, factor):
        step = jnp.maximum(step * factor, smallest_step)
        # where the loss's own compliance is larger than the step, the step is not needed
        return jnp.where(stiffest >= 10 * step, 0.0, step).astype(dtype)

    # the stages are proximal in the offset too, which keeps it in bounds where no example is free
    variance = 1e3 * amplitude

    def respond(state, latent):
        return loss.respond(
            y, latent - state.step * state.center, compliance + state.step, bound
        )

    def newton(state, dual, free):
        """The Newton direction in `beta` and offset, and the slope of P along it."""
        residual = state.beta - dual
        gradient = sparse_product(gram, residual)
        right = gradient[:, None]
        if problem.has_offset:
            right = jnp.concatenate([right, jnp.ones_like(right)], axis=1)
        right = jnp.where(free[:, None], right, 0.0)
        diagonal = jnp.where(free, compliance + state.step, 1.0)
        answer = reduced_solve(gram, free.astype(dtype), diagonal, right)
        change, offset_change = answer[:, 0] - residual, jnp.zeros((), dtype)
        if problem.has_offset:
            pull = (state.offset - state.offset_center) / variance
            total = jnp.sum(answer[:, 1]) + 1 / variance
            offset_change = (jnp.sum(state.beta + change) - pull) / total
            change = change - offset_change * answer[:, 1]
        slope = gradient @ change
        if problem.has_offset:
            slope += offset_change * (pull - jnp.sum(dual))
        return change, offset_change, slope

    def slope_along(state, dual, change, offset_change, latent_change, slope):
        """The slope of P along the direction as a function of the distance, free of cancellation."""
        bend = change @ (latent_change - offset_change)
        if problem.has_offset:
            bend += offset_change**2 / variance

        def at(distance):
            moved, _ = respond(state, state.latent + distance * latent_change)
            return slope + distance * bend - (moved - dual) @ latent_change

        return at

    def finish_stage(state):
        """Take the stage's solution as the next center, and note how good it is."""
        response, free = respond(state, state.latent)
        dual = jnp.where(free, jnp.clip(state.beta, lower, upper), response)
        latent = gram @ dual + state.offset
        residual = jnp.max(loss.violation(y, latent, dual, weights))
        if problem.has_offset:
            residual = jnp.maximum(residual, jnp.abs(jnp.sum(dual)) * amplitude)
        rounding = 8 * epsilon * (jnp.max(variances) * jnp.linalg.norm(dual) + jnp.abs(state.offset))
        better = residual < state.best.residual
        best = state.best._replace(
            dual=jnp.where(better, dual, state.best.dual),
            offset=jnp.where(better, state.offset, state.best.offset),
            residual=jnp.where(better, residual, state.best.residual),
        )
        at_end = state.step <= smallest_step
        stalled = at_end & (residual > 0.5 * state.best.residual)
        quick = state.stage_steps <= 2
        stuck = state.stage_steps >= _STAGE_LIMIT
        factor = jnp.where(stuck, 10.0, jnp.where(quick, 0.01, 0.1))
        return state._replace(
            center=dual,
            offset_center=state.offset,
            step=next_step(state.step, factor),
            stage_steps=jnp.zeros_like(state.stage_steps),
            beta=dual,
            latent=latent,
            best=best,
            converged=residual <= jnp.maximum(tolerance, rounding),
            stalls=jnp.where(stalled | stuck, state.stalls + 1, jnp.where(better, 0, state.stalls)),
        )

    def body(state):
        dual, free = respond(state, state.latent)
        change, offset_change, slope = newton(state, dual, free)
        latent_change = sparse_product(gram, change) + offset_change
        slopes = slope_along(state, dual, change, offset_change, latent_change, slope)
        distance, descends = _exact_line_search(slopes, slope)
        sound = jnp.all(jnp.isfinite(latent_change)) & jnp.isfinite(distance)

        moved = state._replace(
            beta=state.beta + distance * change,
            offset=state.offset + distance * offset_change,
            latent=state.latent + distance * latent_change,
            stage_steps=state.stage_steps + 1,
        )
        new_dual, new_free = respond(moved, moved.latent)
        same_piece = jnp.all((new_free == free) & (free | (new_dual == dual)))
        ended = ((distance == 1) & same_piece) | ~descends
        ended |= moved.stage_steps >= _STAGE_LIMIT
        moved = jax.lax.cond(ended, finish_stage, lambda s: s, moved)

        # a factorization that fails asks for a larger step
        retry = state._replace(step=100 * state.step + smallest_step, failures=state.failures + 1)
        state = jax.tree.map(lambda a, b: jnp.where(sound, a, b), moved, retry)
        return state._replace(best=state.best._replace(iterations=state.best.iterations + 1))

    def unfinished(state):
        return (
            ~state.converged
            & (state.best.iterations < options.max_iterations)
            & (state.stalls < _STALL_LIMIT)
            & (state.failures < 8)
        )

    dual = jnp.clip(start.dual, lower, upper).astype(dtype)
    offset = start.offset.astype(dtype)
    latent = gram @ dual + offset
    if not warm:
        penalty = amplitude if problem.has_offset else jnp.zeros((), dtype)
        dual, latent = coordinate_descent(problem, dual, latent, penalty, examples, 1e-3 * size)
        offset = offset + penalty * jnp.sum(dual)
    # large enough that the first stage can move each latent value by a tenth of the margin
    largest = jnp.maximum(jnp.max(jnp.abs(dual)), 1e-6 / amplitude)
    first_step = next_step(jnp.minimum(0.1 * amplitude, 0.1 * size / largest), 1e-2 if warm else 1.0)
    initial = _State(
        center=dual,
        offset_center=offset,
        step=first_step,
        stage_steps=jnp.array(0),
        beta=dual,
        offset=offset,
        latent=latent,
        best=Solution(
            dual=dual,
            offset=offset,
            free=jnp.zeros(examples, bool),
            result=jnp.array(0),
            iterations=jnp.array(0),
            residual=jnp.array(jnp.inf, dtype),
        ),
        converged=jnp.array(False),
        stalls=jnp.array(0),
        failures=jnp.array(0),
    )
    last = jax.lax.while_loop(unfinished, body, initial)
    best = last.best
    magnitude = jnp.abs(best.dual)
    free = magnitude < bound
    if loss.has_flat_zone:
        free &= magnitude > 0
    result = jnp.select(
        [last.converged, last.failures >= 8, last.stalls >= _STALL_LIMIT],
        [RESULTS.successful, RESULTS.factorization_failed, RESULTS.precision_limit],
        RESULTS.iteration_limit,
    )
    return best._replace(free=free, result=result)


def default_tolerance(dtype) -> float:
    """The KKT residual that is asked for: 1e-10 in float64, 2e-6 in float32."""
    return 1e-10 if dtype == jnp.float64 else 2e-6


def _exact_line_search(slope, first) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """The distance in (0, 1] at which an increasing slope vanishes, one if it is not positive there."""
    last = slope(1.0)
    descends = first < 0
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
    search = descends & (last > small)
    _, low, high, slope_low, slope_high, _ = jax.lax.while_loop(
        lambda state: state[-1], body, (0, zero, one, first, last, search)
    )
    best = jnp.where(jnp.abs(slope_low) < jnp.abs(slope_high), low, high)
    return jnp.where(search, best, one), descends
