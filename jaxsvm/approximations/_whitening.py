"""Coordinates in which the prior is white: `theta = V b` with `b ~ N(0, I)`."""

import abc
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..kernels import AbstractKernel, is_user_defined, varying_part
from ..linalg import eigh
from ._basis import AbstractBasis, LandmarkBasis
from ._blocks import in_blocks


class Whitening(eqx.Module):
    """Latent values as `theta = V b`, where `b` has the prior `N(0, I)`, so that `V V' ~ K`.

    `factor` is V; `basis` continues it to new points; `error` is the lost share of the prior's variance, or
    negative if the kernel is not positive semi-definite (`lost_share`).
    """

    factor: Float[Array, "n p"]
    basis: AbstractBasis
    error: Float[Array, ""]


class AbstractSubspace(eqx.Module):
    """The part of the kernel matrix that is kept, for any values of the hyperparameters."""

    @abc.abstractmethod
    def whiten(
        self, kernel: AbstractKernel, x: Float[Array, "n d"], shards: int | None = None
    ) -> Whitening:
        """White coordinates for a kernel on some points, differentiable with respect to both.

        **Arguments:** `kernel`; `x`, the inputs of the examples; `shards`, the number of devices among which
        they are divided. With None this is not known, and a gradient takes more memory.

        **Returns:** a `Whitening`.
        """

    @abc.abstractmethod
    def shared(self, kernel: AbstractKernel, x: Float[Array, "n d"]) -> Any:
        """The matrices that all rows of V share, differentiable with respect to the kernel.

        **Arguments:** `kernel`; `x`, the inputs of all examples.

        **Returns:** a pytree of arrays, for `rows`.
        """

    @abc.abstractmethod
    def rows(
        self, kernel: AbstractKernel, shared: Any, x: Float[Array, "k d"], numbers: Int[Array, " k"]
    ) -> Float[Array, "k p"]:
        """Some rows of V, differentiable with respect to the kernel and `shared`.

        **Arguments:** `kernel`; `shared`, what the method of that name returns; `x`, the inputs of these
        examples; `numbers`, their places among all examples.

        **Returns:** a matrix with one row for each example.
        """


class _SharedByRows(NamedTuple):
    """The landmarks, their kernel matrix, and `U_p Lambda_p^(-1/2)`."""

    points: Float[Array, "m d"]
    among: Float[Array, "m m"]
    projection: Float[Array, "m p"]


class LandmarkSubspace(AbstractSubspace):
    """The whole kernel matrix, or its projection on landmarks.

    With `K_mm = U Lambda U'` of the landmarks and the `p` largest eigenvalues,
    `V = K_nm U_p Lambda_p^(-1/2)` [GS05, eqs. 14-18] (eq. 17 there lacks the division by the eigenvalue).
    With all examples as landmarks and full rank it is exact, and Hamiltonian dynamics in `b` are those of
    [GS03, eqs. 21-23].

    V has derivatives even if eigenvalues coincide: `V V'` is differentiable there, and V is rotated so that
    it is differentiable too. Only if the last kept and the first dropped eigenvalue coincide is there no
    derivative; their coupling is then left out.

    `landmarks` are indices of examples, or None for all of them in their order; `rank` is the number of
    white coordinates.
    """

    landmarks: Int[Array, " m"] | None
    rank: int = eqx.field(static=True)

    def whiten(self, kernel: AbstractKernel, x: Array, shards: int | None = None) -> Whitening:
        points, among, projection = self.shared(kernel, x)
        if self.landmarks is None:
            factor = among @ projection
        else:

            def features(x):
                return kernel.matrix(x, points, same=False) @ projection

            # a landmark is the same example as itself among all examples, which matters for white noise
            factor = in_blocks(features, x, shards).at[self.landmarks].set(among @ projection)
        return Whitening(factor, LandmarkBasis(points, projection), lost_share(kernel, x, factor))

    def shared(self, kernel: AbstractKernel, x: Array) -> _SharedByRows:
        points = x if self.landmarks is None else x[self.landmarks]
        among = kernel.matrix(points, points, same=True)
        return _SharedByRows(points, among, _projection(among, self.rank))

    def rows(
        self, kernel: AbstractKernel, shared: _SharedByRows, x: Array, numbers: Array
    ) -> Array:
        if self.landmarks is None:
            return shared.among[numbers] @ shared.projection
        points = jax.lax.stop_gradient(shared.points)  # they do not depend on the kernel
        matches = numbers[:, None] == self.landmarks[None, :]
        is_landmark = jnp.any(matches, axis=1)
        own = shared.among[jnp.argmax(matches, axis=1)]
        between = kernel.matrix(x, points, same=False)
        return jnp.where(is_landmark[:, None], own, between) @ shared.projection


