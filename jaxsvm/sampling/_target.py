"""The posterior in white coordinates, the scale of its directions, and its mode."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..linalg import cholesky, solve_by_factor, solve_triangular
from ..losses import AbstractLoss

_MODE_STEPS = 30
SOFTENING = 0.1  # of kinks, in units of the latent function, during the search for the mode


class Target(NamedTuple):
    """`p(b | D) ~ exp(-sum_i w_i L(y_i, (V b)_i) - b'b / 2)`.

    [GS05, eq. 19]; its dynamics are eqs. 20-21, where the sign before C is wrong. `loss` is L, `factor` is V,
    and each example has one entry of `y` and `weights`. Scaling the weights by a number between 0 and 1
    tempers the posterior.
    """

    loss: AbstractLoss
    factor: Float[Array, "n p"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]


def total_loss(target: Target, latent: Float[Array, " n"]) -> Float[Array, ""]:
    """`sum_i w_i L(y_i, f_i)`; an example of weight zero adds nothing, even if its loss is infinite.

    **Arguments:** `target`, the posterior; `latent`, the latent values f.

    **Returns:** a number.
    """
    # a latent value at the target makes both the loss and its derivative finite
    counted = jnp.where(target.weights > 0, latent, target.y)
    return jnp.sum(target.weights * target.loss.value(target.y, counted))


def slopes(target: Target, latent: Float[Array, " n"]) -> Float[Array, " n"]:
    """The slopes `u_i = w_i dL/df_i`.

    **Arguments:** `target`, the posterior; `latent`, the latent values f.

    **Returns:** one number for each example.
    """
    counted = jnp.where(target.weights > 0, latent, target.y)
    return target.weights * target.loss.derivative(target.y, counted)


class Scaling(NamedTuple):
    """Coordinates `b = S c` in which the posterior has about the same width in all directions.

    `S S' = (I + V' D V)^-1`, where the diagonal D holds the mean curvature of the losses over the
    posterior. Sampling `c` with unit masses is the same as sampling `b` with the mass matrix `I + V' D V`.
    """

    root: Float[Array, "p p"]
    factor: Float[Array, "n p"]  # V S


def scale(target: Target, curvature: Float[Array, " n"]) -> Scaling:
    """The scaling for a mean curvature of each example's loss.

    **Arguments:** `target`, the posterior; `curvature`, one number for each example.

    **Returns:** a `Scaling`.
    """
    precision = target.factor.T @ (curvature[:, None] * target.factor)
    lower = cholesky(precision + jnp.eye(precision.shape[0], dtype=precision.dtype))
    identity = jnp.eye(lower.shape[0], dtype=lower.dtype)
    root = solve_triangular(lower, identity).T
    return Scaling(root, target.factor @ root)


def no_scaling(target: Target) -> Scaling:
    """The white coordinates themselves, as in the papers."""
    return Scaling(jnp.eye(target.factor.shape[1], dtype=target.factor.dtype), target.factor)


def log_density(target: Target, scaling: Scaling, c: Float[Array, " p"]) -> Float[Array, ""]:
    """The logarithm of the posterior density of `c`, up to a constant."""
    white = scaling.root @ c
    return -total_loss(target, scaling.factor @ c) - white @ white / 2


def find_mode(
    target: Target, start: Float[Array, " p"] | None = None, steps: int = _MODE_STEPS
) -> tuple[Float[Array, " p"], Float[Array, " n"]]:
    """The approximate mode of the density of `b`, and the curvatures of the losses there.

    Newton's method with step halving. Kinks are rounded off over a tenth of a unit: the result only starts
    and scales the chains, it does not replace the fit.

    **Arguments:** `target`, the posterior; `start`, where to begin, by default at zero; `steps`, the number
    of Newton steps.

    **Returns:** the mode, and one number for each example.
    """
    loss, factor, y, weights = target

    def objective(b):
        return total_loss(target, factor @ b) + b @ b / 2

    def step(carry, _):
        b, value = carry
        gradient, curvature = loss.softened(y, factor @ b, weights, SOFTENING)
        hessian = factor.T @ (curvature[:, None] * factor)
        hessian += jnp.eye(hessian.shape[0], dtype=hessian.dtype)
        move = solve_by_factor(cholesky(hessian), factor.T @ gradient + b)
        lengths = jnp.exp2(-jnp.arange(10, dtype=b.dtype))
        trials = b[None, :] - lengths[:, None] * move[None, :]
        values = jax.vmap(objective)(trials)
        best = jnp.argmin(jnp.where(jnp.isnan(values), jnp.inf, values))
        better = values[best] < value
        b = jnp.where(better, trials[best], b)
        return (b, jnp.where(better, values[best], value)), None

    begin = jnp.zeros(factor.shape[1], factor.dtype) if start is None else start
    (b, _), _ = jax.lax.scan(step, (begin, objective(begin)), None, length=steps)
    return b, loss.softened(y, factor @ b, weights, SOFTENING)[1]
