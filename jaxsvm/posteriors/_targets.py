"""The distribution of new targets: latent value plus noise."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..losses import AbstractLoss, AbstractRegression, AbstractResidual
from ..numerics import STEPS, over_gaussian, standard_normal
from ..runtime import jit
from ._components import Components

_HALVINGS = 48  # bisections of a bracket around a quantile
_NODES_AT_ONCE = 2_000_000  # so that memory stays bounded


def require_noise(loss: AbstractLoss) -> None:
    """Raise unless a loss is a noise model.

    **Arguments:** `loss`.

    **Returns:** nothing.
    """
    if not isinstance(loss, AbstractRegression):
        raise ValueError(
            f"{type(loss).__name__} is not a noise model: error bars of targets need a regression loss, such "
            "as `losses.SoftInsensitive`; for labels use `probability`"
        )


def require_known_noise(loss: AbstractLoss) -> None:
    """Raise unless a loss is a noise model whose distribution has a closed form.

    **Arguments:** `loss`.

    **Returns:** nothing.
    """
    require_noise(loss)
    if not isinstance(loss, AbstractResidual):
        raise ValueError(
            f"intervals and densities of targets need a loss of linear and quadratic pieces, such as "
            f"`losses.SoftInsensitive`, but the model has {type(loss).__name__}: use `target`, which gives "
            "the standard deviation"
        )


@jit
def target_deviation(parts: Components) -> Float[Array, " m"]:
    """The standard deviation of latent value plus noise.

    **Arguments:** `parts`, the latent values, whose losses are noise models.

    **Returns:** one number for each point.
    """
    count = parts.shares.shape[0]  # a loss without parameters has no axis of machines
    variances = jax.vmap(lambda loss: loss.noise_variance, axis_size=count)(parts.losses)
    return jnp.sqrt(parts.deviation**2 + parts.shares @ variances.astype(parts.mean.dtype))


@jit
def quantiles(parts: Components, levels: Float[Array, " l"]) -> Float[Array, "l m"]:
    """The quantiles of new targets.

    **Arguments:** `parts`, the latent values; `levels`, the probabilities.

    **Returns:** one row for each level.
    """
    dtype, count = parts.mean.dtype, parts.shares.shape[0]
    reaches = jax.vmap(lambda loss: jnp.max(_knots(loss, dtype)), axis_size=count)(parts.losses)
    reach = jnp.max(reaches)

    def one(losses, shares, means, deviations):
        far = reach if deviations is None else reach + float(STEPS[-1]) * jnp.max(deviations)

        def quantile(level):
            def halve(_, ends):
                low, high = ends
                middle = (low + high) / 2
                each = _of_each(_cumulative, deviations)
                below = shares @ each(losses, deviations, middle - means) < level
                return jnp.where(below, middle, low), jnp.where(below, high, middle)

            ends = (jnp.min(means) - far, jnp.max(means) + far)
            low, high = jax.lax.fori_loop(0, _HALVINGS, halve, ends)
            return (low + high) / 2

        return jax.vmap(quantile)(levels.astype(dtype))

    return _over_points(parts, one).T


@jit
def cumulatives(parts: Components, targets: Float[Array, " m"]) -> Float[Array, " m"]:
    """The probabilities that new targets are at most `targets`.

    **Arguments:** `parts`, the latent values; `targets`, one for each point.

    **Returns:** one probability for each point.
    """

    def one(losses, shares, means, deviations, target):
        return shares @ _of_each(_cumulative, deviations)(losses, deviations, target - means)

    return _over_points(parts, one, targets)


@jit
def log_densities(parts: Components, targets: Float[Array, " m"]) -> Float[Array, " m"]:
    """The logarithms of the predictive densities of targets.

    **Arguments:** `parts`, the latent values; `targets`, one for each point.

    **Returns:** one number for each point.
    """

    def one(losses, shares, means, deviations, target):
        logs = _of_each(_log_density, deviations)(losses, deviations, target - means)
        return jax.scipy.special.logsumexp(logs, b=shares)

    return _over_points(parts, one, targets)


def _over_points(parts: Components, function, *arguments):
    """Map `function(losses, shares, means, deviations, ...)` over the points in batches."""
    machines, each, points = parts.means.shape
    losses = jax.tree.map(lambda leaf: jnp.repeat(leaf, each, axis=0), parts.losses)
    shares = jnp.repeat(parts.shares / each, each)
    nodes = 1 if parts.deviations is None else 400
    batch = int(np.clip(_NODES_AT_ONCE // (machines * each * nodes), 1, points))

    def by_point(array):
        return array.reshape(machines * each, points).T

    columns = (*jax.tree.map(by_point, (parts.means, parts.deviations)), *arguments)
    return jax.lax.map(lambda column: function(losses, shares, *column), columns, batch_size=batch)


def _of_each(function, deviations) -> Any:
    """Vectorize a function of loss, deviation and target over the components."""
    return jax.vmap(function, in_axes=(0, None if deviations is None else 0, 0))


def _knots(loss: AbstractResidual, dtype) -> Float[Array, " j"]:
    """Sizes of the noise between which its distribution is smooth and changes little."""
    dead_zone, compliance, bound = loss.shape()
    zero = jnp.zeros((), dtype)
    start = zero if dead_zone is None else dead_zone
    knots, knee = [start[None]], start
    if compliance is not None:
        width = jnp.sqrt(compliance) * np.array([0.5, 1.0, 2.0, 3.0, 5.0, 8.5])
        knee = start + jnp.inf if bound is None else start + compliance * bound
        knots.append(jnp.minimum(start + width, knee))
    if bound is not None:
        knots.append(knee + np.array([0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 38.0]) / bound)
    return jnp.concatenate(knots).astype(dtype)


def _cumulative(loss: AbstractResidual, deviation, t):
    """`P(g + noise <= t)` with a Gaussian g around zero: the noise's distribution, averaged over g."""
    if deviation is None:
        return loss.noise_cumulative(t)
    spread = deviation > 0
    scale = jnp.where(spread, deviation, 1.0)
    knots, steps = _knots(loss, t.dtype), STEPS.astype(t.dtype)
    ends = jnp.concatenate([(t - knots) / scale, (t + knots) / scale])
    ends = jnp.concatenate([steps, jnp.clip(ends, steps[0], steps[-1])])
    z, weights = standard_normal(ends)
    average = jnp.sum(weights * loss.noise_cumulative(t - scale * z))
    return jnp.where(spread, average, loss.noise_cumulative(t))


def _log_density(loss: AbstractResidual, deviation, t):
    """The logarithm of the density of `g + noise` at t."""
    sharp = loss.log_likelihood(t, jnp.zeros_like(t))
    if deviation is None:
        return sharp
    spread = deviation > 0
    scale = jnp.where(spread, deviation, 1.0)
    knots, steps = _knots(loss, t.dtype), STEPS.astype(t.dtype)
    centers = [jnp.zeros_like(t)]
    _, compliance, bound = loss.shape()
    if bound is not None:  # where an exponential times a Gaussian is largest
        centers += [scale * bound, -scale * bound]
    if compliance is not None:  # and a Gaussian times a Gaussian
        centers.append(t * scale / (scale**2 + compliance))
    ends = [(t - knots) / scale, (t + knots) / scale, *(center + steps for center in centers)]
    z, log_weights = over_gaussian(jnp.concatenate(ends), 0.0, 1.0)
    log_noise = loss.log_likelihood(t - scale * z, jnp.zeros_like(z))
    return jnp.where(spread, jax.scipy.special.logsumexp(log_weights + log_noise), sharp)
