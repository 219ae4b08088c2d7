"""Several fits that predict as one."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._fit import Fit, as_predictions


class Ensemble(eqx.Module):
    """Several fits that predict as one: the weighted mean of their latent functions.

    `members` are the fits, `shares` their weights.
    """

    members: tuple[Fit, ...]
    shares: Float[Array, " members"]

    def decision(self, x: Any) -> Float[Array, " m"]:
        """The weighted mean of the members' latent functions at new points.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one value for each point.
        """
        values = jnp.stack([member.decision(x) for member in self.members])
        return self.shares.astype(values.dtype) @ values

    def predict(self, x: Any) -> Float[Array, " m"]:
        """Labels -1 and +1 of new points, or for a regression loss their targets.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one label or target for each point.
        """
        return as_predictions(self.members[0].model.loss, self.decision(x))
