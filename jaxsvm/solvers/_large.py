"""Large problems with a matrix of low rank, in time proportional to the number of examples.

A solver begins with the solution for one example in 17, found in the same way: its latent values are near
those of all examples. The last digits of a loss with bounds depend only on the examples near its kinks. So
the solver first finds a rough solution, fixes the coefficients of the examples far from all kinks, solves
for the others, and verifies the result on all examples. If an example has come near a kink, it does so
again.

Examples that are divided among several devices stay where they are. Those of the subset are spread evenly
over the devices, and all examples are solved for at once.
"""

from typing import NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .. import linalg
from ..gram import DenseGram
from ..losses import AbstractPiecewise
from ..results import RESULTS
from ._box import Box, box_of, is_free
from ._newton import solve_smooth
from ._optimality import judge_piecewise, sharp_rounding_errors
from ._problem import Options, Point, Problem, Solution, Start
from ._proximal import solve_piecewise, solve_piecewise_near

_STRIDE = 17  # a prime, since examples may come in a regular order
_SMALL = 1024  # with up to this many examples the matrix may as well be dense
_SHARE = 8  # room for one example in eight near a kink
_ROUNDS = 4
_ROUGH = 0.15  # tolerance of a rough solution, in units of the latent function


def solve_large(problem: Problem, options: Options) -> Solution:
    """Solve a kernel machine whose matrix is of low rank, without a first point.

    **Arguments:** `problem`; `options`.

    **Returns:** a `Solution`.
    """
    loss = problem.loss
    has_kinks = isinstance(loss, AbstractPiecewise) and loss.shape().bound is not None
    # with an offset, the coefficients of a part do not sum to zero; the part would have to leave its devices
    in_parts = has_kinks and not problem.has_offset and problem.gram.shards == 1
    if problem.y.shape[0] > _SMALL and in_parts:
        piecewise = cast(Problem[AbstractPiecewise], problem)
        return _solve_near_kinks(piecewise, _near_point(problem), options)
    return _solve_all(problem, options)


def _solve_all(problem: Problem, options: Options) -> Solution:
    """Solve for all examples at once, from the rough solution for a subset."""
    if problem.y.shape[0] <= _SMALL:
        return _solve_small(problem, options)
    return _solve_from(problem, _near_point(problem), options)


def _solve_from(problem: Problem, near: Point, options: Options) -> Solution:
    if not isinstance(problem.loss, AbstractPiecewise):
        return solve_smooth(problem, Start(near.beta, near.offset), options)
    return solve_piecewise_near(cast(Problem[AbstractPiecewise], problem), near, options)


def _solve_small(problem: Problem, options: Options) -> Solution:
    if problem.gram.shards > 1:
        zeros = jnp.zeros_like(problem.y)
        return _solve_from(problem, Point(zeros, jnp.zeros((), problem.gram.dtype), zeros), options)
    dense = eqx.tree_at(lambda tree: tree.gram, problem, DenseGram(problem.gram.dense()))
    zero = jnp.zeros((), problem.gram.dtype)
    start = Start(jnp.zeros_like(problem.y), zero)
    if isinstance(problem.loss, AbstractPiecewise):
        return solve_piecewise(dense, start, options, warm=False)
    return solve_smooth(dense, start, options)


def _near_point(problem: Problem) -> Point:
    """The rough solution for a subset, as coefficients and latent values of all examples."""
    shards = problem.gram.shards
    y, weights = (linalg.thinned(it, _STRIDE, shards) for it in (problem.y, problem.weights))
    total = jnp.sum(weights)
    heavier = weights * jnp.where(total > 0, jnp.sum(problem.weights) / total, 0.0)
    thinned = problem.gram.thinned(_STRIDE)
    subset = Problem(thinned, y, heavier, problem.loss, problem.has_offset)
    rough = _solve_all(subset, Options(_ROUGH / 2))
    sound = jnp.all(jnp.isfinite(rough.dual)) & jnp.isfinite(rough.offset)
    dual = jnp.where(sound, rough.dual, 0.0)
    offset = jnp.where(sound, rough.offset, 0.0)
    parts = jnp.zeros_like(problem.y).reshape(shards, -1)
    beta = parts.at[:, ::_STRIDE].set(dual.reshape(shards, -1)).reshape(-1)
    return Point(beta, offset, problem.latent(problem.gram.sparse_product(beta), offset))


