"""The kernel matrix of some examples in the form that solvers and criteria use."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._machine import KernelMachine
from ..gram import AbstractGram, LowRankGram, exact_gram
from ..kernels import AbstractKernel
from ..runtime import count_row_shards
from ._approximation import AbstractApproximation, Exact, require_approximation
from ._basis import AbstractBasis, residual_variance
from ._nystrom import Nystrom
from ._whitening import AbstractSubspace

LOST_VARIANCE = 0.01  # the largest share that is not reported


class Corrected(AbstractApproximation):
    """A low rank plus a diagonal that makes the prior variance of every example exact.

    `K ~ V V' + diag(k(x_i, x_i) - |V_i|^2)`: the variance that the low rank loses becomes a part of each
    latent value that is independent of all others. A fit then has more free examples, so it takes longer.
    Sampling and the sampled evidence do not use the correction.

    **Arguments:** `approximation`, such as `jaxsvm.Nystrom(rank=100)`.
    """

    approximation: AbstractApproximation

    def __init__(self, approximation: AbstractApproximation):
        require_approximation(approximation)
        if isinstance(approximation, Exact | Corrected):
            raise ValueError("only a low rank can be corrected, such as `jaxsvm.Nystrom(rank=100)`")
        self.approximation = approximation

    def subspace(self, model: KernelMachine, x: Array, key: Any = None) -> AbstractSubspace:
        raise ValueError(
            "sampling does not use the diagonal correction: pass the low rank itself as `approximation`"
        )


class Represented(NamedTuple):
    """A kernel matrix in some representation.

    `gram` stands for the matrix; `basis` continues its features to new points, None for the exact matrix,
    whose features are the covariances with the examples; `error` is the lost share of the prior's variance.
    """

    gram: AbstractGram
    basis: AbstractBasis | None
    error: Float[Array, ""]


class Representation(AbstractApproximation):
    """A representation whose choices, such as landmarks, are made: it serves all hyperparameters.

    `represent` makes it. `kept` is the part of the matrix that is kept, None for all of it;
    `is_corrected` says whether a diagonal replaces the lost variance; `tolerance` is the largest share of the
    prior's variance that may be lost without a warning; `shards` is the number of devices among which the
    examples are divided.
    """

    kept: AbstractSubspace | None
    is_corrected: bool = eqx.field(static=True, default=False)
    tolerance: float = eqx.field(static=True, default=LOST_VARIANCE)
    shards: int = eqx.field(static=True, default=1)

    def subspace(self, model: KernelMachine, x: Array, key: Any = None) -> AbstractSubspace:
        return Exact().subspace(model, x, key) if self.kept is None else self.kept

    def matrix(self, kernel: AbstractKernel, x: Float[Array, "n d"]) -> Represented:
        """The kernel matrix of some examples, differentiable with respect to kernel and examples.

        **Arguments:** `kernel`; `x`, the inputs of the examples.

        **Returns:** a `Represented`.
        """
        if self.kept is None:
            return Represented(exact_gram(kernel, x), None, jnp.zeros((), x.dtype))
        whitening = self.kept.whiten(kernel, x, self.shards)
        extra = residual_variance(kernel, x, whitening.factor) if self.is_corrected else None
        gram = LowRankGram(whitening.factor, extra, self.shards)
        return Represented(gram, whitening.basis, whitening.error)


EXACT = Representation(None)


def check_lost_variance(error: float, tolerance: float = LOST_VARIANCE) -> list[str]:
    """Report a low rank that loses too much of the prior's variance, and a kernel that is not a covariance.

    **Arguments:** `error`, the share that is lost, negative for a kernel that is not positive semi-definite;
    `tolerance`, the largest share that is not reported.

    **Returns:** an empty list, or a list with one message.
    """
    if error < 0:
        return [
            "the kernel matrix is not positive semi-definite: the result holds for a matrix whose variance "
            f"is larger by {-error:.2g} of the prior's, not for the model. Check a custom kernel for "
            "symmetry and positive-definiteness, or add a `White` kernel"
        ]
    if error <= tolerance:
        return []
    return [
        f"the low rank loses {error:.1%} of the prior's variance, more than {100 * tolerance:.3g}%: the "
        "result holds for the low-rank machine, not for the model. Raise the rank and the number of "
        "landmarks of `jaxsvm.Nystrom`, or use `jaxsvm.Exact()`"
    ]


def represent(
    approximation: AbstractApproximation,
    model: KernelMachine,
    x: Float[Array, "n d"],
    key: Any = None,
) -> Representation:
    """Make all choices of an approximation, such as landmarks, for a model and some examples.

    **Arguments:** `approximation`; `model`, the kernel machine; `x`, the inputs; `key`, a random key, or None
    to use the `seed` of the approximation.

    **Returns:** a `Representation`.
    """
    require_approximation(approximation)
    if isinstance(approximation, Representation):
        return approximation
    if isinstance(approximation, Exact):
        return EXACT
    low = approximation
    if isinstance(approximation, Corrected):
        low = approximation.approximation
    kept, tolerance = low.subspace(model, x, key), _tolerated(low)
    return Representation(kept, low is not approximation, tolerance, count_row_shards(x))


def represent_in_white(
    approximation: AbstractApproximation,
    model: KernelMachine,
    x: Float[Array, "n d"],
    key: Any = None,
) -> Representation:
    """As `represent`, for sampling: `kept` is always there, of the exact matrix all white coordinates.

    **Arguments:** as for `represent`: `approximation`, `model`, `x`, `key`.

    **Returns:** a `Representation`.
    """
    require_approximation(approximation)
    kept = approximation.subspace(model, x, key)
    return Representation(kept, tolerance=_tolerated(approximation), shards=count_row_shards(x))


def _tolerated(approximation: AbstractApproximation) -> float:
    """The share of the prior's variance that may be lost without a report; the user may raise it."""
    if isinstance(approximation, Nystrom):
        return max(LOST_VARIANCE, approximation.tolerance)
    if isinstance(approximation, Representation):
        return approximation.tolerance
    return LOST_VARIANCE


class Expansion(eqx.Module):
    """A function of low rank, `f(x) = phi(x) coefficients`.

    `basis` has the features `phi`, `coefficients` one number for each of them.
    """

    basis: AbstractBasis
    coefficients: Float[Array, " p"]

    def at(self, kernel: AbstractKernel, x: Float[Array, "m d"]) -> Float[Array, " m"]:
        """The function at new points.

        **Arguments:** `kernel`; `x`, the points.

        **Returns:** one value for each point.
        """
        rows, _ = self.basis.features(kernel, x)
        return rows @ self.coefficients
