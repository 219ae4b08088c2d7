"""Predictors: the interface that point estimates and posteriors share."""

import abc
from typing import Any, NamedTuple, NoReturn

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ._machine import KernelMachine
from .losses import AbstractLoss
from .results import RESULTS, worst


class Examples(NamedTuple):
    """The training data of a predictor: inputs `x`, labels or targets `y`, and `weights`."""

    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]


class AbstractPredictor(eqx.Module):
    """Anything that predicts labels or targets at new points.

    It is a point estimate, which has only `decision` and `predict` (`Fit`, `Ensemble`), or a posterior, which
    also has the distribution of the latent function (`posteriors.AbstractPosterior`).
    """

    @property
    @abc.abstractmethod
    def loss(self) -> AbstractLoss:
        """The loss of the machine; for several machines, that of the first."""

    @property
    @abc.abstractmethod
    def examples(self) -> Examples:
        """The training data; for several machines, those of the first."""

    @abc.abstractmethod
    def decision(self, x: Any) -> Float[Array, " m"]:
        """The latent function at new points; for a posterior or several machines, its mean.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one value for each point.
        """

    @abc.abstractmethod
    def predict(self, x: Any) -> Float[Array, " m"]:
        """Labels -1 and +1 of new points, or for a regression loss their targets.

        A point estimate predicts the sign of its `decision`, a posterior the more probable label.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one label or target for each point.
        """


class AbstractMachinePredictor(AbstractPredictor):
    """A predictor made from one kernel machine and its data: `model`, `x`, `y` and `weights`."""

    model: eqx.AbstractVar[KernelMachine]
    x: eqx.AbstractVar[Float[Array, "n d"]]
    y: eqx.AbstractVar[Float[Array, " n"]]
    weights: eqx.AbstractVar[Float[Array, " n"]]

    @property
    def loss(self) -> AbstractLoss:
        """The loss of the machine."""
        return self.model.loss

    @property
    def examples(self) -> Examples:
        """The training data."""
        return Examples(self.x, self.y, self.weights)


class AbstractSolution(AbstractMachinePredictor):
    """A predictor found by a solver, whose `result` is a code of `jaxsvm.RESULTS`."""

    result: eqx.AbstractVar[Int[Array, ""]]

    @property
    def message(self) -> str:
        """What `result` means; for a batch, the message of its worst member."""
        return RESULTS(int(worst(self.result))).message


class AbstractPointEstimate(AbstractPredictor):
    """A predictor without error bars; its other methods raise an error that says how to get them."""

    def predict(self, x: Any) -> Float[Array, " m"]:
        return as_predictions(self.loss, self.decision(x))

    def probability(self, x: Any, rule: str = "normalized") -> NoReturn:
        """Raise an error: probabilities need a posterior, such as that of `jaxsvm.laplace`.

        **Arguments:** `x`, `rule`, as for a posterior.

        **Returns:** nothing.
        """
        self._refuse("probability")

    def target(self, x: Any) -> NoReturn:
        """Raise an error: error bars need a posterior, such as that of `jaxsvm.laplace`.

        **Arguments:** `x`, as for a posterior.

        **Returns:** nothing.
        """
        self._refuse("target")

    def interval(self, x: Any, level: float = 0.95) -> NoReturn:
        """Raise an error: intervals need a posterior, such as that of `jaxsvm.laplace`.

        **Arguments:** `x`, `level`, as for a posterior.

        **Returns:** nothing.
        """
        self._refuse("interval")

    def cumulative(self, x: Any, y: Any) -> NoReturn:
        """Raise an error: predictive probabilities need a posterior, such as that of `jaxsvm.laplace`.

        **Arguments:** `x`, `y`, as for a posterior.

        **Returns:** nothing.
        """
        self._refuse("cumulative")

    def log_density(self, x: Any, y: Any) -> NoReturn:
        """Raise an error: predictive densities need a posterior, such as that of `jaxsvm.laplace`.

        **Arguments:** `x`, `y`, as for a posterior.

        **Returns:** nothing.
        """
        self._refuse("log_density")

    def sample(self, x: Any, draws: int, *, key: Any) -> NoReturn:
        """Raise an error: draws need a posterior, such as that of `jaxsvm.laplace`.

        **Arguments:** `x`, `draws`, `key`, as for a posterior.

        **Returns:** nothing.
        """
        self._refuse("sample")

    def _refuse(self, method: str) -> NoReturn:
        name = type(self).__name__
        raise TypeError(
            f"`{method}` needs a posterior, but {'an' if name[0] in 'AEIOU' else 'a'} {name} is a point "
            f"estimate: use `jaxsvm.laplace({name.lower()})` or `jaxsvm.sample`, which have error bars and "
            f"`{method}`"
        )


def as_predictions(loss: AbstractLoss, latent: Float[Array, " m"]) -> Float[Array, " m"]:
    """The labels -1 and +1 of latent values, or for a regression loss the values; NaN stays NaN."""
    if not loss.is_classifier:
        return latent
    labels = jnp.where(latent >= 0, 1.0, -1.0).astype(latent.dtype)
    return jnp.where(jnp.isnan(latent), latent, labels)
