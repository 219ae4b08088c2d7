"""A Gaussian process with one Gaussian measurement for each example: its posterior and its determinant."""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..numerics import safe_root
from . import _lapack
from ._inverse import inverse_and_log_determinant, inverse_of_definite
from ._lapack import cholesky, one_by_one, solve_by_factor, solve_triangular
from ._reduced import active_indices, scaled_matrix


def response(
    gram: Float[Array, "n n"], precision: Float[Array, " n"], definite: bool
) -> Float[Array, "n n"]:
    """The matrix `(K + precision^-1)^-1`, for precisions that may be zero.

    The posterior covariance of the latent values is `K - K response K`.

    **Arguments:** `gram`, the covariances K; `precision`, that of the measurement of each example;
    `definite`, whether no precision is negative.

    **Returns:** a symmetric matrix; NaN if a Cholesky factorization fails.
    """
    if definite:
        root = safe_root(precision)
        inverse = inverse_of_definite(_balanced(gram, root))
        return root[:, None] * inverse * root[None, :]
    # P^-1 (I + K P)^-1 would divide by precisions
    return _lapack.solve(_unbalanced(gram, precision), jnp.diag(precision))


def posterior_marginals(
    gram: Float[Array, "n n"],
    shift: Float[Array, " n"],
    precision: Float[Array, " n"],
    definite: bool,
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Means and variances under `N(f; 0, K) prod_i exp(shift_i f_i - precision_i f_i^2 / 2)`.

    The mean is `(I + K precision)^-1 K shift`. If the caller uses only the mean, the compiler drops the
    larger work for the variances.

    **Arguments:** `gram`, the covariances K; `shift`, `precision`, one for each example; `definite`, whether
    no precision is negative.

    **Returns:** two vectors, differentiable; NaN if a Cholesky factorization fails.
    """
    prior = gram @ shift
    if definite:
        root = safe_root(precision)
        factor = cholesky(_balanced(gram, root))
        mean = prior - gram @ (root * solve_by_factor(factor, root * prior))
        half = solve_triangular(factor, root[:, None] * gram)
        return mean, jnp.diag(gram) - jnp.sum(half**2, axis=0)
    matrix = _unbalanced(gram, precision)
    mean = prior - gram @ _lapack.solve(matrix, precision * prior)
    taken = _lapack.solve(matrix, precision[:, None] * gram)
    return mean, jnp.diag(gram) - jnp.sum(gram * taken, axis=0)


def _balanced(gram, root):
    """`I + root K root`, whose eigenvalues are at least one."""
    return scaled_matrix(gram, root, jnp.ones_like(root))


def _unbalanced(gram, precision):
    """`I + precision K`, for precisions of any sign."""
    return jnp.eye(gram.shape[0], dtype=gram.dtype) + precision[:, None] * gram


@jax.custom_jvp
def laplace_log_determinant(
    gram: Float[Array, "n n"], curvature: Float[Array, " n"]
) -> Float[Array, ""]:
    """`ln det(I + L^(1/2) K L^(1/2))` for curvatures `L >= 0`, most of which may be zero.

    Its derivative with respect to K is `B = L^(1/2) A^-1 L^(1/2)`, with A the matrix above, and with respect
    to L it is the diagonal of `(I - A^-1) L^-1`. A curvature of zero is at its minimum, so it needs no
    derivative. Examples of zero curvature are left out: the work is that of the smallest of a few sizes
    that holds the others.

    **Arguments:** `gram`, the covariances K; `curvature`, one for each example, none negative.

    **Returns:** a number; NaN if the matrix is not positive definite.
    """
    return one_by_one(partial(_reduced, _value))(gram, curvature)


@laplace_log_determinant.defjvp
def _log_determinant_jvp(primals, tangents):
    value, in_gram, in_curvature = _with_derivatives(*primals)
    return value, jnp.vdot(in_gram, tangents[0]) + in_curvature @ tangents[1]


@jax.custom_jvp
def _with_derivatives(gram, curvature):
    """The value, B, and the derivative with respect to each curvature."""
    return one_by_one(partial(_reduced, _value_and_derivatives))(gram, curvature)


@_with_derivatives.defjvp
def _with_derivatives_jvp(primals, tangents):
    """With `R = I - K B`: `dB = R' dL R - B dK B`.

    The other derivative is the diagonal of `S = R K`, the posterior covariance: `dS = R dK R' - S dL S`.
    """
    gram, curvature = primals
    value, in_gram, in_curvature = _with_derivatives(gram, curvature)
    gram_dot, curvature_dot = tangents[0], jnp.where(curvature > 0, tangents[1], 0.0)
    rest = jnp.eye(gram.shape[0], dtype=gram.dtype) - gram @ in_gram
    change = jnp.vdot(in_gram, gram_dot) + in_curvature @ curvature_dot
    in_gram_dot = rest.T @ (curvature_dot[:, None] * rest) - in_gram @ gram_dot @ in_gram
    by_gram = jnp.sum((rest @ gram_dot) * rest, axis=1)
    in_curvature_dot = jnp.where(curvature > 0, by_gram - (rest @ gram) ** 2 @ curvature_dot, 0.0)
    return (value, in_gram, in_curvature), (change, in_gram_dot, in_curvature_dot)


def _reduced(function, gram, curvature):
    examples = gram.shape[0]
    shares = (1.0,) if examples <= 64 else (1 / 4, 1.0) if examples <= 512 else (1 / 8, 3 / 8, 1.0)
    options = [math.ceil(share * examples) for share in shares]
    active = active_indices(curvature > 0)
    if len(options) == 1:
        return function(gram, curvature, active)
    index = jnp.sum(jnp.sum(curvature > 0) > jnp.array(options[:-1]))
    branches = [partial(function, gram, curvature, active[:size]) for size in options]
    return jax.lax.switch(index, branches)


def _matrix(gram, curvature, active):
    """`I + L^(1/2) K L^(1/2)` of the active examples, and their `L^(1/2)`."""
    root = safe_root(curvature.at[active].get(mode="fill", fill_value=0))
    submatrix = gram.at[active].get(mode="clip").at[:, active].get(mode="clip")
    return _balanced(submatrix, root), root


def _value(gram, curvature, active):
    factor = cholesky(_matrix(gram, curvature, active)[0])
    return 2 * jnp.sum(jnp.log(jnp.diag(factor)))


def _value_and_derivatives(gram, curvature, active):
    matrix, root = _matrix(gram, curvature, active)
    inverse, value = inverse_and_log_determinant(matrix)
    small = root[:, None] * inverse * root[None, :]
    in_gram = jnp.zeros_like(gram).at[active[:, None], active[None, :]].add(small, mode="drop")
    positive = root > 0
    share = jnp.where(positive, 1 - jnp.diag(inverse), 0.0) / jnp.where(positive, root, 1.0) ** 2
    in_curvature = jnp.zeros_like(curvature).at[active].add(share, mode="drop")
    return value, in_gram, in_curvature


def general_log_determinant(
    gram: Float[Array, "n n"], curvature: Float[Array, " n"]
) -> Float[Array, ""]:
    """`ln det(I + L K)` for curvatures of any sign.

    **Arguments:** `gram`, the covariances K; `curvature`, one for each example.

    **Returns:** a number; NaN if the determinant is not positive.
    """
    return _lapack.log_determinant(_unbalanced(gram, curvature))
