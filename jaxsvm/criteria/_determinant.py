"""The determinant of Laplace approximations, with its derivative in closed form."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..solvers._system import active_places


@jax.custom_jvp
def log_determinant(gram: Float[Array, "n n"], curvature: Float[Array, " n"]) -> Float[Array, ""]:
    """`ln det(I + L^(1/2) K L^(1/2))` for curvatures `L >= 0`, most of which may be zero.

    Its derivative with respect to K is `B = L^(1/2) A^-1 L^(1/2)`, with A the matrix above, and with
    respect to L the diagonal of `K - K B K`. The examples of no curvature are left out of the
    factorization where no more than a quarter of all have one.
    """
    return _reduced(gram, curvature, _value)


@log_determinant.defjvp
def _log_determinant_jvp(primals, tangents):
    gram, curvature = primals
    value, in_gram, in_curvature = _reduced(gram, curvature, _value_and_derivatives)
    return value, jnp.vdot(in_gram, tangents[0]) + in_curvature @ tangents[1]


def _reduced(gram, curvature, function):
    examples = gram.shape[0]
    few = -(-examples // 4)
    everything = jnp.arange(examples)
    if examples <= 64:
        return function(gram, curvature, everything)
    active = curvature > 0
    places = active_places(active)[:few]
    return jax.lax.cond(
        jnp.sum(active) <= few,
        lambda: function(gram, curvature, places),
        lambda: function(gram, curvature, everything),
    )


def _factor(gram, curvature, places):
    chosen = curvature.at[places].get(mode="fill", fill_value=0)
    positive = chosen > 0
    root = jnp.where(positive, jnp.sqrt(jnp.where(positive, chosen, 1.0)), 0.0)
    rows = gram.at[places].get(mode="clip")
    matrix = root[:, None] * rows.at[:, places].get(mode="clip") * root[None, :]
    factor = jax.lax.linalg.cholesky(matrix + jnp.eye(places.shape[0], dtype=gram.dtype))
    return factor, root, rows


def _value(gram, curvature, places):
    factor, _, _ = _factor(gram, curvature, places)
    return 2 * jnp.sum(jnp.log(jnp.diag(factor)))


def _value_and_derivatives(gram, curvature, places):
    factor, root, rows = _factor(gram, curvature, places)
    half = jax.lax.linalg.triangular_solve(factor, jnp.diag(root), left_side=True, lower=True)
    small = half.T @ half
    in_gram = jnp.zeros_like(gram).at[places[:, None], places[None, :]].add(small, mode="drop")
    in_curvature = jnp.diag(gram) - jnp.sum((half @ rows) ** 2, axis=0)
    return 2 * jnp.sum(jnp.log(jnp.diag(factor))), in_gram, in_curvature


def general_log_determinant(
    gram: Float[Array, "n n"], curvature: Float[Array, " n"]
) -> Float[Array, ""]:
    """`ln det(I + L K)` for curvatures of any sign; NaN where the determinant is negative."""
    eye = jnp.eye(gram.shape[0], dtype=gram.dtype)
    sign, value = jnp.linalg.slogdet(eye + curvature[:, None] * gram)
    return jnp.where(sign > 0, value, jnp.nan)
