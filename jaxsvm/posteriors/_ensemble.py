"""Several fits that predict as one."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._fit import Fit
from .._predictor import AbstractPointEstimate, Examples
from .._roots import safe_root
from ..losses import AbstractLoss


class Ensemble(AbstractPointEstimate):
    """Several fits that predict as one: the weighted mean of their latent functions.

    `members` are the fits, `shares` their weights. What each member does not know of the latent function,
    an ensemble does not know either: error bars, probabilities and intervals have `jaxsvm.laplace(ensemble)`.
    """

    members: tuple[Fit, ...]
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
        return self.latent(x)[0]

    def latent(self, x: Any) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """Weighted mean and standard deviation over the members' latent functions at new points.

        The deviation says how far the members disagree. It is less than that of a posterior, which also
        has the error bars of each member.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** two vectors, one entry for each point.
        """
        values = jnp.stack([member.decision(x) for member in self.members])
        shares = self.shares.astype(values.dtype)
        mean = shares @ values
        return mean, safe_root(shares @ (values - mean[None, :]) ** 2)
