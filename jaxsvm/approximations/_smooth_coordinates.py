"""White coordinates that move smoothly with the hyperparameters: by Cholesky factors."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..kernels import AbstractKernel, varying_part
from ..linalg import cholesky, eigh, solve_triangular
from ._basis import LandmarkBasis
from ._whitening import AbstractSubspace, LandmarkSubspace, Whitening, lost_share


class CholeskySubspace(AbstractSubspace):
    """The kernel matrix, or its projection on landmarks, as a smooth function of the hyperparameters.

    With `K_mm` of the landmarks, a fixed matrix T of p combinations of them, and a small number j,
    `T' K_mm T + j I = L L'` and `V = K_nm T L'^-1`. For the whole matrix `K + j I = L L'` and `V = L`.

    `LandmarkSubspace` has an eigendecomposition in place of L. Its eigenvectors turn, and change their signs,
    as the hyperparameters move, so `V b` at fixed b jumps; its derivatives are those of a rotated V. Here
    `V b` is smooth, and derivatives are its own.

    The jitter j keeps L finite. It is the square root of the rounding error times the mean variance of the
    function, plus m rounding errors of all of the variance. It is a part of `Whitening.error`.

    `landmarks` are indices of examples, or None for all of them; `combinations` is T, or None for the
    landmarks themselves.
    """

    landmarks: Int[Array, " m"] | None
    combinations: Float[Array, "m p"] | None

    def whiten(self, kernel: AbstractKernel, x: Array, shards: int | None = None) -> Whitening:
        points = x if self.landmarks is None else x[self.landmarks]
        among = kernel.matrix(points, points, same=True)
        lower, jitter = self._factorized(kernel, points, among)
        basis = LandmarkBasis(points, self._projection(lower))
        if self.landmarks is None and self.combinations is None:
            total = jnp.mean(varying_part(kernel).diagonal(x))
            return Whitening(lower, basis, jax.lax.stop_gradient(jitter / total))
        between = among
        if self.landmarks is not None:
            # a landmark is the same example as itself among all examples, which matters for white noise
            between = kernel.matrix(x, points, same=False).at[self.landmarks].set(among)
        if self.combinations is not None:
            between = between @ self.combinations
        factor = solve_triangular(lower, between.T).T
        return Whitening(factor, basis, lost_share(kernel, x, factor))

    def shared(self, kernel: AbstractKernel, x: Array) -> tuple[Array, Array, Array]:
        points = x if self.landmarks is None else x[self.landmarks]
        among = kernel.matrix(points, points, same=True)
        lower, _ = self._factorized(kernel, points, among)
        return jax.lax.stop_gradient(points), among, self._projection(lower)

    def rows(
        self, kernel: AbstractKernel, shared: tuple[Array, Array, Array], x: Array, numbers: Array
    ) -> Array:
        points, among, projection = shared
        if self.landmarks is None:
            return among[numbers] @ projection
        matches = numbers[:, None] == self.landmarks[None, :]
        is_landmark = jnp.any(matches, axis=1)
        own = among[jnp.argmax(matches, axis=1)]
        between = kernel.matrix(x, points, same=False)
        return jnp.where(is_landmark[:, None], own, between) @ projection

    def _factorized(
        self, kernel: AbstractKernel, points: Array, among: Array
    ) -> tuple[Array, Array]:
        """L and the jitter."""
        eps = jnp.finfo(among.dtype).eps
        varying = jnp.mean(varying_part(kernel).diagonal(points))
        jitter = jnp.sqrt(eps) * varying + len(points) * eps * jnp.mean(jnp.diag(among))
        if self.combinations is not None:
            among = self.combinations.T @ among @ self.combinations
        return cholesky(among + jitter * jnp.eye(among.shape[0], dtype=among.dtype)), jitter

    def _projection(self, lower: Array) -> Array:
        """`T L'^-1`."""
        if self.combinations is not None:
            return solve_triangular(lower, self.combinations.T).T
        identity = jnp.eye(lower.shape[0], dtype=lower.dtype)
        return solve_triangular(lower, identity).T


def smoothed(
    subspace: AbstractSubspace, kernel: AbstractKernel, x: Float[Array, "n d"]
) -> AbstractSubspace:
    """About the same part of the kernel matrix, with a V that is a smooth function of the hyperparameters.

    With fewer white coordinates than landmarks, the combinations T are the p leading eigenvectors of the
    landmarks' matrix for the given kernel. Random waves are smooth as they are.

    **Arguments:** `subspace`, of any approximation; `kernel`; `x`, the inputs of the examples.

    **Returns:** an `AbstractSubspace`.
    """
    if not isinstance(subspace, LandmarkSubspace):
        return subspace
    points = x if subspace.landmarks is None else x[subspace.landmarks]
    if subspace.rank == points.shape[0]:
        return CholeskySubspace(subspace.landmarks, None)
    vectors = eigh(kernel.matrix(points, points, same=True))[1]
    return CholeskySubspace(subspace.landmarks, vectors[:, ::-1][:, : subspace.rank])
