"""The determinant of Laplace approximations, with its derivative in closed form."""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import _lapack
from .._roots import safe_root
from ..solvers._system import active_places
from ._cholesky import inverse_and_log_determinant


@jax.custom_jvp
def log_determinant(gram: Float[Array, "n n"], curvature: Float[Array, " n"]) -> Float[Array, ""]:
    """`ln det(I + L^(1/2) K L^(1/2))` for curvatures `L >= 0`, most of which may be zero.

    Its derivative with respect to K is `L^(1/2) A^-1 L^(1/2)`, with A the matrix above, and with respect
    to L the diagonal of `(I - A^-1) L^-1`. A curvature of zero is at its least, so it does not change with
    anything and needs no derivative. The examples that have none are left out: the work is that of the
    smallest of a few sizes that holds the others.
    """
    return _reduced(gram, curvature, _value)


@log_determinant.defjvp
def _log_determinant_jvp(primals, tangents):
    gram, curvature = primals
    value, in_gram, in_curvature = _reduced(gram, curvature, _value_and_derivatives)
    return value, jnp.vdot(in_gram, tangents[0]) + in_curvature @ tangents[1]


def _reduced(gram, curvature, function):
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
    factor = _lapack.cholesky(_matrix(gram, curvature, places)[0])
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
    """`ln det(I + L K)` for curvatures of any sign; NaN where the determinant is negative."""
    eye = jnp.eye(gram.shape[0], dtype=gram.dtype)
    return _lapack.log_determinant(eye + curvature[:, None] * gram)
