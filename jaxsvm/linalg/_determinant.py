"""The determinant of Laplace approximations, with its derivative in closed form."""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._roots import safe_root
from ._definite import inverse_and_log_determinant
from ._lapack import cholesky, one_by_one
from ._lapack import log_determinant as any_log_determinant
from ._reduced import active_places


@jax.custom_jvp
def laplace_log_determinant(
    gram: Float[Array, "n n"], curvature: Float[Array, " n"]
) -> Float[Array, ""]:
    """`ln det(I + L^(1/2) K L^(1/2))` for curvatures `L >= 0`, most of which may be zero.

    Its derivative with respect to K is `B = L^(1/2) A^-1 L^(1/2)`, with A the matrix above, and with respect
    to L the diagonal of `(I - A^-1) L^-1`. A curvature of zero is at its least, so it does not change with
    anything and needs no derivative. The examples that have none are left out: the work is that of the
    smallest of a few sizes that holds the others.

    **Arguments:** `gram`, the covariances K; `curvature`, one for each example, none negative.

    **Returns:** a number; NaN where the matrix is not positive definite.
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
    places = active_places(curvature > 0)
    if len(options) == 1:
        return function(gram, curvature, places)
    index = jnp.sum(jnp.sum(curvature > 0) > jnp.array(options[:-1]))
    branches = [partial(function, gram, curvature, places[:size]) for size in options]
    return jax.lax.switch(index, branches)


def _matrix(gram, curvature, places):
    """`I + L^(1/2) K L^(1/2)` of the examples at some places, and `L^(1/2)` there."""
    chosen = curvature.at[places].get(mode="fill", fill_value=0)
    root = safe_root(chosen)
    some = gram.at[places].get(mode="clip").at[:, places].get(mode="clip")
    matrix = root[:, None] * some * root[None, :]
    return matrix + jnp.eye(places.shape[0], dtype=gram.dtype), root


def _value(gram, curvature, places):
    factor = cholesky(_matrix(gram, curvature, places)[0])
    return 2 * jnp.sum(jnp.log(jnp.diag(factor)))


def _value_and_derivatives(gram, curvature, places):
    matrix, root = _matrix(gram, curvature, places)
    inverse, value = inverse_and_log_determinant(matrix)
    small = root[:, None] * inverse * root[None, :]
    in_gram = jnp.zeros_like(gram).at[places[:, None], places[None, :]].add(small, mode="drop")
    positive = root > 0
    share = jnp.where(positive, 1 - jnp.diag(inverse), 0.0) / jnp.where(positive, root, 1.0) ** 2
    in_curvature = jnp.zeros_like(curvature).at[places].add(share, mode="drop")
    return value, in_gram, in_curvature


def general_log_determinant(
    gram: Float[Array, "n n"], curvature: Float[Array, " n"]
) -> Float[Array, ""]:
    """`ln det(I + L K)` for curvatures of any sign.

    **Arguments:** `gram`, the covariances K; `curvature`, one for each example.

    **Returns:** a number; NaN where the determinant is not positive.
    """
    eye = jnp.eye(gram.shape[0], dtype=gram.dtype)
    return any_log_determinant(eye + curvature[:, None] * gram)
