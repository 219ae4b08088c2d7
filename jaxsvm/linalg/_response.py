"""The linear algebra of a Gaussian posterior: a Gaussian process seen through one Gaussian each example."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._roots import safe_root
from . import _lapack
from ._definite import inverse_of_definite
from ._inverse import inverse_diagonal


def response(
    gram: Float[Array, "n n"], precision: Float[Array, " n"], definite: bool
) -> Float[Array, "n n"]:
    """The matrix `(K + precision^-1)^-1`, for precisions that may be zero.

    The covariance of the latent values is `K - K response K`.

    **Arguments:** `gram`, the covariances K; `precision`, of the Gaussian that stands for each example;
    `definite`, whether no precision is negative.

    **Returns:** a symmetric matrix; NaN where a Cholesky factorization fails.
    """
    if definite:
        root = safe_root(precision)
        inverse = inverse_of_definite(_balanced(gram, root))
        return root[:, None] * inverse * root[None, :]
    eye = jnp.eye(gram.shape[0], dtype=gram.dtype)
    # P^-1 (I + K P)^-1 would divide by precisions
    return _lapack.solve(eye + precision[:, None] * gram, jnp.diag(precision))


def solve_response(
    gram: Float[Array, "n n"],
    precision: Float[Array, " n"],
    right: Float[Array, " n"],
    definite: bool,
) -> Float[Array, " n"]:
    """`(I + K precision)^-1 right`, linear in `right` and differentiable.

    **Arguments:** as in `response`: `gram`, `precision`, `definite`; `right`, a vector.

    **Returns:** a vector.
    """
    if definite:
        root = safe_root(precision)
        factor = _lapack.cholesky(_balanced(gram, root))
        answer = _lapack.solve_by_factor(factor, root * right)
        return right - gram @ (root * answer)
    eye = jnp.eye(gram.shape[0], dtype=gram.dtype)
    return _lapack.solve(eye + gram * precision[None, :], right)


def cavity_variances(
    gram: Float[Array, "n n"],
    precision: Float[Array, " n"],
    definite: bool,
    marginal: Float[Array, " n"] | None = None,
) -> Float[Array, " n"]:
    """The variance of each latent value when the Gaussian of its example is taken away.

    `S_i = 1 / [(K + Omega)^-1]_ii - Omega_i` with `Omega = 1 / precision`: [OW00, eq. 8.41]. Where the
    precision vanishes so do the digits of S, unless it comes from the variance with that Gaussian. (In
    eq. 8.41 S is multiplied with an alpha that vanishes, too.)

    **Arguments:** as in `response`: `gram`, `precision`, `definite`; `marginal`, the variances with all
    Gaussians, if they are known.

    **Returns:** one variance for each example, differentiable.
    """
    if definite:
        share = inverse_diagonal(_balanced(gram, safe_root(precision)))
    else:
        eye = jnp.eye(gram.shape[0], dtype=gram.dtype)
        share = jnp.diag(_lapack.inverse(eye + precision[:, None] * gram))
    # share = 1 / (1 + precision S)
    least = 4 * float(jnp.finfo(gram.dtype).eps) if marginal is None else 1e-3
    strong = jnp.abs(precision) * jnp.diag(gram) > least
    variance = (1 / share - 1) / jnp.where(strong, precision, 1.0)
    weak = jnp.diag(gram) if marginal is None else marginal / (1 - marginal * precision)
    return jnp.where(strong, variance, weak)


def _balanced(gram, root):
    """`I + root K root`, whose eigenvalues are one at least."""
    return root[:, None] * gram * root[None, :] + jnp.eye(gram.shape[0], dtype=gram.dtype)
