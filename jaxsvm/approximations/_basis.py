"""Functions that span a low-rank prior: they continue white coordinates to new points."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..kernels import AbstractKernel


class AbstractBasis(eqx.Module):
    """Functions `phi` with `theta(x) = phi(x) b + residual(x)`, where `b` has the prior `N(0, I)`.

    The residual is the part of the prior outside the span of these functions; it is independent of `b`.
    """

    @abc.abstractmethod
    def features(
        self, kernel: AbstractKernel, x: Float[Array, "k d"]
    ) -> tuple[Float[Array, "k p"], Float[Array, " k"]]:
        """Rows `phi(x)`, and the variance of the residual.

        **Arguments:** `kernel`, that of the model; `x`, a matrix with one row for each point.

        **Returns:** a matrix with one row for each point, and a vector.
        """

    @abc.abstractmethod
    def joint_features(
        self, kernel: AbstractKernel, x: Float[Array, "k d"]
    ) -> tuple[Float[Array, "k p"], Float[Array, "k k"]]:
        """Rows `phi(x)`, and the covariance of the residual between the points.

        **Arguments:** `kernel`, that of the model; `x`, a matrix with one row for each point.

        **Returns:** a matrix with one row for each point, and a symmetric matrix.
        """


class LandmarkBasis(AbstractBasis):
    """Nystrom's functions `phi(x) = k(x, points) projection` [GS05, eqs. 14-18].

    `points` are the inputs of the landmarks, and `projection` is `U_p Lambda_p^(-1/2)` with the p largest
    eigenvalues of their kernel matrix `U Lambda U'`.
    """

    points: Float[Array, "m d"]
    projection: Float[Array, "m p"]

    def features(self, kernel: AbstractKernel, x: Array) -> tuple[Array, Array]:
        rows = self._rows(kernel, x)
        return rows, residual_variance(kernel, x, rows)

    def joint_features(self, kernel: AbstractKernel, x: Array) -> tuple[Array, Array]:
        rows = self._rows(kernel, x)
        return rows, kernel.matrix(x, x, same=True) - rows @ rows.T

    def _rows(self, kernel, x):
        return kernel.matrix(x, self.points, same=False) @ self.projection


def residual_variance(
    kernel: AbstractKernel, x: Float[Array, "n d"], factor: Float[Array, "n p"]
) -> Float[Array, " n"]:
    """The prior variance that a low rank loses at each point, `k(x_i, x_i) - |V_i|^2`, at least zero.

    `V V'` plus a diagonal matrix of these numbers has the exact prior variance at each point.

    **Arguments:** `kernel`; `x`, the points; `factor`, V, with one row for each point.

    **Returns:** a vector.
    """
    return jnp.maximum(kernel.diagonal(x) - jnp.sum(factor**2, axis=1), 0.0)
