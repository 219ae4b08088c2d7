"""Distances between points by one matrix product, safe to differentiate."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def scale_inputs(
    x: Float[Array, "n d"], lengthscale: Float[Array, "..."], name: str = "lengthscales"
) -> Float[Array, "n d"]:
    """Inputs divided by one lengthscale for all, or by one each."""
    return x / per_input(lengthscale, x, name)


def per_input(
    values: Float[Array, "..."], x: Float[Array, "n d"], name: str
) -> Float[Array, "..."]:
    """One value for all inputs, or one each, in a shape that meets a matrix of points."""
    if values.ndim == 1 and values.shape[0] != x.shape[1]:
        raise ValueError(
            f"the kernel has {values.shape[0]} {name}, but the points have {x.shape[1]} inputs: give one "
            "for all of them, or one for each"
        )
    return values[None, :] if values.ndim == 1 else values


def squared_distances(
    x1: Float[Array, "n d"], x2: Float[Array, "m d"], same: bool
) -> Float[Array, "n m"]:
    """`|x1_i - x2_j|^2`, with no array of size n x m x d.

    Coincident points have distance exactly zero, so that every kernel sees them as one point; the
    gradient there is zero. With more than four inputs the distance of two points is accurate relative to
    their distance from the mean of all: tight clusters far apart from each other want float64.
    """
    if x1.shape[1] <= 4:
        # few inputs bring points close to each other: there only differences are accurate
        columns = zip(x1.T, x2.T, strict=True)
        distances = sum(((a[:, None] - b[None, :]) ** 2 for a, b in columns), start=jnp.zeros(()))
    else:
        # so that distances far from the origin stay accurate
        center = jax.lax.stop_gradient(jnp.mean(x1, axis=0, keepdims=True))
        x1, x2 = x1 - center, x2 - center
        norms1, norms2 = jnp.sum(x1**2, axis=1), jnp.sum(x2**2, axis=1)
        sizes = norms1[:, None] + norms2[None, :]
        raw = sizes - 2 * jnp.matmul(x1, x2.T, precision=jax.lax.Precision.HIGHEST)
        # what is below the rounding error of this formula counts as zero
        distances = jnp.where(
            raw > max(8, x1.shape[1] ** 0.5) * jnp.finfo(raw.dtype).eps * sizes, raw, 0.0
        )
    if same:  # symmetric to the last bit, whatever the compiler makes of the above
        distances = _symmetrized(distances)
        distances = jnp.where(jnp.eye(x1.shape[0], dtype=bool), 0.0, distances)
    return distances


@jax.custom_jvp
def _symmetrized(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """A matrix that is symmetric but for rounding, made so to the last bit.

    Its derivatives are symmetric but for rounding too and pass as they are, which saves the transpose of a
    gradient that no one would see.
    """
    return (matrix + matrix.T) / 2


@_symmetrized.defjvp
def _symmetrized_jvp(primals, tangents):
    return _symmetrized(*primals), tangents[0]
