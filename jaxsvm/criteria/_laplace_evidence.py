"""The Laplace approximation of the evidence."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._fit import Fit
from .._machine import KernelMachine
from ..gram import AbstractGram
from ..hyperparameters import unfreeze
from ..losses import Hinge, SquaredHinge
from ..validation import check_number
from ._criterion import AbstractFitCriterion, Traits, require_loss


class LaplaceEvidence(AbstractFitCriterion):
    """The negative logarithm of the evidence `Q(Y|X)`, by Laplace's approximation around the fit.

    `-ln Q = sum_i L(y_i, f_i) + 1/2 f' K^-1 f - sum_i log_normalizer + 1/2 ln det(I + Lambda K)`, where
    the diagonal matrix Lambda holds the curvatures of the losses at the solution:

    - hinge: `2 pi [a (C - a) / C]^2` for marginal support vectors with `a = |dual|`, zero for the others
      [GS03, eqs. 15-16]. It follows from the integral over a kink between slopes 0 and -C, and is smooth in
      the hyperparameters except for kinks where an example changes its group. The epsilon-insensitive and
      Laplacian losses are treated in the same way.
    - squared hinge: `C exp(-smoothing / (1 - z))` for margins `z < 1`, eq. 17. With `smoothing=0` this is
      the plain Laplace approximation, which jumps where the set of support vectors changes.
    - hinge with `hinge_steepness=c`: `C s''(z)` for all examples, with Kwok's smooth hinge
      `s(z) = (1 - z) / (1 + exp(-c (1 - z)))`, below eq. 16; for comparison.
    - soft insensitive and Huber: `1 / compliance` on the quadratic pieces, [CKO04, eq. 37], with the
      gradients of eqs. 38-41. It jumps where the set of examples on these pieces changes. As beta tends to
      zero the fit tends to that of the epsilon-insensitive loss, but this approximation grows without bound,
      since the narrower the pieces are, the less of the posterior they represent. Compare only models with
      the same beta.
    - smooth losses: their second derivative. For `Quadratic` this is the exact marginal likelihood of
      Gaussian process regression.

    The unit is nats for the whole data set, not per example. An example of weight w counts w times, except
    that its kink or its support vector counts once.

    **Arguments:** `smoothing`, for the squared hinge, zero or positive; `hinge_steepness`, the steepness c of
    Kwok's smooth hinge, or None for eq. 15.
    """

    smoothing: float = eqx.field(static=True)
    hinge_steepness: float | None = eqx.field(static=True)

    def __init__(self, smoothing: float = 0.1, hinge_steepness: float | None = None):
        check_number("smoothing", smoothing, least=0)
        if hinge_steepness is not None:
            check_number("hinge_steepness", hinge_steepness, above=0)
        self.smoothing = float(smoothing)
        self.hinge_steepness = None if hinge_steepness is None else float(hinge_steepness)

    @property
    def traits(self) -> Traits:
        return Traits(scale="total")

    def check(self, model: KernelMachine, x: Array, y: Array) -> None:
        self.check_machine(model)
        unfreeze(model).loss.require_normalizer()

    def check_machine(self, model: KernelMachine) -> None:
        """Raise unless the machine has a Gaussian posterior around its fit.

        **Arguments:** `model`, the kernel machine.
        """
        if model.offset:
            raise ValueError(
                "the evidence is not defined for a free, unpenalized offset: use `offset=False` and add a "
                "`Constant` kernel, whose variance is that of the offset"
            )
        if self.hinge_steepness is not None:
            require_loss(self, model, Hinge, "leave out `hinge_steepness=`")

    def of_fit(self, gram: AbstractGram, fit: Fit) -> Array:
        loss, weights = fit.model.loss, fit.weights
        curvature = self.curvature(fit)
        definite = loss.is_convex and self.hinge_steepness is None
        half_determinant = gram.log_determinant(curvature, definite) / 2
        return fit.stats.objective - jnp.sum(weights) * loss.log_normalizer() + half_determinant

    def curvature(self, fit: Fit) -> Float[Array, " n"]:
        """The diagonal of Lambda: the curvature of the loss of each example, at the fit.

        **Arguments:** `fit`, the result of `jaxsvm.fit`.

        **Returns:** one number for each example; negative only if the loss is not convex.
        """
        loss, weights, y, latent = fit.model.loss, fit.weights, fit.y, fit.latent
        if self.hinge_steepness is not None:
            assert isinstance(loss, Hinge)
            curvature = (
                weights * loss.C * _smooth_hinge_curvature(1 - y * latent, self.hinge_steepness)
            )
        elif isinstance(loss, SquaredHinge):
            curvature = weights * loss.C * _smooth_step(1 - y * latent, self.smoothing)
        else:
            curvature = loss.laplace_curvature(y, latent, fit.dual, weights, fit.free)
        return jnp.where(weights > 0, curvature, 0.0)


def _smooth_step(slack, smoothing: float):
    """`exp(-smoothing / slack)` for positive slack, else zero; all its derivatives vanish at zero."""
    positive = slack > 0
    return jnp.where(positive, jnp.exp(-smoothing / jnp.where(positive, slack, 1.0)), 0.0)


def _smooth_hinge_curvature(slack, steepness: float):
    """The second derivative of `u / (1 + exp(-c u))`."""
    step = jax.nn.sigmoid(steepness * slack)
    slope = steepness * step * (1 - step)
    return 2 * slope + slack * steepness * slope * (1 - 2 * step)
