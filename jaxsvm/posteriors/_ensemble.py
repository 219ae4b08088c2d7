"""Several machines that predict as one: an ensemble of fits, and a mixture of Gaussian posteriors."""

from typing import Any, overload

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._fit import Fit
from .._predictor import AbstractPointEstimate, AbstractPredictor, Examples
from ..criteria import LaplaceEvidence
from ..losses import AbstractLoss
from ..numerics import safe_root
from ._abstract import AbstractMixture
from ._components import Components, Joint, mixture
from ._laplace_posterior import LaplacePosterior, around, require_maximum


class AbstractCommittee(AbstractPredictor):
    """Several `members` with weights, their `shares`; its decision is the weighted mean of theirs."""

    members: eqx.AbstractVar[tuple[Any, ...]]
    shares: eqx.AbstractVar[Float[Array, " members"]]

    @property
    def loss(self) -> AbstractLoss:
        return self.members[0].loss

    @property
    def examples(self) -> Examples:
        return self.members[0].examples

    def decision(self, x: Any) -> Array:
        values = jnp.stack([member.decision(x) for member in self.members])
        return self.shares.astype(values.dtype) @ values


class Ensemble(AbstractCommittee, AbstractPointEstimate):
    """Several fits that predict as one: the weighted mean of their latent functions.

    `members` are the fits, `shares` their weights. An ensemble is a point estimate: for error bars,
    probabilities and intervals use `jaxsvm.laplace(ensemble)`.
    """

    members: tuple[Fit, ...]
    shares: Float[Array, " members"]

    def latent(self, x: Any) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """Weighted mean and standard deviation over the members' latent functions at new points.

        The deviation measures how far the members disagree. It is smaller than that of a posterior, which
        also includes the error bars of each member.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** two vectors, one entry for each point.
        """
        values = jnp.stack([member.decision(x) for member in self.members])
        shares = self.shares.astype(values.dtype)
        mean = shares @ values
        return mean, safe_root(shares @ (values - mean[None, :]) ** 2)


class LaplaceMixture(AbstractCommittee, AbstractMixture):
    """Several Gaussian posteriors, each around its own fit and with its own share: a committee.

    `jaxsvm.laplace` of an ensemble makes it: [CKO04, end of section V-B]. Its variance is the mean of the
    members' variances plus the variance of their means, so uncertainty about the hyperparameters widens
    the error bars. Probabilities are the mean of the members' probabilities. `members` are the posteriors,
    `shares` their weights.
    """

    members: tuple[LaplacePosterior, ...]
    shares: Float[Array, " members"]

    def components(self, x: Any) -> Components:
        losses, means, deviations, *_ = _joined([member.components(x) for member in self.members])
        return mixture(losses, means, deviations, self.shares)

    def joint(self, x: Any) -> Joint:
        means, covariances, _ = _joined([member.joint(x) for member in self.members])
        return Joint(means, covariances, self.shares.astype(means.dtype))


def _joined(parts: list) -> Any:
    """Concatenate the parts of several machines along the axis of machines."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


@overload
def laplace(fit: Fit, evidence: LaplaceEvidence | None = None) -> LaplacePosterior: ...
@overload
def laplace(fit: Ensemble, evidence: LaplaceEvidence | None = None) -> LaplaceMixture: ...
def laplace(fit: Fit | Ensemble, evidence: LaplaceEvidence | None = None):
    """The Gaussian posterior of the latent function around a fit, or a mixture of them for an ensemble.

    **Arguments:**

    - `fit`: the result of `jaxsvm.fit` for a machine without a free offset, or the `ensemble()` of a
      selection.
    - `evidence`: whose curvatures to use; by default those of `criteria.LaplaceEvidence()`.

    **Returns:** a `LaplacePosterior`, or for an ensemble a `LaplaceMixture`. The factorization is done
    once, here, and only for the examples with a curvature: for the soft insensitive loss, the off-bound
    support vectors.

    **Example:**

    >>> mean, deviation = jsvm.laplace(jsvm.fit(model, x, y)).latent(x)
    >>> bool(jnp.all(deviation > 0))
    True
    """
    if isinstance(fit, Ensemble):
        members = tuple(laplace(member, evidence) for member in fit.members)
        return LaplaceMixture(members, fit.shares)
    if not isinstance(fit, Fit):
        raise TypeError(
            f"`fit` must be the result of `jaxsvm.fit`, or an ensemble, not a {type(fit).__name__}"
        )
    evidence = LaplaceEvidence() if evidence is None else evidence
    evidence.check_machine(fit.model)
    return require_maximum(around(fit, evidence))
