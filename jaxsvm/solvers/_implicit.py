"""Exact derivatives of a solution, from the optimality conditions that it satisfies.

Each example obeys one equation `R_i(dual_i, f_i; hyperparameters) = 0` with `f = K dual + offset`:

- a smooth loss: `dual + w L'(y, f) = 0`;
- a piecewise loss, free example: `f + compliance dual = y - sign(dual) dead_zone`;
- a piecewise loss, example at a bound: `dual = sign(dual) bound`; without loss: `dual = 0`.

The loss knows these equations (`AbstractLoss.optimality`). Differentiating them gives a linear system for
the change of the dual, of fixed shape and with identity rows for the examples that are not free, solved
by one Cholesky factorization. If an example is about to change its set, for example from free to bound, the
solution has a kink: the derivative is that of the set which the solver reports, hence one of the one-sided
derivatives.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..linalg import SolveOptions, one_by_one
from ._problem import Problem


@jax.custom_jvp
def attach_derivatives(
    problem: Problem,
    dual: Float[Array, " n"],
    offset: Float[Array, ""],
    free: Bool[Array, " n"],
) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    """The solution `dual`, `offset` of a problem, as a differentiable function of the problem.

    It has forward-mode and reverse-mode derivatives, of any order.

    **Arguments:** `problem`; `dual` and `offset`, its solution; `free`, which examples are free.

    **Returns:** the dual coefficients and the offset.
    """
    return dual, offset


@attach_derivatives.defjvp
def _attach_derivatives_jvp(primals, tangents):
    problem, dual, offset, free = primals
    # the solution depends on the problem here too, so that this rule can itself be differentiated
    dual, offset = attach_derivatives(problem, dual, offset, free)
    _, explicit = jax.jvp(lambda p: _equations(p, dual, offset, free), (problem,), (tangents[0],))
    latent = problem.gram @ dual + offset
    in_dual, in_latent = problem.loss.optimality_slopes(problem.y, latent, problem.weights, free)
    solve = _solve_definite if problem.loss.is_convex else _solve_general
    return (dual, offset), solve(problem, in_dual, in_latent, explicit)


def _equations(problem: Problem, dual, offset, free) -> Float[Array, " n"]:
    """`R_i` of each example, zero at the solution."""
    latent = problem.gram @ dual + offset
    return problem.loss.optimality(problem.y, latent, dual, problem.weights, free)


def _solve_definite(problem: Problem, in_dual, in_latent, explicit):
    """Solve `in_dual d + in_latent (K d + e) = -explicit`, `sum(d) = 0` if there is an offset.

    Rows are divided by `in_dual + amplitude in_latent`, which leaves `D d + E (K d + e) = -r` with
    `D + amplitude E = 1`; then `d = -r + E^(1/2) t` and `D + E^(1/2) K E^(1/2)` is positive definite.
    """
    gram = problem.gram
    amplitude = jnp.mean(gram.diagonal())
    row = in_dual + amplitude * in_latent
    diagonal, latent_part, right = in_dual / row, in_latent / row, explicit / row
    active = latent_part > 0
    root = jnp.where(active, jnp.sqrt(jnp.where(active, latent_part, 1.0)), 0.0)
    jitter = 4 * root.shape[0] * float(jnp.finfo(gram.dtype).eps)

    def product(vector):
        return diagonal * vector + root * (gram @ (root * vector))

    def reduced(gram, root, diagonal, vector):
        options = SolveOptions(jitter, refinements=2, coarse=True)
        return gram.reduced_solve(root, diagonal, vector, options=options)[0]

    def solve_product(_, vector):
        # one after the other, or all branches would be run for all members of a batch
        return one_by_one(reduced, shared=3)(gram, root, diagonal, vector)

    def solve(vector):
        # the branches of a reduced system cannot be transposed under vmap: state that it is symmetric
        return jax.lax.custom_linear_solve(product, vector, solve_product, symmetric=True)

    answer = solve(root * (gram @ right - amplitude * right))
    change, offset_change = root * answer - right, jnp.zeros((), gram.dtype)
    if problem.has_offset:
        per_offset = root * solve(root)
        total = jnp.sum(per_offset)
        determined = total > 0  # without a free example the offset is not determined: keep it
        offset_change = jnp.sum(change) * jnp.where(
            determined, 1 / jnp.where(determined, total, 1), 0
        )
        change = change - offset_change * per_offset
    return change, offset_change


def _solve_general(problem: Problem, in_dual, in_latent, explicit):
    """The same for negative curvatures: a general factorization of the whole system."""
    gram = problem.gram
    if not problem.has_offset:
        return gram.general_solve(in_dual, in_latent, -explicit), jnp.zeros((), gram.dtype)
    # two separate systems, since a derivative is linear only in the first right-hand side
    change = gram.general_solve(in_dual, in_latent, -explicit)
    per_offset = gram.general_solve(in_dual, in_latent, in_latent)
    offset_change = jnp.sum(change) / jnp.sum(per_offset)
    return change - offset_change * per_offset, offset_change
