"""Posteriors that are one Gaussian process."""

import abc
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._parameters import unfreeze
from .._predictor import as_predictions
from ..runtime import jit
from ._base import AbstractPosterior
from ._components import Components, Joint, same_for_all


class LeftOut(NamedTuple):
    """What is predicted of each example from all the others.

    `mean` and `variance` of its latent value, and `log_probability`, the logarithm of the probability of
    its label.
    """

    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    log_probability: Float[Array, " n"]


class AbstractGaussianPosterior(AbstractPosterior):
    """The latent function as one Gaussian process: known by its mean, its variance and its covariance."""

    @abc.abstractmethod
    def deviation(self, x: Any) -> Float[Array, " m"]:
        """The standard deviation of the latent function at new points.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one standard deviation for each point.
        """

    @abc.abstractmethod
    def covariance(self, x: Any) -> Float[Array, "m m"]:
        """The covariance of the latent function between new points.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** a symmetric matrix.
        """

    def predict(self, x: Any) -> Float[Array, " m"]:
        """Labels -1 and +1 of new points, or for a regression loss their mean targets.

        The more probable label has the sign of the mean.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one label or target for each point.
        """
        return as_predictions(self.loss, self.decision(x))

    def components(self, x: Any) -> Components:
        """The latent function at each new point: one Gaussian.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** `Components`.
        """
        return _one_gaussian(unfreeze(self.loss), self.decision(x), self.deviation(x))

    def joint(self, x: Any) -> Joint:
        """The latent function at all new points: one Gaussian.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** a `Joint`.
        """
        mean, covariance = self.decision(x), self.covariance(x)
        return Joint(mean[None, None, :], covariance[None], jnp.ones(1, mean.dtype))


@jit
def _one_gaussian(loss, mean, deviation) -> Components:
    means, deviations = mean[None, None, :], deviation[None, None, :]
    one = jnp.ones(1, mean.dtype)
    return Components(same_for_all(loss, 1), means, deviations, one, mean, deviation)
