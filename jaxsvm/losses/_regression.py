"""The losses of support vector regression: all of them noise models."""

from typing import ClassVar

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ..fields import Natural, natural, positive, proportion, read
from ._piecewise import Shape
from ._residual import AbstractResidual


class SoftInsensitive(AbstractResidual):
    """The soft insensitive loss (SILF): flat, then quadratic, then linear, of slope `C`.

    `L = 0` for `|r| <= (1 - beta) epsilon`, `C (|r| - (1 - beta) epsilon)^2 / (4 beta epsilon)` up to
    `(1 + beta) epsilon`, `C (|r| - epsilon)` beyond, with `r = y - f`. [CKO04, eqs. 11-13]; dual problem eq.
    29. It becomes `EpsilonInsensitive` as beta -> 0, `Huber` as beta -> 1, `Laplacian` as epsilon -> 0.

    **Arguments:** `C` and `epsilon`, positive; `beta`, strictly between zero and one.
    """

    log_C: Float[Array, ""]
    log_epsilon: Float[Array, ""]
    logit_beta: Float[Array, ""]

    def __init__(self, C: ArrayLike = 1.0, epsilon: ArrayLike = 0.1, beta: ArrayLike = 0.3):
        self.log_C = positive(C, "C")
        self.log_epsilon = positive(epsilon, "epsilon")
        self.logit_beta = proportion(beta, "beta")

    C: ClassVar[Natural] = natural("log_C", "The slope of the linear pieces.")
    epsilon: ClassVar[Natural] = natural("log_epsilon", "The half-width of the insensitive zone.")
    beta: ClassVar[Natural] = natural(
        "logit_beta", "The share of `epsilon` over which the corners are rounded."
    )

    def shape(self) -> Shape:
        """Dead zone `(1 - beta) epsilon`, compliance `2 beta epsilon / C`, bound `C`."""
        zone = self.epsilon / (1 + jnp.exp(read(self.logit_beta)))
        return Shape(zone, 2 * self.beta * self.epsilon / self.C, self.C)


class EpsilonInsensitive(AbstractResidual):
    """The insensitive loss of Vapnik's support vector regression, `L = C max(|y - f| - epsilon, 0)`.

    **Arguments:** `C` and `epsilon`, positive.
    """

    log_C: Float[Array, ""]
    log_epsilon: Float[Array, ""]

    def __init__(self, C: ArrayLike = 1.0, epsilon: ArrayLike = 0.1):
        self.log_C = positive(C, "C")
        self.log_epsilon = positive(epsilon, "epsilon")

    C: ClassVar[Natural] = natural("log_C", "The slope outside the insensitive zone.")
    epsilon: ClassVar[Natural] = natural("log_epsilon", "The half-width of the insensitive zone.")

    def shape(self) -> Shape:
        """Dead zone `epsilon`, bound `C`."""
        return Shape(dead_zone=self.epsilon, bound=self.C)


class Huber(AbstractResidual):
    """Huber's loss: `C r^2 / (4 epsilon)` for `|r| <= 2 epsilon`, `C (|r| - epsilon)` beyond.

    [CKO04, eq. 10].

    **Arguments:** `C` and `epsilon`, positive.
    """

    log_C: Float[Array, ""]
    log_epsilon: Float[Array, ""]

    def __init__(self, C: ArrayLike = 1.0, epsilon: ArrayLike = 0.1):
        self.log_C = positive(C, "C")
        self.log_epsilon = positive(epsilon, "epsilon")

    C: ClassVar[Natural] = natural("log_C", "The slope of the linear pieces.")
    epsilon: ClassVar[Natural] = natural(
        "log_epsilon", "Half of the half-width of the quadratic piece."
    )

    def shape(self) -> Shape:
        """Compliance `2 epsilon / C`, bound `C`."""
        return Shape(compliance=2 * self.epsilon / self.C, bound=self.C)


class Laplacian(AbstractResidual):
    """The absolute loss `L = C |y - f|`: Laplacian noise.

    **Arguments:** `C`, positive.
    """

    log_C: Float[Array, ""]

    def __init__(self, C: ArrayLike = 1.0):
        self.log_C = positive(C, "C")

    C: ClassVar[Natural] = natural("log_C", "The slope.")

    def shape(self) -> Shape:
        """Bound `C`."""
        return Shape(bound=self.C)


class Quadratic(AbstractResidual):
    """The quadratic loss `L = (y - f)^2 / (2 noise_variance)`: Gaussian process regression, exactly.

    **Arguments:** `noise_variance`, positive.
    """

    log_noise_variance: Float[Array, ""]

    def __init__(self, noise_variance: ArrayLike = 1.0):
        self.log_noise_variance = positive(noise_variance, "noise_variance")

    def shape(self) -> Shape:
        """Compliance `noise_variance`."""
        return Shape(compliance=jnp.exp(read(self.log_noise_variance)))
