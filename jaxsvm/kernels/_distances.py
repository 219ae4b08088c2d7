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
    x1: Float[Array, "n d"],
    x2: Float[Array, "m d"],
    lengthscale: Float[Array, "..."],
    same: bool,
) -> Float[Array, "n m"]:
    """`sum_a (x1_ia - x2_ja)^2 / lengthscale_a^2`, with no array of size n x m x d.

    A row of the result depends on that row of `x1` and on `x2` only, up to rounding: give the training
    examples as `x2`, and no new point changes the value at another. A NaN stays in its own row and column.
    A point at infinity, or so far away that its squared distances overflow, is far from every other point.

    Coincident points have distance exactly zero, so that every kernel sees them as one point; the
    gradient there is zero. With more than four inputs the distance of two points is accurate relative to
    their distance from the middle of `x2`: tight clusters far apart from each other want float64.
    """
    # Points are subtracted before they are scaled: with fused operations a scaled point may be rounded in
    # one place and not in another, and copies of a point would not have distance zero.
    scales = jnp.broadcast_to(per_input(lengthscale, x1, "lengthscales"), (1, x1.shape[1]))
    limit = _largest_coordinate(x1)
    if x1.shape[1] <= 4:
        # few inputs bring points close to each other: there only differences are accurate
        largest = float(jnp.finfo(x1.dtype).max) / 4
        x1, x2 = jnp.clip(x1, -largest, largest), jnp.clip(x2, -largest, largest)
        distances = jnp.zeros((), x1.dtype)
        for a, b, scale in zip(x1.T, x2.T, scales[0], strict=True):
            difference = (a[:, None] - b[None, :]) / scale
            distances = distances + jnp.clip(difference, -limit, limit) ** 2
    else:
        center = jax.lax.stop_gradient(_middle(x2))
        x1, far1 = _within(limit, (x1 - center) / scales)
        x2, far2 = _within(limit, (x2 - center) / scales)
        norms1, norms2 = jnp.sum(x1**2, axis=1), jnp.sum(x2**2, axis=1)
        sizes = norms1[:, None] + norms2[None, :]
        raw = sizes - 2 * jnp.matmul(x1, x2.T, precision=jax.lax.Precision.HIGHEST)
        # what is below the rounding error of this formula counts as zero; a NaN does not
        rounding = max(8, x1.shape[1] ** 0.5) * jnp.finfo(raw.dtype).eps * sizes
        distances = jnp.where(raw <= rounding, 0.0, raw)
        distances = distances + (far1[:, None] + far2[None, :])  # a sum, so that NaN stays NaN
    if same:  # symmetric to the last bit, whatever the compiler makes of the above
        distances = _symmetrized(distances)
        itself = jnp.eye(x1.shape[0], dtype=bool) & ~jnp.isnan(distances)
        distances = jnp.where(itself, 0.0, distances)
    return distances


def _middle(x: Float[Array, "n d"]) -> Float[Array, "1 d"]:
    """The mean of each input after outliers are clipped, so that no few rows can move it far.

    The clipping range comes from the central quarter of at most 127 evenly spaced rows. It spans about ten
    standard deviations of a Gaussian input to each side, so without outliers this is the mean.
    """
    some = jnp.sort(x[:: max(1, x.shape[0] // 64)], axis=0)  # NaN sorts last
    low, high = (some[share * some.shape[0] // 8][None, :] for share in (3, 5))
    reach = 16 * (high - low)
    clipped = jnp.clip(jnp.where(jnp.isnan(x), low, x), low - reach, high + reach)
    mean = jnp.mean(clipped, axis=0, keepdims=True)
    # a few bits less than there are: then every use of the mean sees the same number, fused or not
    kind = jnp.finfo(x.dtype)
    mean = jax.lax.reduce_precision(mean, kind.nexp, kind.nmant - 6)
    return jnp.where(jnp.isfinite(mean), mean, 0.0)


def _largest_coordinate(x: Float[Array, "n d"]) -> float:
    """The largest scaled coordinate with which no squared distance overflows."""
    return (float(jnp.finfo(x.dtype).max) / (64 * x.shape[1])) ** 0.5


def _within(limit: float, x: Float[Array, "n d"]) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
    """Points moved to that limit, and what to add to the squared distances of those that were beyond."""
    far = jnp.any(jnp.abs(x) > limit, axis=1)
    return jnp.clip(x, -limit, limit), jnp.where(far, jnp.asarray(limit**2, x.dtype), 0.0)


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
