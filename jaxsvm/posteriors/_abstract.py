"""The interface of all posteriors: in general, of one Gaussian process, and of a mixture."""

import abc
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._predictor import AbstractPredictor, as_predictions
from ..hyperparameters import unfreeze
from ..runtime import is_traced, jit
from ..validation import as_targets, check_count
from ._components import Components, Joint, draw, same_for_all
from ._probability import Rule, check_rule, mixture_probability
from ._targets import (
    cumulatives,
    log_densities,
    quantiles,
    require_known_noise,
    require_noise,
    target_deviation,
)


class AbstractPosterior(AbstractPredictor):
    """Anything that has the distribution of the latent function at new points.

    All predictions follow from three methods: `decision`, the mean; `components`, the distribution of the
    latent value at each point; and `joint`, that of the latent values at all points together.
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

    def probability(self, x: Any, rule: Rule = "normalized") -> Float[Array, " m"]:
        """`P(y = +1)` of new points.

        Here `<.>` is the average over latent values and `Q(y | f) = exp(-L(y, f))`. Probabilities of several
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
        """Mean and standard deviation of new targets, which are the latent function plus noise.

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
        """The central interval that contains a new target with a given probability.

        Its ends are quantiles of the latent value plus noise, which for a loss with linear pieces has longer
        tails than a Gaussian of the same variance. They are not differentiable.

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
        """The predictive probability that a new target is at most `y`.

        If targets follow the prediction, it is uniform between zero and one.

        **Arguments:** `x`, a matrix with one row for each point; `y`, one target for each.

        **Returns:** one probability for each point.
        """
        require_known_noise(self.loss)
        parts = self.components(x)
        return cumulatives(parts, _targets(parts, y, labels=False))

    def log_density(self, x: Any, y: Any) -> Float[Array, " m"]:
        """The logarithm of the predictive density of new targets, or of the probability of new labels.

        The larger, the better the prediction. The probability of a label is that of `probability`.

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
        mirrored = parts._replace(means=parts.means * targets[None, None, :])
        return jnp.log(mixture_probability(mirrored))

    def sample(self, x: Any, draws: int, *, key: Any) -> Float[Array, "draws m"]:
        """Independent draws of the latent function at new points, without noise; not differentiable.

        Each draw is one function at all points, so values at nearby points vary together.

        **Arguments:** `x`, a matrix with one row for each point; `draws`, their number; `key`, a PRNG key.

        **Returns:** one row for each draw, with one column for each point.
        """
        check_count("draws", draws)
        return draw(self.joint(x), int(draws), key)


class LeaveOneOutPredictions(NamedTuple):
    """The prediction of each example from all other examples.

    `mean` and `variance` are those of its latent value, `log_probability` is the logarithm of the
    probability of its label.
    """

    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    log_probability: Float[Array, " n"]


class AbstractGaussianPosterior(AbstractPosterior):
    """The latent function as one Gaussian process, with a mean, a standard deviation and a covariance."""

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

    def predict(self, x: Any) -> Array:
        # for one Gaussian, the sign of the mean is the more probable label
        return as_predictions(self.loss, self.decision(x))

    def components(self, x: Any) -> Components:
        return _one_gaussian(unfreeze(self.loss), self.decision(x), self.deviation(x))

    def joint(self, x: Any) -> Joint:
        mean, covariance = self.decision(x), self.covariance(x)
        return Joint(mean[None, None, :], covariance[None], jnp.ones(1, mean.dtype))


class AbstractMixture(AbstractPosterior):
    """A posterior of several Gaussians or draws; the sign of its mean need not be the more probable label."""

    def predict(self, x: Any) -> Array:
        if not self.loss.is_classifier:
            return self.decision(x)
        return as_predictions(self.loss, self.probability(x) - 0.5)


@jit
def _one_gaussian(loss, mean, deviation) -> Components:
    means, deviations = mean[None, None, :], deviation[None, None, :]
    one = jnp.ones(1, mean.dtype)
    return Components(same_for_all(loss, 1), means, deviations, one, mean, deviation)


def _targets(parts: Components, y: Any, *, labels: bool) -> Float[Array, " m"]:
    targets = as_targets(y, parts.mean.shape[0], labels=labels, both=False)
    return targets.astype(parts.mean.dtype)
