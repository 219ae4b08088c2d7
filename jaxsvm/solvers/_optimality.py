"""When a solution is good enough: its residual against the tolerance and against rounding errors."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..losses._piecewise import AbstractPiecewise
from ._types import Options, Problem


def rounding_error(
    problem: Problem, dual: Float[Array, " n"], offset: Float[Array, ""]
) -> Float[Array, ""]:
    """The rounding error of a latent value `(K dual)_i + offset`, roughly."""
    size = jnp.max(jnp.diag(problem.gram)) * jnp.sqrt(dual @ dual) + jnp.abs(offset)
    return 8 * jnp.finfo(dual.dtype).eps * size


def largest_residual(
    problem: Problem, options: Options, dual: Float[Array, " n"], offset: Float[Array, ""]
) -> Float[Array, ""]:
    """The residual up to which a solution counts as one: what is asked for, or else what is possible.

    The tolerance is in units of the latent function, or of targets that are larger than one.
    """
    size = jnp.maximum(1.0, jnp.max(jnp.abs(problem.y)))
    wanted = options.tolerance_in(dual.dtype) * size
    return jnp.maximum(wanted, rounding_error(problem, dual, offset))


def with_offset(
    problem: Problem, residual: Float[Array, ""], dual: Float[Array, " n"]
) -> Float[Array, ""]:
    """The residual together with that of `sum(dual) = 0`, which a free offset asks for."""
    if not problem.has_offset:
        return residual
    return jnp.maximum(residual, jnp.abs(jnp.sum(dual)) * jnp.mean(jnp.diag(problem.gram)))


def piecewise_residual(
    problem: Problem, dual: Float[Array, " n"], latent: Float[Array, " n"]
) -> Float[Array, ""]:
    """The largest violation of the KKT conditions of a piecewise loss."""
    loss = problem.loss
    assert isinstance(loss, AbstractPiecewise)
    violation = loss.violation(problem.y, latent, dual, problem.weights)
    return with_offset(problem, jnp.max(violation), dual)
