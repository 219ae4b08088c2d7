"""A likelihood of labels averaged over a Gaussian, with its first two derivatives."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..losses import AbstractLoss, FlipNoise, Logistic, Probit
from ..numerics import STEPS, over_gaussian, peak

_LEVELS = np.array([0.5, 1.5, 3.0, 6.0, 10.0, 16.0, 26.0, 40.0])


class Average(NamedTuple):
    """The logarithm of an average likelihood Z, with its derivatives.

    `log_value` is `ln Z`, `slope` is `d ln Z / d mean` and `curvature` is `-d2 ln Z / d mean2`.
    """

    log_value: Float[Array, "..."]
    slope: Float[Array, "..."]
    curvature: Float[Array, "..."]


def averaged(
    loss: AbstractLoss,
    y: Float[Array, "..."],
    mean: Float[Array, "..."],
    variance: Float[Array, "..."],
) -> Average:
    """The average `Z = <Q(y | f)>` of the likelihood over a Gaussian of latent values, elementwise.

    Probit labels, flipped or not, are signs of a latent value plus noise, so the Gaussian's variance adds to
    that of the noise: [OW00, eqs. 8.15-8.17 and 8.39]. The logistic likelihood is integrated over panels with
    eight Gauss-Legendre nodes each; a panel ends where the likelihood or the Gaussian has changed by a
    given factor.

    The distribution `Q(y | f) N(f; mean, variance) / Z` has the mean `mean + variance slope` and the
    variance `variance (1 - variance curvature)`.

    **Arguments:** `loss`, a `Probit`, `FlipNoise` or `Logistic`; `y`, labels; `mean`, `variance`, those of
    the Gaussians.

    **Returns:** an `Average`, differentiable in all arguments.
    """
    if isinstance(loss, Probit | FlipNoise):
        log_noise = jnp.log(loss.noise_variance + variance)
        wide = eqx.tree_at(lambda tree: tree.log_noise_variance, loss, log_noise)
        return Average(-wide.value(y, mean), -wide.derivative(y, mean), wide.curvature(y, mean))
    average = jax.vmap(_integrate, in_axes=(None, 0, 0, 0))(loss, y, mean, variance)
    return average._replace(log_value=average.log_value + loss.log_normalizer())


def _integrate(loss, y, mean, variance) -> Average:
    """The average over one Gaussian, by quadrature.

    With `<.>` the average over `Q(y | f) N(f)`, the derivatives are `-<L'>` and `<L''> - <L'^2> + <L'>^2`.
    Unlike formulas with the moments of f, these do not cancel for a narrow Gaussian.
    """
    variance = jnp.maximum(variance, jnp.finfo(variance.dtype).eps)
    deviation = jnp.sqrt(variance)
    margins, log_weights = over_gaussian(_ends(loss, y * mean, deviation), y * mean, deviation)
    f, labels = y * margins, jnp.broadcast_to(y, margins.shape)
    log_terms = log_weights - loss.value(labels, f)
    log_value = jax.scipy.special.logsumexp(log_terms)
    shares = jnp.exp(log_terms - log_value)
    slopes = loss.derivative(labels, f)
    slope = jnp.sum(shares * slopes)
    curvature = jnp.sum(shares * (loss.curvature(labels, f) - (slopes - slope) ** 2))
    return Average(log_value, -slope, curvature)


def _ends(loss: Logistic, margin, deviation):
    """The ends of panels for the likelihood times a Gaussian around a margin."""
    levels = jnp.asarray(np.concatenate([-_LEVELS[::-1], [0.0], _LEVELS]), margin.dtype)
    steps = jnp.asarray(STEPS, margin.dtype)
    one = jnp.ones_like(margin)
    top = peak(lambda z: loss.derivative(one, z), margin, deviation)
    width = 1 / jnp.sqrt(deviation**-2 + loss.curvature(one, top))
    likelihood = [levels, levels / loss.C, jnp.log(loss.C) + levels]
    ends = jnp.concatenate([top + deviation * steps, top + width * steps, *likelihood])
    # the product is at least as peaked as the Gaussian
    return jnp.clip(ends, top + deviation * steps[0], top + deviation * steps[-1])
