"""Several Gaussian posteriors that predict as one."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._predictor import Examples
from ..losses import AbstractLoss
from ._base import AbstractMixture
from ._components import Components, Joint, mixture
from ._laplace import LaplacePosterior


class LaplaceMixture(AbstractMixture):
    """Several Gaussian posteriors, each around its own fit and with its own share: a committee.

    Made by `jaxsvm.laplace` of an ensemble: [CKO04, end of section V-B]. Its variance is the mean of the
    members' variances plus the variance of their means: what is not known of the hyperparameters widens
    the error bars. Probabilities are the mean of the members' probabilities. `members` are the posteriors,
    `shares` their weights.
    """

    members: tuple[LaplacePosterior, ...]
    shares: Float[Array, " members"]

    @property
    def loss(self) -> AbstractLoss:
        """The loss of the first member."""
        return self.members[0].loss

    @property
    def examples(self) -> Examples:
        """The data of the first member."""
        return self.members[0].examples

    def decision(self, x: Any) -> Float[Array, " m"]:
        """The weighted mean of the members' latent functions at new points.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one value for each point.
        """
        values = jnp.stack([member.decision(x) for member in self.members])
        return self.shares.astype(values.dtype) @ values

    def components(self, x: Any) -> Components:
        """The latent function at each new point: one Gaussian for each member.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** `Components`.
        """
        losses, means, deviations, *_ = _joined([member.components(x) for member in self.members])
        return mixture(losses, means, deviations, self.shares)

    def joint(self, x: Any) -> Joint:
        """The latent function at all new points: one Gaussian for each member.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** a `Joint`.
        """
        means, covariances, _ = _joined([member.joint(x) for member in self.members])
        return Joint(means, covariances, self.shares.astype(means.dtype))


def _joined(parts: list) -> Any:
    """Parts of one machine each as one, along the axis of machines."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
