"""Smooth losses: Newton's method with backtracking."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._results import RESULTS
from ._optimality import Verdict, judge_smooth, sharp_rounding_errors
from ._types import Options, Problem, Solution, Start

_STALL_LIMIT = 60  # steps without progress


class _State(NamedTuple):
    beta: Float[Array, " n"]
    offset: Float[Array, ""]
    latent: Float[Array, " n"]  # K beta + offset
    best: tuple[Float[Array, " n"], Float[Array, ""]]  # coefficients and offset
    verdict: Verdict  # on the best
    iterations: Int[Array, ""]
    stalls: Int[Array, ""]
    sound: Bool[Array, ""]


def solve_smooth(problem: Problem, start: Start, options: Options) -> Solution:
    """Minimize `1/2 beta' K beta + sum_i weights_i L(y_i, (K beta)_i + offset)`.

    The Newton step is found from `I + H^(1/2) K H^(1/2)`, `H` the weighted curvatures, so K is never
    inverted. Each step is halved until the objective falls enough, which also keeps latent values on
    this side of a wall where the loss is infinite. Of a loss that is not convex, negative curvatures
    count as zero; the end is a stationary point.

    **Arguments:** `problem`; `start`, where to begin; `options`.

    **Returns:** a `Solution`.
    """
    loss, y, weights, gram = problem.loss, problem.y, problem.weights, problem.gram
    dtype = gram.dtype
    epsilon = jnp.finfo(dtype).eps
    counts = weights > 0

    def weighted(values):
        return jnp.where(counts, weights * values, 0.0)

    def body(state):
        slopes = weighted(loss.derivative(y, state.latent))
        curvatures = jnp.maximum(weighted(loss.curvature(y, state.latent)), 0)
        root = jnp.sqrt(curvatures)
        residual = state.beta + slopes
        smooth_residual = gram @ residual
        rights = [root * smooth_residual]
        if problem.has_offset:
            rights.append(root)
        # relative to the diagonal, so that rounding errors leave the matrix positive definite
        diagonal = 1 + 4 * y.shape[0] * epsilon * curvatures * gram.diagonal()
        answer, *rest = gram.reduced_solve(root, diagonal, *rights)
        change, offset_change = root * answer - residual, jnp.zeros((), dtype)
        if problem.has_offset:
            per_offset = root * rest[0]
            total = jnp.sum(per_offset)
            determined = total > 0  # where no example has a curvature the offset stays
            offset_change = jnp.sum(state.beta + change) / jnp.where(determined, total, 1.0)
            offset_change = jnp.where(determined, offset_change, 0.0)
            change = change - offset_change * per_offset
        latent_change = gram @ change + offset_change

        # the objective's change along the step, in a form that does not cancel
        linear = change @ (state.latent - state.offset)
        quadratic = change @ (latent_change - offset_change)
        slope = linear + slopes @ latent_change
        values = loss.value(y, state.latent)

        def rise(distance):
            moved = loss.value(y, state.latent + distance * latent_change)
            return distance * (linear + distance * quadratic / 2) + jnp.sum(
                weighted(moved - values)
            )

        noise = 16 * epsilon * (jnp.sum(weighted(jnp.abs(values))) + jnp.abs(linear))

        def too_far(distance):
            return ~(rise(distance) <= 1e-4 * distance * slope + noise) & (distance > 1e-12)

        distance = jax.lax.while_loop(too_far, lambda t: t / 2, jnp.ones((), dtype))
        beta = state.beta + distance * change
        offset = state.offset + distance * offset_change
        # latent values from scratch: the rounding errors of the way must not hide in what is judged
        latent = gram @ beta + offset
        verdict = judge_smooth(problem, options, beta, offset, latent)
        sound = jnp.all(jnp.isfinite(latent)) & jnp.isfinite(verdict.residual)
        better = verdict.is_solution | (sound & (verdict.largest_gap < state.verdict.largest_gap))
        progress = verdict.largest_gap < 0.9 * state.verdict.largest_gap
        best, best_verdict = jax.tree.map(
            lambda a, b: jnp.where(better, a, b),
            ((beta, offset), verdict),
            (state.best, state.verdict),
        )
        return _State(
            beta=beta,
            offset=offset,
            latent=latent,
            best=best,
            verdict=best_verdict,
            iterations=state.iterations + 1,
            stalls=jnp.where(progress, 0, state.stalls + 1),
            sound=sound,
        )

    def unfinished(state):
        return (
            ~state.verdict.is_solution
            & state.sound
            & (state.iterations < options.max_iterations)
            & (state.stalls < _STALL_LIMIT)
        )

    beta, offset = start.dual.astype(dtype), start.offset.astype(dtype)
    latent = gram @ beta + offset
    # a start behind the wall of an infinite loss is no start
    possible = jnp.isfinite(jnp.sum(weighted(loss.value(y, latent))))
    beta, offset, latent = (jnp.where(possible, v, 0.0) for v in (beta, offset, latent))
    endless = jnp.array(jnp.inf, dtype)
    last = jax.lax.while_loop(
        unfinished,
        body,
        _State(
            beta=beta,
            offset=offset,
            latent=latent,
            best=(beta, offset),
            verdict=Verdict(endless, endless, endless, jnp.array(False)),
            iterations=jnp.array(0),
            stalls=jnp.array(0),
            sound=jnp.array(True),
        ),
    )
    beta, offset = last.best
    latent = gram @ beta + offset
    verdict = jax.lax.cond(
        last.verdict.is_solution,
        lambda: last.verdict,
        lambda: judge_smooth(
            problem, options, beta, offset, latent, sharp_rounding_errors(problem, beta, offset)
        ),
    )
    success = RESULTS.successful if loss.is_convex else RESULTS.local_optimum
    result = jnp.select(
        [verdict.is_solution, ~last.sound | (last.stalls >= _STALL_LIMIT)],
        [success, RESULTS.precision_limit],
        RESULTS.iteration_limit,
    )
    free = weighted(loss.curvature(y, latent)) != 0
    gap = verdict.gap if loss.is_convex else jnp.full_like(verdict.gap, jnp.nan)
    return Solution(beta, offset, free, result, last.iterations, verdict.residual, gap)