class _Round(NamedTuple):
    number: Int[Array, ""]
    point: Point
    iterations: Int[Array, ""]
    solution: Solution


def _solve_near_kinks(
    problem: Problem[AbstractPiecewise], near: Point, options: Options
) -> Solution:
    """Solve roughly, then exactly for the examples near a kink, until all examples are solved exactly."""
    examples, dtype = problem.y.shape[0], problem.gram.dtype
    few = -(-examples // _SHARE)
    exact = options.tolerance_in(dtype)

    def solve_all(state: _Round) -> Solution:
        # the last resort is an exact solution for all examples at once
        tolerance = jnp.where(state.number == 0, jnp.maximum(_ROUGH, exact), exact)
        return solve_piecewise_near(
            problem, state.point, Options(tolerance, options.max_iterations)
        )

    def solve_part(state: _Round) -> Solution:
        return _solve_part(problem, state.point, few, options)

    def iterate(state: _Round) -> _Round:
        # the part must have room for all examples that are free now, and for as many that will be
        crowded = 2 * jnp.sum(state.solution.free) > few
        whole = (state.number == 0) | (state.number > _ROUNDS) | crowded
        solution = jax.lax.cond(whole, solve_all, solve_part, state)
        latent = problem.latent(problem.gram.sparse_product(solution.dual), solution.offset)
        return _Round(
            state.number + 1,
            Point(solution.dual, solution.offset, latent),
            state.iterations + solution.iterations,
            solution,
        )

    def unfinished(state: _Round) -> Bool[Array, ""]:
        return (state.number < 2) | (
            (state.solution.result != RESULTS.successful) & (state.number <= _ROUNDS + 1)
        )

    nothing = jnp.zeros((), dtype)
    solution = Solution(
        near.beta,
        near.offset,
        jnp.zeros(examples, bool),
        jnp.asarray(RESULTS.iteration_limit),
        jnp.array(0),
        nothing,
        nothing,
    )
    first = _Round(jnp.array(0), near, jnp.array(0), solution)
    last = jax.lax.while_loop(unfinished, iterate, first)
    return last.solution._replace(iterations=last.iterations)


def _solve_part(
    problem: Problem[AbstractPiecewise], point: Point, count: int, options: Options
) -> Solution:
    """Solve for the examples nearest to a kink, the others fixed, and judge the solution for all."""
    box = box_of(problem)
    _, part = jax.lax.top_k(-_kink_distance(box, point.latent), count)
    rest = point.beta.at[part].set(0.0)
    shift = problem.gram.sparse_product(rest)[part]
    y, weights = problem.y[part], problem.weights[part]
    subset = Problem(problem.gram.subset(part), y, weights, problem.loss, False, shift)
    near = Point(point.beta[part], point.offset, point.latent[part])
    solution = solve_piecewise_near(subset, near, options)
    dual = rest.at[part].set(solution.dual)
    latent = problem.latent(problem.gram.sparse_product(dual), point.offset)
    errors = sharp_rounding_errors(problem, dual, point.offset)
    verdict = judge_piecewise(problem, options, dual, point.offset, latent, errors)
    failed = jnp.where(
        solution.result == RESULTS.successful, RESULTS.iteration_limit, solution.result
    )
    return Solution(
        dual,
        point.offset,
        is_free(box, dual),
        jnp.where(verdict.is_solution, RESULTS.successful, failed),
        solution.iterations,
        verdict.residual,
        verdict.gap,
    )


def _kink_distance(box: Box, latent: Float[Array, " n"]) -> Float[Array, " n"]:
    """How far each example is from a kink or a curved piece of its loss; infinite without a weight."""
    loss, counts = box.problem.loss, box.problem.weights > 0
    _, excess = loss.excess(box.problem.y, latent)
    knee = jnp.where(counts, box.compliance * box.bound, 0.0)
    distance = jnp.maximum(excess - knee, 0.0)
    if loss.has_flat_zone:
        distance = jnp.maximum(distance, -excess)
    return jnp.where(counts, distance, jnp.inf)
