"""A loss of labels as a likelihood that is normalized at every latent value."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._likelihood import AbstractClassification


class Normalized(AbstractClassification):
    """The normalized likelihood of a loss: `L = -ln P`, `P(y | f) = exp(-L_y) / (exp(-L_+) + exp(-L_-))`.

    Here `L_y` is the given loss of the label y. For the hinge the log odds of the labels are `2 C f` between
    the margins and `C (f + sign(f))` outside.

    With the likelihood of a support vector machine, `kappa exp(-L)`, both labels together have a probability
    of less than one at almost all latent values. The missing part is large near zero, so the evidence
    prefers machines that are sure: on overlapping classes amplitude and C may grow without bound. Sollich,
    "Bayesian methods for support vector machines: evidence and predictive class probabilities", Machine
    Learning 46, 2002, discusses this. His normalized model also changes the density of the inputs; here they
    are given, so each label has the probability `P`.

    With the hinge it is not convex, and it has a kink at each margin, at which a fit cannot have a small
    gradient: sample the posterior, or fit the machine with the hinge itself.

    **Arguments:** `base`, a loss of labels, such as `Hinge(C=0.5)`.

    **Example:**

    >>> machine = jsvm.KernelMachine(kernel, jsvm.losses.Normalized(jsvm.losses.Hinge(0.5)))
    >>> sorted(jsvm.parameters(machine))[-1]
    'loss.base.C'
    """

    is_convex: ClassVar[bool] = False
    base: AbstractClassification

    def __check_init__(self) -> None:
        if not isinstance(self.base, AbstractClassification):
            raise TypeError(
                f"`base` must be a loss of labels, such as `Hinge()`, not {type(self.base).__name__}"
            )
        if self.base.has_wall:
            raise ValueError(
                f"{type(self.base).__name__} is infinite beyond some latent value, where its likelihood "
                "cannot be normalized: use the loss itself"
            )

    def value(self, y: Array, f: Array) -> Array:
        """`ln(1 + exp(L_y - L_-y))`."""
        return jax.nn.softplus(self._log_odds_against(y, f))

    def derivative(self, y: Array, f: Array) -> Array:
        """`P(-y | f) d(L_y - L_-y)/df`."""
        slope = self.base.derivative(y, f) - self.base.derivative(-y, f)
        return jax.nn.sigmoid(self._log_odds_against(y, f)) * slope

    def curvature(self, y: Array, f: Array) -> Array:
        """`P(y | f) P(-y | f) (d(L_y - L_-y)/df)^2 + P(-y | f) d2(L_y - L_-y)/df2`."""
        odds = self._log_odds_against(y, f)
        slope = self.base.derivative(y, f) - self.base.derivative(-y, f)
        bend = self.base.curvature(y, f) - self.base.curvature(-y, f)
        against = jax.nn.sigmoid(odds)
        return against * (jax.nn.sigmoid(-odds) * slope**2 + bend)

    def log_normalizer(self) -> Array:
        """Zero: the likelihood is normalized."""
        return jnp.zeros_like(self.base.log_normalizer())

    def _log_odds_against(self, y: Array, f: Array) -> Float[Array, "..."]:
        """`ln P(-y | f) / P(y | f)`."""
        return self.base.value(y, f) - self.base.value(-y, f)
