"""Quadratic losses: one Cholesky factorization."""

import jax
import jax.numpy as jnp

from ..linalg import SolveOptions
from ..losses import AbstractPiecewise, weighted_compliance
from ..results import RESULTS
from ._optimality import judge_piecewise
from ._problem import Options, Problem, Solution


def solve_quadratic(problem: Problem[AbstractPiecewise], options: Options) -> Solution:
    """Solve `(K + compliance) dual + offset = y`, and `sum(dual) = 0` if there is a free offset.

    With the offset as in [CT07, eqs. 7-10]: `rho = M^-1 1`, `v = M^-1 y`, `offset = sum(v) / sum(rho)`,
    `dual = v - offset rho`.

    **Arguments:** `problem`; `options`.

    **Returns:** a `Solution`.
    """
    loss, y, gram = problem.loss, problem.y, problem.gram
    dtype = gram.dtype
    counts = problem.weights > 0
    compliance = jnp.where(counts, weighted_compliance(loss, problem.weights, dtype), 1.0)
    rights = [jnp.where(counts, y, 0.0)]
    if problem.has_offset:
        rights.append(counts.astype(dtype))

    def solve(jitter, refinements):
        how = SolveOptions(jitter, refinements, coarse=True)
        return gram.reduced_solve(counts.astype(dtype), compliance, *rights, options=how)

    lift = 4 * y.shape[0] * jnp.finfo(dtype).eps * jnp.mean(gram.diagonal())
    plain = solve(None, 1)
    # for a numerically singular K with almost no noise; the refinement removes the effect of the jitter
    sound = jnp.all(jnp.isfinite(plain[0]))
    dual, *per_offset = jax.lax.cond(sound, lambda: plain, lambda: solve(lift, 8))
    offset = jnp.zeros((), dtype)
    if problem.has_offset:
        # one round is exact up to rounding, which a sum of very different coefficients magnifies
        for _ in range(3):
            change = jnp.sum(dual) / jnp.sum(per_offset[0])
            dual, offset = dual - change * per_offset[0], offset + change

    verdict = judge_piecewise(problem, options, dual, offset, gram @ dual + offset)
    result = jnp.select(
        [verdict.is_solution, jnp.isnan(verdict.residual)],
        [RESULTS.successful, RESULTS.factorization_failed],
        RESULTS.precision_limit,
    )
    return Solution(dual, offset, counts, result, jnp.array(1), verdict.residual, verdict.gap)
