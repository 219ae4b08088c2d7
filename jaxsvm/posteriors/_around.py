"""From a fit to the Gaussian posterior around it."""

from functools import partial
from typing import overload

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from .._fit import Fit
from .._parameters import unfreeze
from .._results import FitError, raise_on_failure
from .._roots import safe_root
from ..criteria import LaplaceEvidence
from ..linalg import cholesky, solve_triangular
from ..runtime import is_traced, jit
from ._ensemble import Ensemble
from ._laplace import LaplacePosterior, whitened
from ._mixture import LaplaceMixture

_BLOCK = 32  # the number of rows is rounded up to a multiple of it, so that few shapes are compiled


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
    return require_maximum(around(fit, evidence))


def require_maximum(posterior: LaplacePosterior) -> LaplacePosterior:
    """The posterior, or an error where its fit failed or is not a maximum.

    **Arguments:** `posterior`, around a fit.

    **Returns:** the same posterior.
    """
    curvature = raise_on_failure(posterior.curvature, posterior.result)
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
    return eqx.tree_at(lambda tree: tree.curvature, posterior, curvature)


def around(fit: Fit, evidence: LaplaceEvidence) -> LaplacePosterior:
    """The Gaussian posterior of a fit that has been checked, or need not be.

    **Arguments:** `fit`; `evidence`, whose curvatures to take.

    **Returns:** a `LaplacePosterior`.
    """
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
    half = whitened(root, factor, gram.at[rows].get(mode="clip"))
    lost = safe_root(-curvature)
    matrix = lost[:, None] * (gram - half.T @ half) * lost[None, :]
    other = cholesky(jnp.eye(x.shape[0], dtype=x.dtype) - matrix)
    # S k for a new point is k - H' (H k), with the same H of its covariances
    back = solve_triangular(factor, half, transposed=True)
    through = jnp.eye(x.shape[0], dtype=x.dtype)
    through = through.at[:, rows].add(-(root[:, None] * back).T, mode="drop")
    correction = solve_triangular(other, lost[:, None] * through)
    return root, factor, correction
