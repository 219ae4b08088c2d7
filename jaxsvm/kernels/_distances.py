"""Distances between points by matrix products, accurate and safe to differentiate."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..linalg import one_by_one

_FEW = 4  # inputs that are subtracted one by one, which is as fast as a product


def scale_inputs(
    x: Float[Array, "n d"], lengthscale: Float[Array, "..."], name: str = "lengthscales"
) -> Float[Array, "n d"]:
    """Inputs divided by a common lengthscale, or by one per input."""
    return x / per_input(lengthscale, x, name)


def per_input(
    values: Float[Array, "..."], x: Float[Array, "n d"], name: str
) -> Float[Array, "..."]:
    """A common value, or one per input, in a shape that broadcasts against a matrix of points."""
    if values.ndim == 1 and values.shape[0] != x.shape[1]:
        raise ValueError(
            f"the kernel has {values.shape[0]} {name}, but the points have {x.shape[1]} inputs: give one "
            "value, or one for each input"
        )
    return values[None, :] if values.ndim == 1 else values


def squared_distances(
    x1: Float[Array, "n d"],
    x2: Float[Array, "m d"],
    lengthscale: Float[Array, "..."],
    same: bool,
) -> Float[Array, "n m"]:
    """`sum_a (x1_ia - x2_ja)^2 / lengthscale_a^2`, with no array of size n x m x d.

    A row of the result depends on that row of `x1` and on `x2` only, up to rounding: pass the training
    examples as `x2`, and no new point changes the value at another. A NaN stays in its own row and column. A
    point at infinity, or so far away that its squared distances overflow, is far from every other point.

    Coincident points have distance exactly zero, so that every kernel sees them as one point; the
    gradient there is zero. Rounding errors change the correlations of a smooth kernel by a few units in the
    last place, wherever the points lie, except for outliers more than a thousand times (in float32 more
    than four times) as far from the middle of `x2` as most points.
    """
    scales = jnp.broadcast_to(per_input(lengthscale, x1, "lengthscales"), (1, x1.shape[1]))
    if x1.shape[1] <= _FEW:
        distances = _by_differences(x1, x2, scales)
    else:
        grid = jax.lax.stop_gradient(_grid(x2, scales))
        distances = _by_products(x1, x2, scales, grid)
    if same:  # symmetric to the last bit, whatever the compiler makes of the above
        distances = _symmetrized(distances)
        # NaN from the diagonal alone: a mask of the whole matrix would make the derivative read it twice
        own = jnp.where(jnp.isnan(jnp.diagonal(distances)), jnp.nan, 0.0)
        distances = jnp.where(jnp.eye(x1.shape[0], dtype=bool), own[:, None], distances)
    return distances


@jax.custom_jvp
def _by_differences(x1, x2, scales) -> Float[Array, "n m"]:
    """The squared distances input by input: exact up to rounding, and slow for many inputs."""
    columns = _columns(x1, x2, scales)

    def add(distances, column):
        a, b, inverse = column
        return distances + _difference(a, b, inverse, x1.shape[1]) ** 2, None

    distances = jnp.zeros((x1.shape[0], x2.shape[0]), x1.dtype)
    if x1.shape[1] > _FEW:
        return jax.lax.scan(add, distances, columns)[0]
    for column in zip(*columns, strict=True):
        distances, _ = add(distances, column)
    return distances


@_by_differences.defjvp
def _by_differences_jvp(primals, tangents):
    """`2 D ((dx1 - x1 dscale / scale) - (dx2 - x2 dscale / scale)) / scale`, with D the scaled difference.

    So the derivative needs sums over rows and columns only, not one over all pairs, which takes longer. The
    origin of x1 and x2 is at a point of `x2`, since their distance from it costs precision.
    """
    columns, inputs = _columns(*primals), primals[0].shape[1]
    distances = _by_differences(*primals)
    change = jnp.zeros_like(distances)
    for number in range(inputs):
        x1, x2, inverse = (array[number] for array in columns)
        moved1, moved2, rescaled = (tangents[k][..., number] for k in range(3))
        origin = jnp.where(jnp.isfinite(x2[:1]), x2[:1], 0.0)
        moved1 = moved1 - _difference(x1, origin, inverse, inputs)[:, 0] * rescaled
        moved2 = moved2 - _difference(x2, origin, inverse, inputs)[:, 0] * rescaled
        scaled = (2 * inverse) * _difference(x1, x2, inverse, inputs)
        change += scaled * (moved1[:, None] - moved2[None, :])
    return distances, change


def _columns(x1, x2, scales):
    """One row for each input, of numbers so large at most that differences are finite, and inverse scales."""
    largest = float(jnp.finfo(x1.dtype).max) / 4
    inverse = jnp.minimum(1 / scales[0], largest)
    return jnp.clip(x1, -largest, largest).T, jnp.clip(x2, -largest, largest).T, inverse


def _difference(a, b, inverse_scale, inputs: int) -> Float[Array, "n m"]:
    """The scaled differences of one input, so large at most that squared distances are finite."""
    # Points are subtracted before they are scaled: with fused operations a scaled point may be rounded in
    # one place and not in another, and copies of a point would not have distance zero.
    limit = _largest_coordinate(a.dtype, inputs)
    return jnp.clip((a[:, None] - b[None, :]) * inverse_scale, -limit, limit)


class _Grid(NamedTuple):
    """A grid around the points `x2`, in units of the lengthscales, outliers aside.

    `extent` is the distance of the farthest point from the `center`. `unit`, a power of two, is so coarse
    that a floating-point number can hold the scalar product of two points on the grid, in squared units.
    """

    center: Float[Array, "1 d"]
    extent: Float[Array, ""]
    unit: Float[Array, ""]

    @property
    def is_wide(self) -> Bool[Array, ""]:
        """Whether one product would lose more than a few units in the last place of a correlation."""
        return self.extent > 3

    @property
    def is_very_wide(self) -> Bool[Array, ""]:
        """Whether split products would lose as much: their remainders are as large as the unit."""
        return self.extent * self.unit > 32


@jax.custom_jvp
def _by_products(x1, x2, scales, grid: _Grid) -> Float[Array, "n m"]:
    """The squared distances by one product, or more exactly if the points span many lengthscales."""

    def run(*arguments):
        # A loop of at most one step, whose result takes the place of the product. A branch would copy it.
        _, expansion = jax.lax.while_loop(
            lambda state: state[0],
            lambda _: (jnp.asarray(False), _refined(*arguments)),
            (arguments[-1].is_wide, _by_one_product(*arguments)),
        )
        return expansion

    # the sum is outside the loop, where the compiler can combine it with later operations
    return one_by_one(run)(x1, x2, scales, grid).distances


@_by_products.defjvp
def _by_products_jvp(primals, tangents):
    grid = primals[-1]

    def plain(x1, x2, scales):
        return _by_one_product(x1, x2, scales, grid).sum

    _, change = jax.jvp(plain, primals[:3], tangents[:3])
    distances = _by_products(*primals)
    return distances, jnp.where(distances == 0, 0.0, change)


class _Expansion(NamedTuple):
    """Squared distances as `norms1_i + norms2_j - 2 product_ij`.

    Distances up to `rounding1_i + rounding2_j` count as zero.
    """

    norms1: Float[Array, " n"]
    norms2: Float[Array, " m"]
    product: Float[Array, "n m"]
    rounding1: Float[Array, " n"]
    rounding2: Float[Array, " m"]

    @property
    def sum(self) -> Float[Array, "n m"]:
        """The squared distances with their rounding errors."""
        return self.norms1[:, None] + self.norms2[None, :] - 2 * self.product

    @property
    def distances(self) -> Float[Array, "n m"]:
        """The squared distances."""
        rounding = self.rounding1[:, None] + self.rounding2[None, :]
        return jnp.where(self.sum <= rounding, 0.0, self.sum)  # false for NaN, which stays


def _by_one_product(x1, x2, scales, grid: _Grid) -> _Expansion:
    """`|a|^2 + |b|^2 - 2 a'b`, with errors relative to `|a|^2 + |b|^2`."""
    x1, far1 = _within((x1 - grid.center) / scales)
    x2, far2 = _within((x2 - grid.center) / scales)
    norms1, norms2 = _norms(x1), _norms(x2)
    share = _share_of_rounding(x1)
    # a sum, so that NaN stays NaN
    return _Expansion(
        norms1 + far1, norms2 + far2, _product(x1, x2), share * norms1, share * norms2
    )


def _refined(x1, x2, scales, grid: _Grid) -> _Expansion:
    """The squared distances of points that span many lengthscales."""
    methods = [_by_split_products, lambda x1, x2, scales, _: _by_differences(x1, x2, scales)]
    distances = jax.lax.switch(grid.is_very_wide.astype(int), methods, x1, x2, scales, grid)
    norms1, norms2 = (jnp.zeros(count, distances.dtype) for count in distances.shape)
    roundings = _rounding(x1, scales, grid), _rounding(x2, scales, grid)
    return _Expansion(norms1, norms2, distances / -2, *roundings)  # halving a number is exact


def _by_split_products(x1, x2, scales, grid: _Grid) -> Float[Array, "n m"]:
    """The same with errors relative to the distance itself.

    Each scaled point is `h + l`: `h` on the grid, so that `|h_i - h_j|^2` comes out exactly, and `l` no
    larger than the grid's unit. What is left, `(2 (h_i - h_j) + l_i - l_j)' (l_i - l_j)`, is small, and
    so is its rounding error.
    """
    high1, low1, far1 = _split(x1, scales, grid)
    high2, low2, far2 = _split(x2, scales, grid)
    coarse = _norms(high1)[:, None] + _norms(high2)[None, :] - 2 * _product(high1, high2)
    norms1 = jnp.sum((2 * high1 + low1) * low1, axis=1)
    norms2 = jnp.sum((2 * high2 + low2) * low2, axis=1)
    left = jnp.concatenate([high1, low1], axis=1)
    right = jnp.concatenate([low2, high2 + low2], axis=1)
    fine = norms1[:, None] + norms2[None, :] - 2 * _product(left, right)
    return coarse + fine + (far1[:, None] + far2[None, :])


def _product(x1, x2) -> Float[Array, "n m"]:
    return jnp.matmul(x1, x2.T, precision=jax.lax.Precision.HIGHEST)


def _norms(x) -> Float[Array, " n"]:
    return jnp.sum(x**2, axis=1)


def _split(x, scales, grid: _Grid):
    """Scaled points as `high + low`, and what to add to the squared distances of points too far away.

    `high` is on the grid, and `high + low` is `(x - center) / scales` with twice the usual digits. Nothing
    here depends on the last digit of a quotient, which the compiler may round one way in one place and
    another way in another.
    """
    kind = jnp.finfo(x.dtype)
    difference = x - grid.center
    subtracted = x - difference  # Knuth's sum without error
    error = (x - (difference + subtracted)) + (subtracted - grid.center)
    ratio = difference / scales
    inside, far = _within(ratio)
    high = jnp.round(inside / grid.unit) * grid.unit
    # half of the digits of the scales, times those of a point on the grid: no rounding error
    coarse = jax.lax.reduce_precision(scales, kind.nexp, kind.nmant // 2)
    rest = (difference - high * coarse) - high * (scales - coarse)
    low = jnp.where(inside == ratio, (rest + error) / scales, 0.0)  # none for points moved inside
    return high, low, far


def _grid(x2, scales) -> _Grid:
    """The grid for these points, whose extent leaves out outliers."""
    kind = jnp.finfo(x2.dtype)
    center = _middle(x2)
    norms = _norms(_within((x2 - center) / scales)[0])
    norms = jnp.where(jnp.isnan(norms), 0.0, norms)
    ordered = jnp.sort(norms[:: max(1, norms.shape[0] // 64)])
    usual = ordered[7 * ordered.shape[0] // 8]
    farthest = 1024.0 if kind.nmant > 30 else 4.0  # in float32 a larger grid would be too coarse
    # at least `farthest` lengthscales, since nearly all points may coincide
    limit = farthest**2 * jnp.maximum(usual, 1.0)
    extent = jnp.sqrt(jnp.minimum(jnp.max(norms), limit))
    # so coarse that the sum of two squared norms, in squared units, has fewer digits than a number
    unit = jnp.clip(extent * 2.0 ** -((kind.nmant - 4) // 2), float(kind.tiny) ** 0.25)
    unit = jax.lax.reduce_precision(unit, kind.nexp, 0)  # a power of two, without rounding errors
    return _Grid(center, extent, unit)


def _rounding(x, scales, grid: _Grid) -> Float[Array, " n"]:
    """The share of each point in the rounding error of a refined squared distance."""
    inside, _ = _within((x - grid.center) / scales)
    size = jnp.sqrt(_norms(inside))
    low = jnp.minimum(x.shape[1] ** 0.5 * grid.unit, size)
    low = jnp.where(size <= 1.01 * grid.extent, low, size)
    low = jnp.where(grid.is_very_wide, 0.0, low)  # differences of coincident points are zero
    return _share_of_rounding(x) * size * low


def _share_of_rounding(x) -> float:
    """The rounding error of a sum over the inputs, relative to its terms."""
    return float(max(8, x.shape[1] ** 0.5) * jnp.finfo(x.dtype).eps)


def _middle(x: Float[Array, "n d"]) -> Float[Array, "1 d"]:
    """The mean of each input after outliers are clipped, so that a few rows cannot move it far.

    The clipping range comes from the central quarter of at most 31 evenly spaced rows. It spans about ten
    standard deviations of a Gaussian input to each side, so without outliers this is the mean.
    """
    some = jnp.sort(x[:: max(1, x.shape[0] // 16)], axis=0)  # NaN sorts last
    low, high = (some[share * some.shape[0] // 8][None, :] for share in (3, 5))
    reach = 16 * (high - low)
    clipped = jnp.clip(jnp.where(jnp.isnan(x), low, x), low - reach, high + reach)
    mean = jnp.mean(clipped, axis=0, keepdims=True)
    # rounded to a few bits less than full precision, so that every use of the mean sees the same number,
    # whether operations are fused or not
    kind = jnp.finfo(x.dtype)
    mean = jax.lax.reduce_precision(mean, kind.nexp, kind.nmant - 6)
    return jnp.where(jnp.isfinite(mean), mean, 0.0)


def _within(x: Float[Array, "n d"]) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
    """Points moved to the largest coordinate, and what to add to squared distances of those beyond it."""
    limit = _largest_coordinate(x.dtype, x.shape[1])
    far = jnp.any(jnp.abs(x) > limit, axis=1)
    return jnp.clip(x, -limit, limit), jnp.where(far, jnp.asarray(limit**2, x.dtype), 0.0)


def _largest_coordinate(dtype, inputs: int) -> float:
    """The largest scaled coordinate for which no squared distance overflows."""
    return (float(jnp.finfo(dtype).max) / (64 * inputs)) ** 0.5


@jax.custom_jvp
def _symmetrized(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Symmetrize a matrix that is symmetric up to rounding.

    Its derivatives are not symmetrized, which saves a transpose.
    """
    return (matrix + matrix.T) / 2


@_symmetrized.defjvp
def _symmetrized_jvp(primals, tangents):
    return _symmetrized(*primals), tangents[0]
