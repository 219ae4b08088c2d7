"""A Gaussian posterior around a fit: Laplace's approximation."""

from functools import partial
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._errors import as_points, is_traced
from .._fit import Fit, as_predictions
from .._parameters import unfreeze
from .._programs import jit
from .._results import FitError, raise_on_failure
from .._roots import safe_root
from ..criteria import LaplaceEvidence
from ..linalg import cholesky, solve_triangular
from ._ensemble import Ensemble
from ._predictive import AbstractPredictive, Components, same_for_all
from ._probability import check_rule, probability

_BLOCK = 32  # the number of rows is rounded up to a multiple of it, so that few shapes are compiled


class LaplacePosterior(AbstractPredictive):
    """The latent function as a Gaussian process around a fit, made by `jaxsvm.laplace`.

    Its mean is the decision function of the fit. With `Lambda` the curvatures of the losses and k the
    covariances of a new point and the examples its variance is
    `k(x, x) - k' Lambda^(1/2) (I + Lambda^(1/2) K Lambda^(1/2))^-1 Lambda^(1/2) k`: [CKO04, eqs. 43-44].

    `fit` is the fit, `curvature` the diagonal of Lambda. `rows`, `root` and `factor` are the examples that
    have a positive curvature, its square roots, and the Cholesky factor of the matrix above. Where a
    loss is not convex `correction` holds what negative curvatures add: the variance grows by
    `|correction k|^2`.
    """

    fit: Fit
    curvature: Float[Array, " n"]
    rows: Int[Array, " r"]
    root: Float[Array, " r"]
    factor: Float[Array, "r r"]
    correction: Float[Array, "s n"] | None

    def latent(self, x: Any) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """Mean and standard deviation of the latent function at new points.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** two vectors, one entry for each point.
        """
        points = as_points(x, self.fit.x).astype(self.fit.x.dtype)
        mean = self.fit.decision(points)
        kernel = unfreeze(self.fit.model.kernel)
        known = (self.rows, self.root, self.factor, self.correction)
        return mean, _deviation(kernel, self.fit.x, points, *known)

    def components(self, x: Any) -> Components:
        """The latent function at new points: one Gaussian each.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** `Components`.
        """
        mean, deviation = self.latent(x)
        loss = same_for_all(unfreeze(self.fit.model.loss), 1)
        return Components(loss, mean[None], deviation[None], jnp.ones(1, mean.dtype))

    def probability(self, x: Any, rule: str = "normalized") -> Float[Array, " m"]:
        """`P(y = +1)` of new points, above one half where the decision function is positive.

        **Arguments:**

        - `x`: a matrix with one row for each point.
        - `rule`: `"normalized"`, the ratio of the posterior averages of `exp(-L)` for both labels, or
          `"average"`, the posterior average of the conditional probability.

        **Returns:** one probability for each point.
        """
        check_rule(self.fit.model.loss, rule)
        mean, deviation = self.latent(x)
        return probability(unfreeze(self.fit.model.loss), mean[None, :], deviation**2, rule)

    def predict(self, x: Any) -> Float[Array, " m"]:
        """Labels -1 and +1 of new points, or for a regression loss their targets: those of the fit.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one label or target for each point.
        """
        return self.fit.predict(x)


class LaplaceMixture(AbstractPredictive):
    """Several Gaussian posteriors, each around its own fit and with its own share: a committee.

    Made by `jaxsvm.laplace` of an ensemble: [CKO04, end of section V-B]. Its variance is the mean of the
    members' variances plus the variance of their means: what is not known of the hyperparameters widens
    the error bars. `members` are the posteriors, `shares` their weights.
    """

    members: tuple[LaplacePosterior, ...]
    shares: Float[Array, " members"]

    def latent(self, x: Any) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """Mean and standard deviation of the latent function at new points.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** two vectors, one entry for each point.
        """
        _, means, deviations, shares = self.components(x)
        assert deviations is not None
        mean = shares @ means
        return mean, jnp.sqrt(shares @ (deviations**2 + (means - mean[None, :]) ** 2))

    def components(self, x: Any) -> Components:
        """The latent function at new points: one Gaussian for each member.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** `Components`.
        """
        parts = [member.components(x) for member in self.members]
        losses, means, deviations, _ = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
        return Components(losses, means, deviations, self.shares.astype(means.dtype))

    def probability(self, x: Any, rule: str = "normalized") -> Float[Array, " m"]:
        """`P(y = +1)` of new points: the mean of the members' probabilities.

        **Arguments:** `x`, a matrix with one row for each point; `rule`, as in `LaplacePosterior`.

        **Returns:** one probability for each point.
        """
        values = jnp.stack([member.probability(x, rule) for member in self.members])
        return self.shares.astype(values.dtype) @ values

    def predict(self, x: Any) -> Float[Array, " m"]:
        """Labels -1 and +1 of new points, or for a regression loss their targets.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one label or target for each point: those of the mean latent function.
        """
        return as_predictions(self.members[0].fit.model.loss, self.latent(x)[0])


