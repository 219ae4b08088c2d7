"""What predicts: the part of the interface that point estimates and posteriors share."""

import abc
from typing import Any, NamedTuple, NoReturn

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .losses import AbstractLoss


class Examples(NamedTuple):
    """The data that a predictor has learnt from: inputs `x`, labels or targets `y`, and `weights`."""

    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]


class AbstractPredictor(eqx.Module):
    """Anything that predicts labels or targets at new points.

    It is either a point estimate, which has `decision` and `predict` (`Fit`, `Ensemble`), or a posterior,
    which knows the distribution of the latent function as well (`posteriors.AbstractPosterior`).
    """

    @property
    @abc.abstractmethod
    def loss(self) -> AbstractLoss:
        """The loss of the machine; for several machines, that of one of them."""

    @property
    @abc.abstractmethod
    def examples(self) -> Examples:
        """The data that were learnt from."""

    @abc.abstractmethod
    def decision(self, x: Any) -> Float[Array, " m"]:
        """The latent function at new points; for a posterior its mean.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one value for each point.
        """

    @abc.abstractmethod
    def predict(self, x: Any) -> Float[Array, " m"]:
        """Labels -1 and +1 of new points, or for a regression loss their targets.

        A point estimate has the sign of its `decision`, a posterior the more probable label.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one label or target for each point.
        """


class AbstractPointEstimate(AbstractPredictor):
    """A predictor without error bars: what it does not know, it says how to get."""

    def predict(self, x: Any) -> Float[Array, " m"]:
        """Labels -1 and +1 of new points by the sign of `decision`, or for a regression loss their targets.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one label or target for each point.
        """
        return as_predictions(self.loss, self.decision(x))

    def probability(self, x: Any, rule: str = "normalized") -> NoReturn:
        """Raise: probabilities need a posterior, such as `jaxsvm.laplace` of this.

        **Arguments:** `x`, `rule`, as for a posterior.

        **Returns:** nothing.
        """
        self._refuse("probability")

    def target(self, x: Any) -> NoReturn:
        """Raise: error bars need a posterior, such as `jaxsvm.laplace` of this.

        **Arguments:** `x`, as for a posterior.

        **Returns:** nothing.
        """
        self._refuse("target")

    def interval(self, x: Any, level: float = 0.95) -> NoReturn:
        """Raise: intervals need a posterior, such as `jaxsvm.laplace` of this.

        **Arguments:** `x`, `level`, as for a posterior.

        **Returns:** nothing.
        """
        self._refuse("interval")

    def cumulative(self, x: Any, y: Any) -> NoReturn:
        """Raise: predictive probabilities need a posterior, such as `jaxsvm.laplace` of this.

        **Arguments:** `x`, `y`, as for a posterior.

        **Returns:** nothing.
        """
        self._refuse("cumulative")

    def log_density(self, x: Any, y: Any) -> NoReturn:
        """Raise: predictive densities need a posterior, such as `jaxsvm.laplace` of this.

        **Arguments:** `x`, `y`, as for a posterior.

        **Returns:** nothing.
        """
        self._refuse("log_density")

    def sample(self, x: Any, draws: int, *, key: Any) -> NoReturn:
        """Raise: draws need a posterior, such as `jaxsvm.laplace` of this.

        **Arguments:** `x`, `draws`, `key`, as for a posterior.

        **Returns:** nothing.
        """
        self._refuse("sample")

    def _refuse(self, method: str) -> NoReturn:
        name = type(self).__name__
        raise TypeError(
            f"`{method}` needs a posterior, but {'an' if name[0] in 'AEIOU' else 'a'} {name} is a point "
            f"estimate: `jaxsvm.laplace({name.lower()})` has error bars and `{method}`, and so has "
            "`jaxsvm.sample`"
        )


def as_predictions(loss: AbstractLoss, latent: Float[Array, " m"]) -> Float[Array, " m"]:
    """Labels -1 and +1 of latent values, or for a regression loss the values; NaN stays NaN."""
    if not loss.is_classifier:
        return latent
    labels = jnp.where(latent >= 0, 1.0, -1.0).astype(latent.dtype)
    return jnp.where(jnp.isnan(latent), latent, labels)
