"""A likelihood averaged over a Gaussian, with its first two derivatives."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._quadrature import panels
from ..losses import AbstractLoss, FlipNoise, Logistic, Probit

_LIKELIHOODS = (Probit, FlipNoise, Logistic)
_STEPS = np.array([-8.5, -6.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 6.0, 8.5])
_LEVELS = np.array([0.5, 1.5, 3.0, 6.0, 10.0, 16.0, 26.0, 40.0])


class Average(NamedTuple):
    """`ln Z`, its `slope` `d ln Z / d mean` and its `curvature` `-d2 ln Z / d mean2`."""

    log_value: Float[Array, " n"]
    slope: Float[Array, " n"]
    curvature: Float[Array, " n"]


def averaged(
    loss: AbstractLoss,
    y: Float[Array, " n"],
    mean: Float[Array, " n"],
    variance: Float[Array, " n"],
) -> Average:
    """The average `Z = <Q(y | f)>` of the likelihood over a Gaussian of latent values, elementwise.

    Probit labels, flipped or not, are signs of a latent value plus noise, so the Gaussian adds to the
    variance of the noise: [OW00, eqs. 8.15-8.17 and 8.39]. For the logistic likelihood panels end where
    the likelihood or the Gaussian have changed by some factor, with eight Gauss-Legendre nodes in each.

    The distribution `Q(y | f) N(f; mean, variance) / Z` has the mean `mean + variance slope` and the
    variance `variance (1 - variance curvature)`.

    **Arguments:** `loss`, one that `check_likelihood` lets pass; `y`, labels; `mean`, `variance`, of the
    Gaussians.

    **Returns:** an `Average`, differentiable in all arguments.
    """
    if isinstance(loss, Probit | FlipNoise):
        log_noise = jnp.log(loss.noise_variance + variance)
        wide = eqx.tree_at(lambda tree: tree.log_noise_variance, loss, log_noise)
        return Average(-wide.value(y, mean), -wide.derivative(y, mean), wide.curvature(y, mean))
    average = jax.vmap(_integrate, in_axes=(None, 0, 0, 0))(loss, y, mean, variance)
    return average._replace(log_value=average.log_value + loss.log_normalizer())


def check_likelihood(loss: AbstractLoss, method: str, flips: bool) -> None:
    """Raise unless the loss is a likelihood of labels that a method can average over a Gaussian.

    **Arguments:** `loss`; `method`, its name in the error; `flips`, whether it can treat `FlipNoise`.

    **Returns:** nothing.
    """
    known = _LIKELIHOODS if flips else (Probit, Logistic)
    if not isinstance(loss, known):
        names = ", ".join(f"losses.{kind.__name__}" for kind in known)
        hint = "" if flips else "; for flipped labels there is `gp.mean_field`"
        raise ValueError(
            f"{method} needs one of the likelihoods {names}, but the model has the loss "
            f"{type(loss).__name__}{hint}"
        )


def _integrate(loss, y, mean, variance) -> Average:
    """The average by quadrature, of one Gaussian.

    With `<.>` the average over `Q(y | f) N(f)` the derivatives are `-<L'>` and `<L''> - <L'^2> + <L'>^2`,
    which unlike those from the moments of f do not cancel where the Gaussian is narrow.
    """
    variance = jnp.maximum(variance, jnp.finfo(variance.dtype).eps)
    deviation = jnp.sqrt(variance)
    # of a sum over nodes the derivative is that of the integral, if the nodes stay
    f, widths = jax.lax.stop_gradient(_nodes(loss, y, mean, deviation))
    labels = jnp.broadcast_to(y, f.shape)
    log_terms = jnp.where(widths > 0, jnp.log(jnp.where(widths > 0, widths, 1.0)), -jnp.inf)
    log_terms = log_terms - ((f - mean) / deviation) ** 2 / 2 - loss.value(labels, f)
    log_sum = jax.scipy.special.logsumexp(log_terms)
    shares = jnp.exp(log_terms - log_sum)
    slopes = loss.derivative(labels, f)
    slope = jnp.sum(shares * slopes)
    curvature = jnp.sum(shares * (loss.curvature(labels, f) - (slopes - slope) ** 2))
    return Average(log_sum - jnp.log(deviation * np.sqrt(2 * np.pi)), -slope, curvature)


def _nodes(loss: Logistic, y, mean, deviation):
    """Nodes and their weights, for the likelihood times the Gaussian."""
    dtype = mean.dtype
    levels = jnp.asarray(np.concatenate([-_LEVELS[::-1], [0.0], _LEVELS]), dtype)
    steps = jnp.asarray(_STEPS, dtype)
    peak = _peak(loss, y * mean, deviation)
    width = 1 / jnp.sqrt(deviation**-2 + loss.curvature(jnp.ones_like(peak), peak))
    likelihood = [levels, levels / loss.C, jnp.log(loss.C) + levels]
    ends = jnp.concatenate([peak + deviation * steps, peak + width * steps, *likelihood])
    # the product is at least as peaked as the Gaussian
    nodes, weights = panels(
        jnp.clip(ends, peak + deviation * steps[0], peak + deviation * steps[-1])
    )
    return y * nodes, weights


def _peak(loss: Logistic, margin, deviation):
    """The margin z with the largest `exp(-L(z)) N(z)`, by halving: `z - margin = -variance L'(z)`."""
    one = jnp.ones_like(margin)

    def halve(_, ends):
        low, high = ends
        middle = (low + high) / 2
        rising = (middle - margin) / deviation**2 + loss.derivative(one, middle) < 0
        return jnp.where(rising, middle, low), jnp.where(rising, high, middle)

    ends = (margin, margin - deviation**2 * loss.derivative(one, margin))
    low, high = jax.lax.fori_loop(0, 40, halve, ends)
    return (low + high) / 2