def lost_share(
    kernel: AbstractKernel, x: Float[Array, "n d"], factor: Float[Array, "n p"]
) -> Float[Array, ""]:
    """The share of the prior's variance that a low rank loses, without a derivative.

    It is `tr(K - V V')` over the trace of K without its `Constant` terms. Any low rank keeps the variance of
    an offset, so a large one must not hide what is lost of the function.

    `V V'` has nowhere more variance than a covariance matrix K. If it has more at some examples, a
    user-defined kernel is not positive semi-definite. Then this is minus the share that is added there.

    **Arguments:** `kernel`; `x`, the inputs of the examples; `factor`, V.

    **Returns:** a number, negative if the kernel is not positive semi-definite.
    """
    variances = kernel.diagonal(x)
    total = jnp.sum(varying_part(kernel).diagonal(x))
    lost = variances - jnp.sum(factor**2, axis=1)
    share = jnp.clip(jnp.sum(lost) / total, 0.0, 1.0)
    if is_user_defined(kernel):
        added = jnp.sum(jnp.maximum(-lost, 0.0)) / total
        rounding = jnp.finfo(factor.dtype).eps ** 0.5  # far more than factorizations add
        share = jnp.where(added > rounding, -added, share)
    return jax.lax.stop_gradient(share)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _projection(gram: Float[Array, "m m"], rank: int) -> Float[Array, "m p"]:
    """`P = U_p Lambda_p^(-1/2)`, so that `P P'` is the inverse of rank p; zero for null eigenvalues."""
    return _eigen(gram, rank)[0]


def _eigen(gram, rank):
    values, vectors = eigh(gram)
    values, vectors = values[::-1], vectors[:, ::-1]
    null = values <= values[0] * gram.shape[0] * jnp.finfo(gram.dtype).eps
    roots = jnp.where(null, 0.0, jax.lax.rsqrt(jnp.where(null, 1.0, values)))
    return vectors[:, :rank] * roots[None, :rank], values, vectors, roots


@_projection.defjvp
def _projection_jvp(rank, primals, tangents):
    """`dP = U Y` with `P dP' + dP P' = d(P P')`.

    With `M = U' dK U`, `Y_ij = -M_ij / (2 l_i sqrt(l_j))` if both eigenvalues are kept, and
    `Y_ij = M_ij / (sqrt(l_j) (l_j - l_i))` if j is kept and i is dropped; no difference of two kept
    eigenvalues occurs.
    """
    (gram,), (change,) = primals, tangents
    projection, values, vectors, roots = _eigen(gram, rank)
    moved = vectors.T @ (change @ projection)  # M_ij / sqrt(l_j)
    kept = -(roots**2)[:, None] * moved / 2
    gaps = values[None, :rank] - values[:, None]
    clear = (gaps > values[0] * jnp.sqrt(jnp.finfo(gram.dtype).eps)) & (roots[None, :rank] > 0)
    dropped = jnp.where(clear, moved / jnp.where(clear, gaps, 1.0), 0.0)
    is_kept = jnp.arange(gram.shape[0])[:, None] < rank
    return projection, vectors @ jnp.where(is_kept, kept, dropped)
