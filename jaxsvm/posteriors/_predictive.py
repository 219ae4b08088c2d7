"""The distribution of a new target: latent value plus noise, with error bars and intervals."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._errors import as_targets, is_traced
from .._programs import jit
from .._quadrature import panels
from ..losses import AbstractLoss, AbstractRegression, AbstractResidual

_STEPS = np.array([-8.5, -6.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 6.0, 8.5])
_HALVINGS = 48  # of a bracket around a quantile
_NODES_AT_ONCE = 2_000_000  # so that memory stays bounded


class Components(NamedTuple):
    """The latent values of m points as k Gaussians each, every one with the noise of its own loss.

    `losses` is a loss whose leaves have a leading axis of k; `deviations` is None where all are zero.
    """

    losses: AbstractLoss
    means: Float[Array, "k m"]
    deviations: Float[Array, "k m"] | None
    shares: Float[Array, " k"]


class AbstractPredictive(eqx.Module):
    """Anything that knows the distribution of the latent function at new points."""

    @abc.abstractmethod
    def latent(self, x: Any) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """Mean and standard deviation of the latent function at new points."""

    @abc.abstractmethod
    def components(self, x: Any) -> Components:
        """The distribution of the latent function at new points, as a mixture of Gaussians."""

    def target(self, x: Any) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """Mean and standard deviation of new targets: of the latent function plus the noise.

        The variances add up: `sigma_t^2 + sigma_n^2`, with sigma_n^2 the loss's `noise_variance`
        [CKO04, below eq. 44].

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** two vectors, one entry for each point.
        """
        parts = _with_noise(self.components(x))
        mean, deviation = self.latent(x)
        return mean, _total(parts.losses, parts.shares, deviation)

    def interval(
        self, x: Any, level: float = 0.95
    ) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """The interval that holds a new target with a given probability, and as much on either side.

        By the quantiles of latent value plus noise, which for a loss with linear pieces has longer tails
        than a Gaussian of the same variance; not differentiable.

        **Arguments:** `x`, a matrix with one row for each point; `level`, the probability.

        **Returns:** the lower and the upper ends, one for each point.
        """
        if not is_traced(level) and not 0 < level < 1:
            raise ValueError(f"`level` must be between zero and one, but is {level}")
        parts = jax.lax.stop_gradient(noisy(self.components(x)))
        low, high = _quantiles(parts, jnp.asarray([(1 - level) / 2, (1 + level) / 2]))
        return low, high

    def cumulative(self, x: Any, y: Any) -> Float[Array, " m"]:
        """The predictive probability that a new target is at most so large.

        Of targets that follow the prediction it is uniform between zero and one.

        **Arguments:** `x`, a matrix with one row for each point; `y`, one target for each.

        **Returns:** one probability for each point.
        """
        parts = noisy(self.components(x))
        targets = as_targets(y, parts.means.shape[1], labels=False)
        return _cumulatives(parts, targets.astype(parts.means.dtype))

    def log_density(self, x: Any, y: Any) -> Float[Array, " m"]:
        """The logarithm of the predictive density of new targets: the larger, the better they were foreseen.

        **Arguments:** `x`, a matrix with one row for each point; `y`, one target for each.

        **Returns:** one number for each point.
        """
        parts = noisy(self.components(x))
        targets = as_targets(y, parts.means.shape[1], labels=False)
        return _log_densities(parts, targets.astype(parts.means.dtype))


def same_for_all(loss: AbstractLoss, count: int) -> AbstractLoss:
    """One loss as that of many components."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), loss)


def noisy(parts: Components) -> Components:
    """The same components, if the distribution of their noise has a closed form."""
    _with_noise(parts)
    if not isinstance(parts.losses, AbstractResidual):
        raise ValueError(
            f"intervals and densities of targets need a loss of linear and quadratic pieces, such as "
            f"`losses.SoftInsensitive`, but the model has {type(parts.losses).__name__}: `target` has the "
            "standard deviation"
        )
    return parts


def _with_noise(parts: Components) -> Components:
    """The same components, if their losses are models of noise."""
    if not isinstance(parts.losses, AbstractRegression):
        raise ValueError(
            f"{type(parts.losses).__name__} is no model of noise: error bars of targets need a regression "
            "loss, such as `losses.SoftInsensitive`; for labels ask for `probability`"
        )
    return parts


