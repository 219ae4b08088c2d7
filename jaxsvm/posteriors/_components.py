"""The latent function at new points as a mixture of Gaussians: of each point, or of all points jointly."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..linalg import eigh
from ..losses import AbstractLoss
from ..numerics import safe_root
from ..runtime import jit


class Components(NamedTuple):
    """The marginals of the latent values at m points: g machines, each with k Gaussians per point.

    `losses` is a loss whose leaves have a leading axis of g. `means` and `deviations` are those of the
    Gaussians; the k Gaussians of a machine are equally likely; `deviations` is None if all are zero.
    `shares` are the probabilities of the machines. `mean` and `deviation` are those of the latent values,
    over all Gaussians. `mixture` makes `Components`.
    """

    losses: AbstractLoss
    means: Float[Array, "g k m"]
    deviations: Float[Array, "g k m"] | None
    shares: Float[Array, " g"]
    mean: Float[Array, " m"]
    deviation: Float[Array, " m"]


class Joint(NamedTuple):
    """The joint latent values at m points: g machines, each with k Gaussians of one covariance.

    `means` and `covariances` are those of the Gaussians, `shares` the probabilities of the machines.
    """

    means: Float[Array, "g k m"]
    covariances: Float[Array, "g m m"]
    shares: Float[Array, " g"]


def mixture(
    losses: AbstractLoss,
    means: Float[Array, "g k m"],
    deviations: Float[Array, "g k m"] | None,
    shares: Float[Array, " g"],
) -> Components:
    """Make `Components`, whose mean and deviation follow from their Gaussians.

    The variance is the mean of the variances plus the variance of the means.

    **Arguments:** `losses`, `means`, `deviations`, `shares`, as in `Components`.

    **Returns:** `Components`.
    """
    shares = shares.astype(means.dtype)
    mean = shares @ jnp.mean(means, axis=1)
    squares = (means - mean[None, None, :]) ** 2
    if deviations is not None:
        squares = squares + deviations**2
    deviation = safe_root(shares @ jnp.mean(squares, axis=1))
    return Components(losses, means, deviations, shares, mean, deviation)


def same_for_all(loss: AbstractLoss, count: int) -> AbstractLoss:
    """Repeat one loss for many machines.

    **Arguments:** `loss`; `count`, the number of machines.

    **Returns:** the loss, with a leading axis before all its leaves.
    """
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), loss)


@jit
def covariance_roots(covariances: Float[Array, "g m m"]) -> Float[Array, "g m m"]:
    """Matrices R with `R R' = covariance`; covariances may be singular.

    A point whose covariances are NaN is left out, so that it does not affect the others.

    **Arguments:** `covariances`, symmetric and positive semi-definite up to rounding errors.

    **Returns:** the matrices.
    """

    def one(covariance):
        finite = jnp.isfinite(jnp.diag(covariance))
        both = finite[:, None] & finite[None, :]
        values, vectors = eigh(jnp.where(both, covariance, 0.0))
        return vectors * jnp.sqrt(jnp.maximum(values, 0.0))[None, :]

    return jax.lax.map(one, covariances)


def draw(joint: Joint, draws: int, key) -> Float[Array, "draws m"]:
    """Independent draws from the joint distribution of the latent values.

    **Arguments:** `joint`, the distribution; `draws`, their number; `key`, a PRNG key.

    **Returns:** one row for each draw.
    """
    joint = jax.lax.stop_gradient(joint)
    _, each, points = joint.means.shape
    machine_key, gaussian_key, noise_key = jax.random.split(key, 3)
    machine = jax.random.categorical(machine_key, jnp.log(joint.shares), shape=(draws,))
    gaussian = jax.random.randint(gaussian_key, (draws,), 0, each)
    normal = jax.random.normal(noise_key, (draws, points), joint.means.dtype)
    roots = covariance_roots(joint.covariances)
    moved = jax.lax.map(lambda root: normal @ root.T, roots)
    values = joint.means[machine, gaussian] + moved[machine, jnp.arange(draws)]
    unknown = jnp.isnan(jnp.diagonal(joint.covariances, axis1=1, axis2=2))[machine]
    return jnp.where(unknown, jnp.nan, values)
