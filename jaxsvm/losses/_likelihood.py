"""The interface of losses: a loss is a negative log likelihood, up to its normalizer."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..fields import Frozen
from ..persistence import check_fields
from ..runtime import is_traced
from ._numeric import log_kappa, log_noise_mass, noise_cumulative, noise_variance, sample_noise


class AbstractLoss(eqx.Module):
    """A loss `L(y, f)` of a target `y` and a latent value `f`, including its strength `C`.

    All methods act elementwise. The likelihood of the model is
    `Q(y | f) = exp(log_normalizer - L(y, f))`.

    To write your own loss, subclass `AbstractClassification` or `AbstractRegression` and define `value`, a
    smooth function written in JAX; set `is_convex = True` if it is convex in f. The rest follows from the
    value by automatic differentiation, quadrature and search, unless the class defines it in closed form.
    """

    is_classifier: ClassVar[bool]
    is_convex: ClassVar[bool] = False  # a fit of a loss that is not convex is a local optimum
    has_wall: ClassVar[bool] = False  # whether it is infinite beyond some latent value
    vanishes_slowly: ClassVar[bool] = (
        True  # whether it tends to its least value without reaching it
    )

    @abc.abstractmethod
    def value(self, y: Float[Array, " n"], f: Float[Array, " n"]) -> Float[Array, " n"]:
        """The loss `L(y, f)`.

        **Arguments:** `y`, labels or targets; `f`, latent values.

        **Returns:** one loss for each example.
        """

    def derivative(self, y: Float[Array, " n"], f: Float[Array, " n"]) -> Float[Array, " n"]:
        """`dL/df`, by automatic differentiation; at a kink, one of its subgradients.

        **Arguments:** `y`, labels or targets; `f`, latent values.

        **Returns:** one slope for each example.
        """
        return jax.jvp(lambda f: self.value(y, f), (f,), (jnp.ones_like(f),))[1]

    def curvature(self, y: Float[Array, " n"], f: Float[Array, " n"]) -> Float[Array, " n"]:
        """`d2L/df2` where it exists, by automatic differentiation; where the slope jumps, one of its limits.

        **Arguments:** `y`, labels or targets; `f`, latent values.

        **Returns:** one curvature for each example.
        """
        return jax.jvp(lambda f: self.derivative(y, f), (f,), (jnp.ones_like(f),))[1]

    @abc.abstractmethod
    def log_normalizer(self) -> Float[Array, ""]:
        """The logarithm of the factor before `exp(-L)` in the likelihood of one example."""

    def require_normalizer(self) -> None:
        """Raise a clear error if the loss is not a likelihood; traced parameters are not checked."""
        if not is_traced(self):
            self.log_normalizer()

    def log_likelihood(self, y: Float[Array, "..."], f: Float[Array, "..."]) -> Float[Array, "..."]:
        """`ln Q(y | f) = log_normalizer - L(y, f)`, for each example.

        **Arguments:** `y`, labels or targets; `f`, latent values.

        **Returns:** one number for each example.
        """
        return self.log_normalizer() - self.value(y, f)

    def optimality(
        self,
        y: Float[Array, " n"],
        f: Float[Array, " n"],
        dual: Float[Array, " n"],
        weights: Float[Array, " n"],
        free: Bool[Array, " n"],
    ) -> Float[Array, " n"]:
        """`R = dual + weights dL/df`, which is zero for each example at the solution.

        **Arguments:** `y`, labels or targets; `f`, latent values; `dual`, coefficients; `weights` of the
        examples; `free`, which of them are free.

        **Returns:** one number for each example.
        """
        return dual + jnp.where(weights > 0, weights * self.derivative(y, f), 0.0)

    def optimality_slopes(
        self,
        y: Float[Array, " n"],
        f: Float[Array, " n"],
        weights: Float[Array, " n"],
        free: Bool[Array, " n"],
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """`dR/ddual` and `dR/df` of the conditions R in `optimality`.

        **Arguments:** as for `optimality`: `y`, `f`, `weights`, `free`.

        **Returns:** two vectors.
        """
        curvature = jnp.where(weights > 0, weights * self.curvature(y, f), 0.0)
        return jnp.ones_like(curvature), curvature

    def laplace_curvature(
        self,
        y: Float[Array, " n"],
        f: Float[Array, " n"],
        dual: Float[Array, " n"],
        weights: Float[Array, " n"],
        free: Bool[Array, " n"],
    ) -> Float[Array, " n"]:
        """The curvature of a Gaussian in place of `exp(-weights L)` around the solution: `weights d2L/df2`.

        **Arguments:** as for `optimality`: `y`, `f`, `dual`, `weights`, `free`.

        **Returns:** one number for each example.
        """
        return weights * self.curvature(y, f)

    def softened(
        self,
        y: Float[Array, " n"],
        f: Float[Array, " n"],
        weights: Float[Array, " n"],
        width: float | Array,
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Slope and curvature of `weights L` with its kinks rounded off; negative curvatures become zero.

        **Arguments:** `y`, labels or targets; `f`, latent values; `weights` of the examples; `width`, over
        which a kink is rounded off, in units of `f`.

        **Returns:** two vectors.
        """
        # at its target a loss and its derivative are finite
        counted = jnp.where(weights > 0, f, y)
        slope = weights * self.derivative(y, counted)
        return slope, jnp.maximum(weights * self.curvature(y, counted), 0.0)

    def stationary_objective(
        self,
        y: Float[Array, " n"],
        weights: Float[Array, " n"],
        dual: Float[Array, " n"],
        offset: Float[Array, ""],
        product: Callable[[Float[Array, " n"]], Float[Array, " n"]],
    ) -> Float[Array, ""]:
        """`sum_i weights_i L(y_i, f_i) + 1/2 f' K^-1 f` at the solution, where `f = K dual + offset`.

        There it is stationary in `dual` and `offset`, so its derivatives with respect to everything else are
        those of the minimum.

        **Arguments:** `y`, labels or targets; `weights` of the examples; `dual` and `offset`, the solution;
        `product`, which takes a vector v to `K v`.

        **Returns:** a number.
        """
        latent = product(dual) + offset
        losses = jnp.where(weights > 0, weights * self.value(y, latent), 0.0)
        return jnp.sum(losses) + dual @ (latent - offset) / 2


