"""The Laplace approximation of the evidence."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._fit import Fit
from .._machine import KernelMachine
from .._parameters import unfreeze
from ..losses import Hinge, SquaredHinge
from ..validation import check_number
from ._base import AbstractFitCriterion, require_loss


class LaplaceEvidence(AbstractFitCriterion):
    """The negative logarithm of the evidence `Q(Y|X)`, by Laplace's approximation around the fit.

    `-ln Q = sum_i L(y_i, f_i) + 1/2 f' K^-1 f - sum_i log_normalizer + 1/2 ln det(I + Lambda K)`, where
    the diagonal matrix Lambda holds the curvatures of the losses at the solution:

    - hinge: `2 pi [a (C - a) / C]^2` for marginal support vectors with `a = |dual|`, zero for the others
      [GS03, eqs. 15-16]. It is what a kink between slopes 0 and -C integrates to, and smooth in the
      hyperparameters but for a kink of the fit where an example changes its group. Epsilon-insensitive
      and Laplacian losses are treated in the same way.
    - squared hinge: `C exp(-smoothing / (1 - z))` for margins `z < 1`, eq. 17. With `smoothing=0` it is
      the plain Laplace approximation, which jumps where the set of support vectors changes.
    - hinge with `kwok=c`: `C s''(z)` with `s(z) = (1 - z) / (1 + exp(-c (1 - z)))` for all examples, below
      eq. 16, for comparison.
    - soft insensitive and Huber: `1 / compliance` on the quadratic pieces, [CKO04, eq. 37]; it jumps
      where the set of examples on these pieces changes. As beta tends to zero the fit becomes that of the
      epsilon-insensitive loss, but this approximation grows without bound: ever narrower pieces are ever
      less like the whole posterior. Compare models of the same beta.
    - smooth losses: their second derivative. For `Quadratic` this is the exact marginal likelihood of
      Gaussian process regression.

    In units of nats for the whole data set, whatever the number of examples. With `weights` an example
    counts so many times, except that a kink or a support vector stays a single one.

    **Arguments:** `smoothing`, of the squared hinge, zero or positive; `kwok`, the steepness of Kwok's
    smoothing of the hinge, or None for eq. 15.
    """

    smoothing: float = eqx.field(static=True)
    kwok: float | None = eqx.field(static=True)

    def __init__(self, smoothing: float = 0.1, kwok: float | None = None):
        check_number("smoothing", smoothing, least=0)
        if kwok is not None:
            check_number("kwok", kwok, above=0)
        self.smoothing = float(smoothing)
        self.kwok = None if kwok is None else float(kwok)

    def check(self, model, x, y):
        """The evidence needs a proper prior, hence no free offset, and a loss that is a likelihood."""
        self.check_machine(model)
        unfreeze(model).loss.require_normalizer()

    def check_machine(self, model: KernelMachine) -> None:
        """Raise unless there is a Gaussian posterior around a fit of the machine.

        **Arguments:** `model`, the kernel machine.
        """
        if model.offset:
            raise ValueError(
                "the evidence is not defined for a free, unpenalized offset: use `offset=False` and add a "
                "`Constant` kernel, whose variance is that of the offset"
            )
        if self.kwok is not None:
            require_loss(self, model, Hinge, "leave out `kwok=`")

    def score(self, gram, fit):
        """Minus the log evidence."""
        loss, weights = fit.model.loss, fit.weights
        curvature = self.curvature(fit)
        definite = loss.is_convex and self.kwok is None
        half_determinant = gram.log_determinant(curvature, definite) / 2
        return fit.stats.objective - jnp.sum(weights) * loss.log_normalizer() + half_determinant

    def curvature(self, fit: Fit) -> Float[Array, " n"]:
        """The diagonal of Lambda: the curvature of the loss of each example, at the fit.

        **Arguments:** `fit`, what `jaxsvm.fit` gave back.

        **Returns:** one number for each example; negative only where the loss is not convex.
        """
        loss, weights, y, latent = fit.model.loss, fit.weights, fit.y, fit.latent
        if self.kwok is not None:
            assert isinstance(loss, Hinge)
            curvature = weights * loss.C * _smooth_hinge_curvature(1 - y * latent, self.kwok)
        elif isinstance(loss, SquaredHinge):
            curvature = weights * loss.C * _smooth_step(1 - y * latent, self.smoothing)
        else:
            curvature = loss.laplace_curvature(y, latent, fit.dual, weights, fit.free)
        return jnp.where(weights > 0, curvature, 0.0)


def _smooth_step(slack, smoothing: float):
    """`exp(-smoothing / slack)` for positive slack, else zero: all its derivatives vanish at zero."""
    positive = slack > 0
    return jnp.where(positive, jnp.exp(-smoothing / jnp.where(positive, slack, 1.0)), 0.0)


def _smooth_hinge_curvature(slack, steepness: float):
    """The second derivative of `u / (1 + exp(-c u))`."""
    step = jax.nn.sigmoid(steepness * slack)
    slope = steepness * step * (1 - step)
    return 2 * slope + slack * steepness * slope * (1 - 2 * step)
