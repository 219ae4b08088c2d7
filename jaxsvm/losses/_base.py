"""What every loss is: the negative logarithm of a likelihood, up to its normalizer."""

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class AbstractLoss(eqx.Module):
    """A loss `L(y, f)` of a target `y` and a latent value `f`, its strength `C` included.

    All methods act elementwise. The likelihood of the model is
    `Q(y | f) = exp(log_normalizer - L(y, f))`.
    """

    is_classifier: ClassVar[bool]
    is_convex: ClassVar[bool]
    has_wall: ClassVar[bool] = False  # whether it is infinite beyond some latent value

    @abc.abstractmethod
    def value(self, y: Float[Array, " n"], f: Float[Array, " n"]) -> Float[Array, " n"]:
        """The loss `L(y, f)`.

        **Arguments:** `y`, labels or targets; `f`, latent values.

        **Returns:** one loss for each example.
        """

    @abc.abstractmethod
    def derivative(self, y: Float[Array, " n"], f: Float[Array, " n"]) -> Float[Array, " n"]:
        """`dL/df`; at a kink, one of its subgradients.

        **Arguments:** `y`, labels or targets; `f`, latent values.

        **Returns:** one slope for each example.
        """

    @abc.abstractmethod
    def curvature(self, y: Float[Array, " n"], f: Float[Array, " n"]) -> Float[Array, " n"]:
        """`d2L/df2` where it exists; where the slope jumps, one of its limits.

        **Arguments:** `y`, labels or targets; `f`, latent values.

        **Returns:** one curvature for each example.
        """

    @abc.abstractmethod
    def log_normalizer(self) -> Float[Array, ""]:
        """The logarithm of the factor before `exp(-L)` in the likelihood of one example."""

    def log_likelihood(self, y: Float[Array, " n"], f: Float[Array, " n"]) -> Float[Array, " n"]:
        """`ln Q(y | f) = log_normalizer - L(y, f)`, for each example.

        **Arguments:** `y`, labels or targets; `f`, latent values.

        **Returns:** one number for each example.
        """
        return self.log_normalizer() - self.value(y, f)


class AbstractClassification(AbstractLoss):
    """A loss of labels -1 and +1, a function of the margin `z = y f`."""

    is_classifier: ClassVar[bool] = True

    def probability(self, f: Float[Array, " n"]) -> Float[Array, " n"]:
        """`P(y = +1 | f) = exp(-L(+1, f)) / (exp(-L(+1, f)) + exp(-L(-1, f)))`, always normalized.

        **Arguments:** `f`, latent values.

        **Returns:** as many probabilities.
        """
        one = jnp.ones_like(f)
        return jax.nn.sigmoid(self.value(-one, f) - self.value(one, f))

    def sample_labels(self, f: Float[Array, " n"], *, key) -> Float[Array, " n"]:
        """Labels drawn from `probability(f)`.

        **Arguments:** `f`, latent values; `key`, a PRNG key.

        **Returns:** as many labels -1 and +1.
        """
        positive = jax.random.bernoulli(key, self.probability(f))
        return jnp.where(positive, 1.0, -1.0).astype(f.dtype)


class AbstractRegression(AbstractLoss):
    """A loss of real targets, a function of the residual `y - f`: a model of additive noise."""

    is_classifier: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def noise_variance(self) -> Float[Array, ""]:
        """The variance of the noise whose density is proportional to `exp(-L)`."""

    @abc.abstractmethod
    def sample_noise(self, shape: tuple[int, ...], *, key) -> Float[Array, "..."]:
        """Draws from the noise whose density is proportional to `exp(-L)`.

        **Arguments:** `shape`, that of the array; `key`, a PRNG key.

        **Returns:** independent draws.
        """

    @abc.abstractmethod
    def noise_cumulative(self, residual: Float[Array, "..."]) -> Float[Array, "..."]:
        """The probability that the noise is at most so large.

        **Arguments:** `residual`, values of the noise.

        **Returns:** as many probabilities.
        """
