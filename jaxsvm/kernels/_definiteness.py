"""Checks that the matrix of a user-defined kernel is a covariance matrix."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..linalg import cholesky
from ..runtime import require_own_process
from ._base import AbstractKernel
from ._custom import Custom


def is_user_defined(kernel: AbstractKernel) -> bool:
    """Whether a kernel is, or contains, a `Custom` kernel or a class from outside this library.

    **Arguments:** `kernel`.

    **Returns:** whether its matrix should be checked.
    """
    if isinstance(kernel, Custom) or type(kernel).__module__.split(".")[0] != "jaxsvm":
        return True
    parts = [part for part in vars(kernel).values() if isinstance(part, AbstractKernel)]
    return any(is_user_defined(part) for part in parts)


def is_covariance(gram: Float[Array, "n n"]) -> Bool[Array, ""]:
    """Whether a matrix is symmetric and positive semi-definite up to rounding, by one factorization.

    **Arguments:** `gram`, a square matrix.

    **Returns:** a truth value, with no derivative.
    """
    require_own_process()
    gram = jax.lax.stop_gradient(gram)
    epsilon = jnp.finfo(gram.dtype).eps
    largest = jnp.max(jnp.abs(gram))
    symmetric = jnp.max(jnp.abs(gram - gram.T)) <= jnp.sqrt(epsilon) * largest
    lift = 64 * gram.shape[0] * epsilon * largest
    factor = cholesky(gram + lift * jnp.eye(gram.shape[0], dtype=gram.dtype))
    return symmetric & jnp.all(jnp.isfinite(factor))


def covariance_defect(gram: Any) -> str:
    """By how much a matrix fails to be a covariance matrix, for an error message.

    **Arguments:** `gram`, a square matrix of numbers.

    **Returns:** a sentence.
    """
    matrix = np.asarray(gram, float)
    if not np.all(np.isfinite(matrix)):
        return "the kernel matrix holds NaN or infinite values"
    asymmetry = np.max(np.abs(matrix - matrix.T))
    values = np.linalg.eigvalsh((matrix + matrix.T) / 2)
    return (
        f"the eigenvalues of the kernel matrix go from {values[0]:.3g} to {values[-1]:.3g}, and "
        f"k(a, b) and k(b, a) differ by up to {asymmetry:.3g}"
    )
