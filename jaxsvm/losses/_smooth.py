"""Smooth likelihoods of labels: logistic, probit, probit with flips, trigonometric."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ..fields import Natural, half_proportion, natural, positive
from ._likelihood import AbstractClassification
from ._normal import normal


class Logistic(AbstractClassification):
    """The logistic loss `L = C ln(1 + exp(-y f))`.

    **Arguments:** `C`, the penalty, positive; one for logistic regression.
    """

    is_convex: ClassVar[bool] = True
    log_C: Float[Array, ""]

    def __init__(self, C: ArrayLike = 1.0):
        self.log_C = positive(C, "C")

    C: ClassVar[Natural] = natural("log_C", "The penalty.")

    def value(self, y: Array, f: Array) -> Array:
        """`C ln(1 + exp(-y f))`."""
        return self.C * jax.nn.softplus(-y * f)

    def derivative(self, y: Array, f: Array) -> Array:
        """`-C y / (1 + exp(y f))`."""
        return -self.C * y * jax.nn.sigmoid(-y * f)

    def curvature(self, y: Array, f: Array) -> Array:
        """`C s (1 - s)` with `s = 1 / (1 + exp(-y f))`."""
        return self.C * jax.nn.sigmoid(f) * jax.nn.sigmoid(-f)

    def log_normalizer(self) -> Array:
        """`ln kappa(C)`, `1 / kappa = max_z (s(z)^C + s(-z)^C)`: 1 for `C >= 1`, else `2^(1 - C)`."""
        return jnp.minimum(self.C - 1, 0) * jnp.log(2.0)


class Probit(AbstractClassification):
    """The probit loss `L = -ln Phi(y f / sqrt(noise_variance))`: labels are signs of `f` plus Gaussian noise.

    [OW00, eq. 8.15].

    **Arguments:** `noise_variance`, the variance of the noise, positive.
    """

    is_convex: ClassVar[bool] = True
    log_noise_variance: Float[Array, ""]

    def __init__(self, noise_variance: ArrayLike = 1.0):
        self.log_noise_variance = positive(noise_variance, "noise_variance")

    noise_variance: ClassVar[Natural] = natural("log_noise_variance", "The variance of the noise.")

    def value(self, y: Array, f: Array) -> Array:
        """`-ln Phi(z)`, `z = y f / sqrt(noise_variance)`."""
        return -normal(y * f / jnp.sqrt(self.noise_variance)).log_cumulative

    def derivative(self, y: Array, f: Array) -> Array:
        """`-y h(z) / sqrt(noise_variance)` with the hazard `h = phi / Phi`."""
        deviation = jnp.sqrt(self.noise_variance)
        return -y * normal(y * f / deviation).hazard / deviation

    def curvature(self, y: Array, f: Array) -> Array:
        """`h (h + z) / noise_variance`."""
        found = normal(y * f / jnp.sqrt(self.noise_variance))
        return found.hazard * found.excess / self.noise_variance

    def log_normalizer(self) -> Array:
        """Zero: the likelihood is normalized."""
        return jnp.zeros_like(self.noise_variance)


class FlipNoise(AbstractClassification):
    """Probit labels, each flipped with some probability: `L = -ln(flip_rate + (1 - 2 flip_rate) Phi(z))`.

    `z = y f / sqrt(noise_variance)`. [OW00, eq. 8.17], with the input noise of eq. 8.15, without which the
    likelihood is a step and has no MAP. The loss is bounded, hence not convex: a fit is a local optimum, and
    its result code says so.

    **Arguments:** `flip_rate`, strictly between zero and one half; `noise_variance`, positive.
    """

    is_convex: ClassVar[bool] = False
    half_logit_flip_rate: Float[Array, ""]
    log_noise_variance: Float[Array, ""]

    def __init__(self, flip_rate: ArrayLike = 0.05, noise_variance: ArrayLike = 1.0):
        self.half_logit_flip_rate = half_proportion(flip_rate, "flip_rate")
        self.log_noise_variance = positive(noise_variance, "noise_variance")

    flip_rate: ClassVar[Natural] = natural(
        "half_logit_flip_rate", "The probability of a flipped label."
    )
    noise_variance: ClassVar[Natural] = natural(
        "log_noise_variance", "The variance of the input noise."
    )

    def value(self, y: Array, f: Array) -> Array:
        """`-ln(flip_rate + (1 - 2 flip_rate) Phi(z))`."""
        z = y * f / jnp.sqrt(self.noise_variance)
        return -self._log_probability(z)

    def derivative(self, y: Array, f: Array) -> Array:
        """`-y share h(z) / sqrt(noise_variance)`, `share` the part of the probability that is not a flip."""
        deviation = jnp.sqrt(self.noise_variance)
        z = y * f / deviation
        return -y * self._share(z) * normal(z).hazard / deviation

    def curvature(self, y: Array, f: Array) -> Array:
        """`share h (share h + z) / noise_variance`: negative where a label looks like a flip."""
        z = y * f / jnp.sqrt(self.noise_variance)
        slope = self._share(z) * normal(z).hazard
        return slope * (slope + z) / self.noise_variance

    def log_normalizer(self) -> Array:
        """Zero: the likelihood is normalized."""
        return jnp.zeros_like(self.noise_variance)

    def _log_straight(self, z):
        return jnp.log1p(-2 * self.flip_rate) + normal(z).log_cumulative

    def _log_probability(self, z):
        return jnp.logaddexp(jnp.log(self.flip_rate), self._log_straight(z))

    def _share(self, z):
        return jnp.exp(self._log_straight(z) - self._log_probability(z))


class Trigonometric(AbstractClassification):
    """The trigonometric loss `L = 2 ln sec(pi (1 - z) / 4)` for `|z| < 1`, `z = y f`.

    Zero above `z = 1`, infinite below `z = -1`: a wall that no solution crosses. Its likelihood is normalized
    without a factor and has no parameter [GS05, sec. IV].

    At a distance `t` from the wall the slope is nearly `2 / t`, and the posterior density of the margin is
    proportional to `exp(-L)`, nearly `(pi t / 4)^2`. So `<slope^k>` is the integral of `t^(2 - k)`, finite
    for `k < 3` only: averages of slopes, such as gradients of the evidence, have a variance, but no fourth
    moment, so their standard errors are unreliable. `jaxsvm.evidence_gradient` and `jaxsvm.evidence_ascent`
    report it.
    """

    is_convex: ClassVar[bool] = True
    has_wall: ClassVar[bool] = True

    def value(self, y: Array, f: Array) -> Array:
        """`2 ln sec(pi (1 - z) / 4)`."""
        angle, beyond = _angle(y * f)
        # near zero the cosine is one but for rounding, near the wall the sine
        small = jnp.log1p(-(jnp.sin(jnp.minimum(angle, jnp.pi / 4)) ** 2))
        return jnp.where(
            beyond, jnp.inf, -jnp.where(angle < jnp.pi / 4, small, 2 * jnp.log(jnp.cos(angle)))
        )

    def derivative(self, y: Array, f: Array) -> Array:
        """`-y pi/2 tan(pi (1 - z) / 4)`."""
        angle, beyond = _angle(y * f)
        return -y * jnp.where(beyond, jnp.inf, jnp.pi / 2 * jnp.tan(angle))

    def curvature(self, y: Array, f: Array) -> Array:
        """`pi^2/8 sec^2(pi (1 - z) / 4)` below `z = 1`, zero above."""
        z = y * f
        angle, beyond = _angle(z)
        inside = jnp.where(beyond, jnp.inf, jnp.pi**2 / 8 / jnp.cos(angle) ** 2)
        return jnp.where(z < 1, inside, 0.0)

    def log_normalizer(self) -> Array:
        """Zero: `cos^2 + sin^2 = 1`."""
        return jnp.zeros(())


def _angle(z):
    """The angle of the trigonometric loss where it is finite, and whether `z` is behind the wall."""
    beyond = z <= -1
    return jnp.pi / 4 * (1 - jnp.minimum(jnp.where(beyond, 1.0, z), 1)), beyond
