"""The one interface of all posteriors."""

import abc
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._predictor import AbstractPredictor, as_predictions
from ..runtime import is_traced
from ..validation import as_targets, check_count
from ._components import Components, Joint, draw
from ._probability import check_rule, mixture_probability
from ._targets import (
    cumulatives,
    log_densities,
    quantiles,
    require_known_noise,
    require_noise,
    target_deviation,
)


class AbstractPosterior(AbstractPredictor):
    """Anything that knows the distribution of the latent function at new points.

    A posterior has three primitives, from which all predictions follow: `decision`, the mean; `components`,
    the latent value of each point by itself; and `joint`, those of all points together.
    """

    @abc.abstractmethod
    def components(self, x: Any) -> Components:
        """The distribution of the latent function at each new point, as a mixture of Gaussians.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** `Components`.
        """

    @abc.abstractmethod
    def joint(self, x: Any) -> Joint:
        """The distribution of the latent function at all new points together, as a mixture of Gaussians.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** a `Joint`.
        """

    def latent(self, x: Any) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """Mean and standard deviation of the latent function at new points.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** two vectors, one entry for each point.
        """
        parts = self.components(x)
        return parts.mean, parts.deviation

    def probability(self, x: Any, rule: str = "normalized") -> Float[Array, " m"]:
        """`P(y = +1)` of new points.

        With `<.>` the average over latent values and `Q(y | f) = exp(-L(y, f))`; probabilities of several
        machines are averaged.

        **Arguments:**

        - `x`: a matrix with one row for each point.
        - `rule`: `"normalized"`, the ratio `<Q(+1|f)> / (<Q(+1|f)> + <Q(-1|f)>)`, or `"average"`, the average
          `<Q(+1|f) / (Q(+1|f) + Q(-1|f))>` of the conditional probability.

        **Returns:** one probability for each point.
        """
        check_rule(self.loss, rule)
        return mixture_probability(self.components(x), rule)

    def target(self, x: Any) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """Mean and standard deviation of new targets: of the latent function plus the noise.

        The variances add up: `sigma_t^2 + sigma_n^2`, with sigma_n^2 the loss's `noise_variance`
        [CKO04, below eq. 44].

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** two vectors, one entry for each point.
        """
        require_noise(self.loss)
        parts = self.components(x)
        return parts.mean, target_deviation(parts)

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
        require_known_noise(self.loss)
        parts = jax.lax.stop_gradient(self.components(x))
        low, high = quantiles(parts, jnp.asarray([(1 - level) / 2, (1 + level) / 2]))
        return low, high

    def cumulative(self, x: Any, y: Any) -> Float[Array, " m"]:
        """The predictive probability that a new target is at most so large.

        Of targets that follow the prediction it is uniform between zero and one.

        **Arguments:** `x`, a matrix with one row for each point; `y`, one target for each.

        **Returns:** one probability for each point.
        """
        require_known_noise(self.loss)
        parts = self.components(x)
        return cumulatives(parts, _targets(parts, y, labels=False))

    def log_density(self, x: Any, y: Any) -> Float[Array, " m"]:
        """The logarithm of the predictive density of new targets, or of the probability of new labels.

        The larger, the better they were foreseen. The probability of a label is that of `probability`.

        **Arguments:** `x`, a matrix with one row for each point; `y`, one target or label for each.

        **Returns:** one number for each point.
        """
        if not self.loss.is_classifier:
            require_known_noise(self.loss)
        parts = self.components(x)
        targets = _targets(parts, y, labels=self.loss.is_classifier)
        if not self.loss.is_classifier:
            return log_densities(parts, targets)
        # P(-1) at f is P(+1) at -f, which keeps its digits where it is small
        turned = parts._replace(means=parts.means * targets[None, None, :])
        return jnp.log(mixture_probability(turned))

    def sample(self, x: Any, draws: int, *, key: Any) -> Float[Array, "draws m"]:
        """Independent draws of the latent function at new points, without noise; not differentiable.

        Each draw is one function at all points, so values of points near each other vary together.

        **Arguments:** `x`, a matrix with one row for each point; `draws`, how many; `key`, a PRNG key.

        **Returns:** one row for each draw, with one column for each point.
        """
        check_count("draws", draws)
        return draw(self.joint(x), int(draws), key)


class AbstractMixture(AbstractPosterior):
    """A posterior of several Gaussians or draws, whose more probable label is not the sign of its mean."""

    def predict(self, x: Any) -> Float[Array, " m"]:
        """The more probable labels -1 and +1 of new points, or for a regression loss their mean targets.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one label or target for each point.
        """
        if not self.loss.is_classifier:
            return self.decision(x)
        return as_predictions(self.loss, self.probability(x) - 0.5)


def _targets(parts: Components, y: Any, *, labels: bool) -> Float[Array, " m"]:
    targets = as_targets(y, parts.mean.shape[0], labels=labels, both=False)
    return targets.astype(parts.mean.dtype)