@overload
def laplace(fit: Fit, evidence: LaplaceEvidence | None = None) -> LaplacePosterior: ...
@overload
def laplace(fit: Ensemble, evidence: LaplaceEvidence | None = None) -> LaplaceMixture: ...
def laplace(fit: Fit | Ensemble, evidence: LaplaceEvidence | None = None):
    """The Gaussian posterior of the latent function around a fit, or a mixture of them for an ensemble.

    **Arguments:**

    - `fit`: what `jaxsvm.fit` gave back, of a machine without a free offset; or the `ensemble()` of a
      selection.
    - `evidence`: whose curvatures to take; by default those of `criteria.LaplaceEvidence()`.

    **Returns:** a `LaplacePosterior`, or for an ensemble a `LaplaceMixture`. The factorization is done
    once, here, and only of the examples with a curvature: for the soft insensitive loss those are the
    off-bound support vectors.

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
            f"`fit` must be what `jaxsvm.fit` gave back, or an ensemble, not a {type(fit).__name__}"
        )
    evidence = LaplaceEvidence() if evidence is None else evidence
    evidence.check_machine(fit.model)
    posterior = around(fit, evidence)
    raise_on_failure(posterior.curvature, fit.result)
    changed = posterior.correction
    if (
        changed is not None
        and not is_traced(changed)
        and not np.isfinite(np.asarray(changed)).all()
    ):
        raise FitError(
            "the curvature of the posterior is not positive at this fit: it is no maximum, and there is no "
            "Gaussian around it. Fit from another `init=`"
        )
    return posterior


def around(fit: Fit, evidence: LaplaceEvidence) -> LaplacePosterior:
    """The Gaussian posterior of a fit that has been checked, or need not be."""
    curvature = evidence.curvature(fit)
    rows = _rows(curvature)
    nonconvex = not fit.model.loss.is_convex or evidence.kwok is not None
    kernel = unfreeze(fit.model.kernel)
    parts = _factorize(kernel, fit.x, curvature, rows, nonconvex)
    return LaplacePosterior(fit, curvature, rows, *parts)


def _rows(curvature) -> Int[Array, " r"]:
    """The examples of positive curvature; all of them where that cannot be looked at."""
    examples = curvature.shape[0]
    if is_traced(curvature):
        return jnp.arange(examples)
    chosen = np.flatnonzero(np.asarray(curvature) > 0)
    count = min(-(-max(len(chosen), 1) // _BLOCK) * _BLOCK, examples)
    # the number of examples, which is no row, stands for an empty place
    return jnp.asarray(np.pad(chosen, (0, count - len(chosen)), constant_values=examples))


@partial(jit, static_argnames="nonconvex")
def _factorize(kernel, x, curvature, rows, nonconvex):
    root = safe_root(curvature.at[rows].get(mode="fill", fill_value=0))
    known = x.at[rows].get(mode="clip")
    matrix = root[:, None] * kernel.matrix(known, known, same=True) * root[None, :]
    factor = cholesky(matrix + jnp.eye(rows.shape[0], dtype=x.dtype))
    if not nonconvex:
        return root, factor, None
    # Covariance after the positive curvatures: S = K - H'H. Negative ones -N make of it
    # (S^-1 - N)^-1 = S + S N^(1/2) (I - N^(1/2) S N^(1/2))^-1 N^(1/2) S.
    gram = kernel.matrix(x, x, same=True)
    half = _half(root, factor, gram.at[rows].get(mode="clip"))
    lost = safe_root(-curvature)
    matrix = lost[:, None] * (gram - half.T @ half) * lost[None, :]
    other = cholesky(jnp.eye(x.shape[0], dtype=x.dtype) - matrix)
    # S k for a new point is k - H' (H k), with the same H of its covariances
    back = solve_triangular(factor, half, transposed=True)
    through = jnp.eye(x.shape[0], dtype=x.dtype)
    through = through.at[:, rows].add(-(root[:, None] * back).T, mode="drop")
    correction = solve_triangular(other, lost[:, None] * through)
    return root, factor, correction


def _half(root, factor, covariances):
    """`F^-1 Lambda^(1/2) k`, whose square is what the examples take from the variance."""
    return solve_triangular(factor, root[:, None] * covariances)


@jit
def _deviation(kernel, known, x, rows, root, factor, correction) -> Float[Array, " m"]:
    if correction is None:
        some = kernel.matrix(x, known.at[rows].get(mode="clip"), same=False).T
        added = 0.0
    else:
        everything = kernel.matrix(x, known, same=False).T
        some = everything.at[rows].get(mode="clip")
        added = jnp.sum((correction @ everything) ** 2, axis=0)
    variance = kernel.diagonal(x) - jnp.sum(_half(root, factor, some) ** 2, axis=0) + added
    return safe_root(variance)
