"""Coordinates in which the prior is white: `theta = V b` with `b ~ N(0, I)`."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._parameters import unfreeze
from .._programs import jit
from ..kernels import AbstractKernel
from ..linalg import eigh

CHOICES = ("random", "kmeans++", "pivoted")
DEFAULT_LANDMARKS = 200


class Subspace(NamedTuple):
    """Which part of the kernel matrix to keep: all of it, or what the landmarks see of it.

    `rank` is static; `landmarks` are numbers of examples, or None for all of them in their order.
    """

    landmarks: Int[Array, " m"] | None
    rank: int


class Whitening(eqx.Module):
    """Latent values as `theta = V b`, where `b` has the prior `N(0, I)`, so that `V V' ~ K`.

    With `K_mm = U Lambda U'` of the landmarks and the `p` largest eigenvalues,
    `V = K_nm U_p Lambda_p^(-1/2)`: [GS05, eqs. 14-18] (whose eq. 17 lacks the division by the
    eigenvalue). With all examples as landmarks and full rank it is exact, and Hamiltonian dynamics in `b`
    are those of [GS03, eqs. 21-23].

    `factor` is V; `points` are the landmarks' inputs and `projection` is `U_p Lambda_p^(-1/2)`, so that
    `k(x, points) @ projection` are the coordinates of a new point; `error` is the share of the prior's
    variance that is lost, `1 - tr(V V') / tr(K)`.
    """

    factor: Float[Array, "n p"]
    points: Float[Array, "m d"]
    projection: Float[Array, "m p"]
    error: Float[Array, ""]

    def features(
        self, kernel: AbstractKernel, x: Float[Array, "k d"]
    ) -> tuple[Float[Array, "k p"], Float[Array, " k"]]:
        """Rows `phi(x)` with `theta(x) = phi(x) b + residual`, and the variance of that residual.

        **Arguments:** `kernel`, that of the model; `x`, a matrix with one row for each point.

        **Returns:** a matrix with one row for each point, and a vector.
        """
        rows = kernel.matrix(x, self.points, same=False) @ self.projection
        residual = kernel.diagonal(x) - jnp.sum(rows**2, axis=1)
        return rows, jnp.maximum(residual, 0.0)


def whiten(kernel: AbstractKernel, x: Float[Array, "n d"], subspace: Subspace) -> Whitening:
    """The whitening of a kernel on some points.

    It can be differentiated in the kernel, whatever the eigenvalues: `V V'` has a derivative where
    eigenvalues meet, and V is turned along with it in the one way that has one too. Only where the last
    kept and the first dropped eigenvalue meet is there no derivative; their coupling is left out there.

    **Arguments:** `kernel`; `x`, the inputs; `subspace`, which landmarks and what rank.

    **Returns:** a `Whitening`.
    """
    landmarks, rank = subspace
    if landmarks is None:
        points, among = x, kernel.matrix(x, x, same=True)
        projection = _projection(among, rank)
        factor = among @ projection
    else:
        points = x[landmarks]
        among = kernel.matrix(points, points, same=True)
        # an example that is a landmark is the same example, which matters to white noise
        between = kernel.matrix(x, points, same=False).at[landmarks].set(among)
        projection = _projection(among, rank)
        factor = between @ projection
    total = jnp.sum(kernel.diagonal(x))
    error = jax.lax.stop_gradient(jnp.maximum(1 - jnp.sum(factor**2) / total, 0.0))
    return Whitening(factor, points, projection, error)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _projection(gram: Float[Array, "m m"], rank: int) -> Float[Array, "m p"]:
    """`P = U_p Lambda_p^(-1/2)`, so that `P P'` is the inverse of rank p; no column for what is null."""
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

    With `M = U' dK U`: `Y_ij = -M_ij / (2 l_i sqrt(l_j))` within what is kept, and
    `Y_ij = M_ij / (sqrt(l_j) (l_j - l_i))` from the kept j to the dropped i; no difference of two kept
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


def choose_subspace(
    model: Any,
    x: Float[Array, "n d"],
    rank: int | None,
    landmarks: int | Any | None,
    choice: str,
    key,
) -> Subspace:
    """What to keep of the kernel matrix, after all checks.

    Without `rank` and `landmarks` everything is kept. With a rank only, there are 200 landmarks, or as
    many as there are examples; with landmarks only, the rank is their number.
    """
    examples = x.shape[0]
    if choice not in CHOICES:
        raise ValueError(f"`choice` of landmarks must be one of {CHOICES}, not {choice!r}")
    for name, value in (("rank", rank), ("landmarks", landmarks)):
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        listed = name == "landmarks" and value is not None and np.ndim(value) == 1
        if value is not None and not listed and not (whole and value >= 1):
            raise ValueError(f"`{name}` must be a positive integer, but is {value!r}")
    if rank is None and landmarks is None:
        return Subspace(None, examples)
    if landmarks is not None and np.ndim(landmarks) == 1:
        chosen = _given_landmarks(landmarks, examples)
        count = chosen.shape[0]
    else:
        default = min(max(DEFAULT_LANDMARKS, rank or 0), examples)
        count = default if landmarks is None else int(landmarks)
        chosen = None
        if count > examples:
            raise ValueError(
                f"{count} landmarks were asked for, but there are {examples} examples: a landmark is one "
                "of them"
            )
    kept = count if rank is None else int(rank)
    if kept > count:
        raise ValueError(
            f"a rank of {kept} needs at least as many landmarks, but there are {count}: lower `rank` or "
            "raise `landmarks`"
        )
    if chosen is None:
        chosen = None if count == examples else choose_landmarks(model, x, count, choice, key)
    return Subspace(chosen, kept)


def _given_landmarks(landmarks, examples):
    numbers = np.asarray(landmarks)
    if numbers.dtype.kind not in "iu" or len(set(numbers.tolist())) != len(numbers):
        raise ValueError("`landmarks` must be different numbers of examples")
    if numbers.min() < 0 or numbers.max() >= examples:
        raise ValueError(f"`landmarks` must be numbers of examples, 0 to {examples - 1}")
    return jnp.asarray(numbers)


def choose_landmarks(model: Any, x: Float[Array, "n d"], count: int, choice: str, key):
    """Numbers of examples that stand for all.

    - `"random"`: all subsets alike.
    - `"kmeans++"`: one after the other, with a probability in proportion to the squared distance, in the
      kernel's feature space, from the nearest one so far.
    - `"pivoted"`: pivoted Cholesky, each time the example with the largest variance given those so far.
    """
    if choice == "random":
        return jnp.sort(jax.random.permutation(key, x.shape[0])[:count])
    return jnp.sort(_greedy_landmarks(unfreeze(model).kernel, x, count, choice, key))


@partial(jit, static_argnums=(2, 3))
def _greedy_landmarks(kernel, x, count, choice, key):
    variances = kernel.diagonal(x)

    def column(index):
        cross = kernel.matrix(x, x[index][None], same=False)[:, 0]
        return cross.at[index].set(variances[index])

    def by_distance(carry, key):
        nearest, chosen, place = carry
        free = jnp.where(taken(chosen), 0.0, nearest)
        # where all that is left coincides with a landmark, one is as good as another
        free = jnp.where(jnp.any(free > 0), free, jnp.where(taken(chosen), 0.0, 1.0))
        index = jax.random.categorical(key, jnp.log(free))
        distances = variances + variances[index] - 2 * column(index)
        nearest = jnp.where(place == 0, distances, jnp.minimum(nearest, distances))
        return (jnp.maximum(nearest, 0.0), chosen.at[place].set(index), place + 1), None

    def by_variance(carry, _):
        residual, chosen, place, factor = carry
        index = jnp.argmax(jnp.where(taken(chosen), -1.0, residual))
        pivot = jnp.maximum(residual[index], jnp.finfo(x.dtype).tiny)
        row = (column(index) - factor @ factor[index]) / jnp.sqrt(pivot)
        residual = jnp.maximum(residual - row**2, 0.0)
        return (
            residual,
            chosen.at[place].set(index),
            place + 1,
            factor.at[:, place].set(row),
        ), None

    def taken(chosen):
        return jnp.zeros(x.shape[0], bool).at[chosen].set(True, mode="drop")

    none = jnp.full(count, x.shape[0])
    if choice == "kmeans++":
        begin = (jnp.ones_like(variances), none, 0)
        return jax.lax.scan(by_distance, begin, jax.random.split(key, count))[0][1]
    begin = (variances, none, 0, jnp.zeros((x.shape[0], count), x.dtype))
    return jax.lax.scan(by_variance, begin, None, length=count)[0][1]