def _knots(loss: AbstractResidual, dtype) -> Float[Array, " j"]:
    """Sizes of the noise between which its distribution is smooth and changes by little."""
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
    """`P(g + noise <= t)` with a Gaussian g around zero: the average of the noise's own over g."""
    if deviation is None:
        return loss.noise_cumulative(t)
    spread = deviation > 0
    scale = jnp.where(spread, deviation, 1.0)
    knots = _knots(loss, t.dtype)
    ends = jnp.concatenate([(t - knots) / scale, (t + knots) / scale])
    steps = _STEPS.astype(t.dtype)
    z, weights = panels(jnp.concatenate([steps, jnp.clip(ends, steps[0], steps[-1])]))
    density = weights * jnp.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    smeared = jnp.sum(density * loss.noise_cumulative(t - scale * z))
    return jnp.where(spread, smeared, loss.noise_cumulative(t))


def _log_density(loss: AbstractResidual, deviation, t):
    """The logarithm of the density of `g + noise` at t."""
    sharp = loss.log_likelihood(t, jnp.zeros_like(t))
    if deviation is None:
        return sharp
    spread = deviation > 0
    scale = jnp.where(spread, deviation, 1.0)
    knots = _knots(loss, t.dtype)
    steps = _STEPS.astype(t.dtype)
    centers = [jnp.zeros_like(t)]
    _, compliance, bound = loss.shape()
    if bound is not None:  # where an exponential times a Gaussian is largest
        centers += [scale * bound, -scale * bound]
    if compliance is not None:  # and a Gaussian times a Gaussian
        centers.append(t * scale / (scale**2 + compliance))
    ends = [(t - knots) / scale, (t + knots) / scale, *(center + steps for center in centers)]
    z, weights = jax.lax.stop_gradient(panels(jnp.concatenate(ends)))
    log_noise = loss.log_likelihood(t - scale * z, jnp.zeros_like(z))
    terms = jnp.where(weights > 0, jnp.log(jnp.where(weights > 0, weights, 1.0)), -jnp.inf)
    terms = terms - z**2 / 2 - np.log(2 * np.pi) / 2 + log_noise
    return jnp.where(spread, jax.scipy.special.logsumexp(terms), sharp)


def _over_points(parts: Components, function, *arguments):
    """`function(losses, means, deviations, ...)` of each point, some of them at a time."""
    count, points = parts.means.shape
    nodes = 1 if parts.deviations is None else 400
    batch = int(np.clip(_NODES_AT_ONCE // (count * nodes), 1, points))
    deviations = None if parts.deviations is None else parts.deviations.T
    columns = (parts.means.T, deviations, *arguments)
    return jax.lax.map(lambda column: function(*column), columns, batch_size=batch)


def _of_each(function, deviations) -> Any:
    """A function of loss, deviation and target, of all components at once."""
    return jax.vmap(function, in_axes=(0, None if deviations is None else 0, 0))


@jit
def _total(losses, shares, deviation):
    count = shares.shape[0]  # a loss may have no parameters to tell it by
    variances = jax.vmap(lambda loss: loss.noise_variance, axis_size=count)(losses)
    return jnp.sqrt(deviation**2 + shares @ variances.astype(deviation.dtype))


@jit
def _quantiles(parts: Components, levels):
    reach = jnp.max(jax.vmap(lambda loss: jnp.max(_knots(loss, parts.means.dtype)))(parts.losses))

    def one(means, deviations):
        far = reach if deviations is None else reach + 8.5 * jnp.max(deviations)

        def quantile(level):
            def halve(_, ends):
                low, high = ends
                middle = (low + high) / 2
                each = _of_each(_cumulative, deviations)
                below = parts.shares @ each(parts.losses, deviations, middle - means) < level
                return jnp.where(below, middle, low), jnp.where(below, high, middle)

            ends = (jnp.min(means) - far, jnp.max(means) + far)
            low, high = jax.lax.fori_loop(0, _HALVINGS, halve, ends)
            return (low + high) / 2

        return jax.vmap(quantile)(levels.astype(means.dtype))

    return _over_points(parts, one).T


@jit
def _cumulatives(parts: Components, targets):
    def one(means, deviations, target):
        each = _of_each(_cumulative, deviations)
        return parts.shares @ each(parts.losses, deviations, target - means)

    return _over_points(parts, one, targets)


@jit
def _log_densities(parts: Components, targets):
    def one(means, deviations, target):
        logs = _of_each(_log_density, deviations)(parts.losses, deviations, target - means)
        return jax.scipy.special.logsumexp(logs, b=parts.shares)

    return _over_points(parts, one, targets)
