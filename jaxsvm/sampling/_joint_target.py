"""The joint density of latent function and hyperparameters, and coordinates in which it is easy to sample."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._machine import KernelMachine
from ..approximations import AbstractSubspace, Whitening
from ..hyperparameters import join_frozen
from ..linalg import cholesky, solve_by_factor, solve_triangular
from ..losses import AbstractLoss, AbstractRegression
from ..priors import AbstractPrior
from ._target import SOFTENING, Target, find_mode, slopes, total_loss

# nodes and weights of Gauss-Hermite quadrature over a standard normal distribution
_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(15)
_SHARES = _SHARES / _SHARES.sum()


class JointTarget(NamedTuple):
    """`p(h, b | D) ~ p(h) exp(sum_i w_i ln Q(y_i | (V(h) b)_i, h) - b'b / 2)`.

    h are the unconstrained leaves of the model that are not frozen, as one vector. `empty` and `fixed` are
    the model without and the values of its frozen hyperparameters, `prior` has the density of h, and
    `subspace` has V. Each example has a row of `x` and one entry of `y` and `weights`.
    """

    empty: KernelMachine
    fixed: tuple[Array, ...]
    prior: AbstractPrior
    subspace: AbstractSubspace
    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]

    def machine(self, h: Float[Array, " k"]) -> KernelMachine:
        """The model with these hyperparameters, all of them free."""
        return join_frozen(ravel_pytree(self.empty)[1](h), self.fixed)

    def given(self, h: Float[Array, " k"]) -> tuple[KernelMachine, Whitening, Target]:
        """The machine with these hyperparameters, its white coordinates, and its posterior in them."""
        machine = self.machine(h)
        whitening = self.subspace.whiten(machine.kernel, self.x)
        target = Target(machine.loss, whitening.factor, self.y, self.weights)
        return machine, whitening, target


class Measurements(NamedTuple):
    """Gaussian measurements of the latent values, which stand for the likelihood.

    `latent` and `deviation` are means and standard deviations of the latent values over some draws, at the
    center of the hyperparameters; `growth` is the gradient of the logarithm of their size with respect to g.
    `curvature` are the precisions D of the measurements, `pull` is D times what they measure, and
    `noise_variance` is that of the loss, all of them means over these draws.
    """

    latent: Float[Array, " n"]
    deviation: Float[Array, " n"]
    growth: Float[Array, " k"]
    curvature: Float[Array, " n"]
    pull: Float[Array, " n"]
    noise_variance: Float[Array, ""]


class JointScaling(NamedTuple):
    """Coordinates `(g, c)` in which the posterior has about unit width in all directions, for any h.

    `h = center + root g`, and `b = A^-1 V' pull + A^(-1/2) c` with `A = I + V' D V` at this h: the posterior
    of b given `measurements`. Of strong measurements c is what they leave open, whatever h is, and for weak
    ones it is nearly b. Without measurements `b = c`.
    """

    center: Float[Array, " k"]
    root: Float[Array, "k k"]
    measurements: Measurements | None


class Place(NamedTuple):
    """A point of the joint posterior, in all coordinates.

    `size` is the expected size of the latent values, one at the center of h. `slope` has `w_i dL/df_i`.
    `lost` is the share of the prior's variance that the low rank loses there. `log_density` is that of
    `(g, c)`, up to a constant.
    """

    h: Float[Array, " k"]
    b: Float[Array, " p"]
    latent: Float[Array, " n"]
    size: Float[Array, ""]
    loss: Float[Array, ""]
    slope: Float[Array, " n"]
    noise_variance: Float[Array, ""]
    lost: Float[Array, ""]
    log_density: Float[Array, ""]


def place(target: JointTarget, scaling: JointScaling, q: Float[Array, " q"]) -> Place:
    """The point with the coordinates `q = (g, c)`.

    **Arguments:** `target`, the joint density; `scaling`, its coordinates; `q`, a vector.

    **Returns:** a `Place`.
    """
    size = scaling.center.shape[0]
    g, b = q[:size], q[size:]
    h = scaling.center + scaling.root @ g
    machine, whitening, given = target.given(h)
    expected, log_volume = jnp.ones((), q.dtype), jnp.zeros((), q.dtype)
    if scaling.measurements is not None:
        expected = jnp.exp(scaling.measurements.growth @ g)
        lower, mean = _conditional(scaling.measurements, given, g)
        b = mean + solve_triangular(lower, b, transposed=True)
        log_volume = -jnp.sum(jnp.log(jnp.diag(lower)))  # of db by dc
    latent = whitening.factor @ b
    loss = total_loss(given, latent)
    log_likelihood = jnp.sum(target.weights) * machine.loss.log_normalizer() - loss
    log_prior = target.prior.log_density(machine) - b @ b / 2
    log_density = (log_prior + log_likelihood + log_volume).astype(q.dtype)
    noise = noise_variance(machine.loss, q.dtype)
    slope = slopes(given, latent)
    return Place(h, b, latent, expected, loss, slope, noise, whitening.error, log_density)


def log_joint(target: JointTarget, scaling: JointScaling, q: Float[Array, " q"]) -> Array:
    """The logarithm of the density of `q = (g, c)`, up to a constant."""
    return place(target, scaling, q).log_density


def position_of(
    target: JointTarget, scaling: JointScaling, h: Float[Array, " k"], b: Float[Array, " p"]
) -> Float[Array, " q"]:
    """The coordinates `(g, c)` of hyperparameters and white coordinates."""
    g = solve_triangular(scaling.root, h - scaling.center)
    if scaling.measurements is None:
        return jnp.concatenate([g, b])
    lower, mean = _conditional(scaling.measurements, target.given(h)[2], g)
    return jnp.concatenate([g, lower.T @ (b - mean)])


def _conditional(measurements: Measurements, given: Target, g: Array) -> tuple[Array, Array]:
    """The Cholesky factor of A, and the mean `A^-1 V' pull`, at some hyperparameters."""
    curvature, pull = _at_loss(measurements, given, g)
    lower = _precision_root(given.factor, curvature)
    return lower, solve_by_factor(lower, given.factor.T @ pull)


def _precision_root(factor, curvature):
    precision = factor.T @ (curvature[:, None] * factor)
    return cholesky(precision + jnp.eye(precision.shape[0], dtype=precision.dtype))


def _at_loss(measurements: Measurements, given: Target, g: Array) -> tuple[Array, Array]:
    """The measurements at other hyperparameters: their precisions, and `pull`.

    For labels these are the mean curvatures and slopes of the loss over latent values of the expected size,
    by Stein's lemma and quadrature of the losses themselves, which are continuous. For a noise model
    precisions are in proportion to one over its variance, and what is measured differs from the targets in
    proportion to its deviation.
    """
    if given.loss.has_wall:
        return measurements.curvature, measurements.pull
    if isinstance(given.loss, AbstractRegression):
        ratio = measurements.noise_variance / given.loss.noise_variance
        ratio = jnp.where(jnp.isfinite(ratio), ratio, 1.0)
        curvature = measurements.curvature
        rest = measurements.pull - curvature * given.y  # of the targets that are measured
        return ratio * curvature, ratio * curvature * given.y + jnp.sqrt(ratio) * rest
    size = jnp.exp(measurements.growth @ g)
    latent, deviation = size * measurements.latent, size * measurements.deviation
    nodes, shares = (jnp.asarray(array, latent.dtype) for array in (_NODES, _SHARES))
    each = jax.vmap(lambda node: given.loss.value(given.y, latent + deviation * node))(nodes)
    slope = given.weights * ((shares * nodes) @ each) / deviation
    curvature = given.weights * ((shares * (nodes**2 - 1)) @ each) / deviation**2
    curvature = jnp.maximum(curvature, 0.0)
    return curvature, curvature * latent - slope


def modes(target: JointTarget, h: Float[Array, "chains k"]) -> tuple[Array, Measurements]:
    """The mode of b for the hyperparameters of each chain, and measurements there.

    **Arguments:** `target`, the joint density; `h`, the hyperparameters.

    **Returns:** the modes, and the means over chains of the measurements.
    """

    def one(h):
        machine, whitening, given = target.given(h)
        b, _ = find_mode(given)
        latent = whitening.factor @ b
        slope, curvature = given.loss.softened(given.y, latent, given.weights, SOFTENING)
        lower = _precision_root(given.factor, curvature)
        spread = jnp.sum(solve_triangular(lower, given.factor.T) ** 2, axis=0)
        pull = curvature * latent - slope
        return b, (latent, spread, curvature, pull, noise_variance(machine.loss, latent.dtype))

    b, rows = jax.lax.map(one, h)
    latent, spread, curvature, pull, noise = map(_mean_of_finite, rows)
    growth = jnp.zeros_like(h[0])
    least = smallest_deviation(latent.dtype)
    return b, Measurements(latent, jnp.sqrt(spread + least**2), growth, curvature, pull, noise)


def smallest_deviation(dtype: Any) -> float:
    """The least standard deviation of latent values for which differences of losses keep their digits."""
    return float(jnp.finfo(dtype).eps ** 0.25)


def noise_variance(loss: AbstractLoss, dtype: Any) -> Float[Array, ""]:
    """The variance of the noise, one for a loss of labels."""
    if isinstance(loss, AbstractRegression):
        return loss.noise_variance.astype(dtype)
    return jnp.ones((), dtype)


def _mean_of_finite(rows):
    sound = jnp.all(jnp.isfinite(rows.reshape(len(rows), -1)), axis=1)
    kept = jnp.where(sound.reshape(-1, *(1 for _ in rows.shape[1:])), rows, 0.0)
    return jnp.sum(kept, axis=0) / jnp.maximum(jnp.sum(sound), 1)
