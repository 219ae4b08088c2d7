"""The losses of support vector classification."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ..fields import Natural, natural, positive
from ._likelihood import AbstractClassification
from ._piecewise import AbstractMargin, AbstractTwoSided, Shape


class Hinge(AbstractMargin):
    """The hinge loss `L = C max(1 - y f, 0)` of the linear-penalty support vector machine.

    [GS03, eqs. 1-2] with p = 1; dual problem eq. 4.

    **Arguments:** `C`, the penalty, positive.
    """

    log_C: Float[Array, ""]

    def __init__(self, C: ArrayLike = 1.0):
        self.log_C = positive(C, "C")

    C: ClassVar[Natural] = natural("log_C", "The penalty.")

    def shape(self) -> Shape:
        """Bound `C`, no compliance."""
        return Shape(bound=self.C)

    def log_normalizer(self) -> Array:
        """`ln kappa(C) = -ln(1 + exp(-2 C))`, below eq. 6."""
        return -jax.nn.softplus(-2 * self.C)


class SquaredHinge(AbstractMargin):
    """The squared hinge loss `L = C/2 max(1 - y f, 0)^2` of the quadratic-penalty machine.

    [GS03, eqs. 1-2] with p = 2; dual problem eq. 5.

    **Arguments:** `C`, the penalty, positive.
    """

    log_C: Float[Array, ""]

    def __init__(self, C: ArrayLike = 1.0):
        self.log_C = positive(C, "C")

    C: ClassVar[Natural] = natural("log_C", "The penalty.")

    def shape(self) -> Shape:
        """Compliance `1 / C`, no bound."""
        return Shape(compliance=1 / self.C)

    def log_normalizer(self) -> Array:
        """`ln kappa(C)` for the quadratic penalty: see `quadratic_log_kappa`."""
        return quadratic_log_kappa(self.C)


class LeastSquares(AbstractTwoSided, AbstractClassification):
    """The least-squares loss of labels `L = C/2 (y - f)^2`, of the least-squares SVM.

    `C` is `1 / mu` in [CT07, eq. 1]. Use it with `KernelMachine(.., offset=True)`. For real targets with
    Gaussian noise use `Quadratic`.

    **Arguments:** `C`, the penalty, positive.
    """

    log_C: Float[Array, ""]

    def __init__(self, C: ArrayLike = 1.0):
        self.log_C = positive(C, "C")

    C: ClassVar[Natural] = natural("log_C", "The penalty.")

    def shape(self) -> Shape:
        """Compliance `1 / C`, no bound."""
        return Shape(compliance=1 / self.C)

    def log_normalizer(self) -> Array:
        """`ln kappa(C)`: for margins up to one the loss is the squared hinge, and so is its kappa."""
        return quadratic_log_kappa(self.C)


def quadratic_log_kappa(C: Float[Array, ""]) -> Float[Array, ""]:
    """`ln kappa(C)` with `1 / kappa = max_z (exp(-C (1 - z)^2 / 2) + exp(-C (1 + z)^2 / 2))`.

    The maximum is at zero for `C <= 1`, otherwise at the positive solution of `z = tanh(C z)`
    [GS03, below eq. 6].
    """
    z = _tanh_root(C)
    return C * (1 + z**2) / 2 - jnp.logaddexp(C * z, -C * z)


@jax.custom_jvp
def _tanh_root(C):
    """The largest solution of `z = tanh(C z)`: zero up to `C = 1`."""
    # tanh(C z) - z is concave on z > 0, so Newton from the right never overshoots the root;
    # z <= tanh(C) always, and just above one z^2 is nearly 3 (C - 1) / C^3 and less than 3 (C - 1) / C
    start = jnp.minimum(jnp.tanh(C), jnp.sqrt(3 * jnp.maximum(C - 1, 0) / jnp.maximum(C, 1)))

    def newton(_, z):
        value = jnp.tanh(C * z)
        slope = 1 - C * (1 - value**2)
        return jnp.clip(z - (z - value) / jnp.where(slope > 0, slope, 1.0), 0, 1)

    root = jax.lax.fori_loop(0, 30, newton, start)
    return jnp.where(C > 1, root, 0.0)


@_tanh_root.defjvp
def _tanh_root_jvp(primals, tangents):
    (C,), (dC,) = primals, tangents
    z = _tanh_root(C)
    bend = 1 - z**2  # sech^2(C z), since z = tanh(C z)
    slope = 1 - C * bend
    rate = jnp.where((C > 1) & (slope > 0), z * bend / jnp.where(slope > 0, slope, 1.0), 0.0)
    return z, rate * dC