check_fields(AbstractLoss, stand_ins=(Frozen,))


class AbstractClassification(AbstractLoss):
    """A loss of labels -1 and +1, a function of the margin `z = y f`."""

    is_classifier: ClassVar[bool] = True

    def log_normalizer(self) -> Float[Array, ""]:
        """`ln kappa` with `1 / kappa = max_f (exp(-L(+1, f)) + exp(-L(-1, f)))`, found by search."""
        return log_kappa(self)

    def probability(self, f: Float[Array, "..."]) -> Float[Array, "..."]:
        """`P(y = +1 | f) = exp(-L(+1, f)) / (exp(-L(+1, f)) + exp(-L(-1, f)))`, always normalized.

        **Arguments:** `f`, latent values.

        **Returns:** one probability for each value.
        """
        one = jnp.ones_like(f)
        return jax.nn.sigmoid(self.value(-one, f) - self.value(one, f))

    def sample_labels(self, f: Float[Array, " n"], *, key: Any) -> Float[Array, " n"]:
        """Labels drawn from `probability(f)`.

        **Arguments:** `f`, latent values; `key`, a PRNG key.

        **Returns:** one label, -1 or +1, for each value.
        """
        positive = jax.random.bernoulli(key, self.probability(f))
        return jnp.where(positive, 1.0, -1.0).astype(f.dtype)


class AbstractRegression(AbstractLoss):
    """A loss of real targets, a function of the residual `y - f`: a model of additive noise."""

    is_classifier: ClassVar[bool] = False

    def log_normalizer(self) -> Float[Array, ""]:
        """`-ln int exp(-L(r, 0)) dr`, by quadrature."""
        return -log_noise_mass(self)

    @property
    def noise_variance(self) -> Float[Array, ""]:
        """The variance of the noise whose density is proportional to `exp(-L)`, by quadrature."""
        return noise_variance(self)

    def sample_noise(self, shape: tuple[int, ...], *, key: Any) -> Float[Array, "..."]:
        """Draws from the noise whose density is proportional to `exp(-L)`.

        **Arguments:** `shape` of the array; `key`, a PRNG key.

        **Returns:** independent draws.
        """
        return sample_noise(self, shape, key)

    def noise_cumulative(self, residual: Float[Array, "..."]) -> Float[Array, "..."]:
        """The probability that the noise is at most `residual`.

        **Arguments:** `residual`, values of the noise.

        **Returns:** one probability for each value.
        """
        return noise_cumulative(self, residual)
