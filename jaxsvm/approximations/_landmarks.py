"""The choice of landmarks."""

from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._machine import KernelMachine
from ..hyperparameters import unfreeze
from ..kernels import varying_part
from ..runtime import count_row_shards, gather_rows, jit
from ._pivoting import BLOCK, add_pivots, no_pivots, with_capacity

Choice = Literal["random", "kmeans++", "pivoted", "randomly pivoted"]
_CANDIDATES = 20_000  # for landmarks; more examples hardly offer better ones
_FIRST_CAPACITY = 8 * BLOCK  # for pivots; doubled each time it is full


def choose_landmarks(
    model: KernelMachine, x: Float[Array, "n d"], count: int, choice: Choice, key: Any
) -> Int[Array, " m"]:
    """Choose landmarks, a subset of the examples that represents all.

    - `"random"`: all subsets are equally likely.
    - `"kmeans++"`: one after the other, each with a probability proportional to the squared distance, in the
      feature space of the kernel, from the nearest landmark so far.
    - `"pivoted"`: pivoted Cholesky; each landmark has the largest variance given the previous ones.
    - `"randomly pivoted"`: randomly pivoted Cholesky (Chen and others, 2023); one after the other, each with
      a probability proportional to its variance given the previous ones. The error is near that of the best
      approximation of a slightly lower rank, and all work is in matrix products. If the variance is used up
      by fewer landmarks, the first of the other examples fill up the number.

    Of more than 20,000 examples, the last three look at so many candidates only (or twice as many as there
    are landmarks): one at random from each of equal stretches of the examples. More hardly offer better
    landmarks. `"random"` among examples that are divided among devices takes landmarks in the same way.

    **Arguments:** `model`, whose kernel measures distances; `x`, the inputs; `count`, the number of
    landmarks; `choice`, one of the four; `key`, a random key.

    **Returns:** the indices of the landmarks, in ascending order.
    """
    if choice == "random":
        if count_row_shards(x) > 1:
            return _one_of_each_stretch(x.shape[0], count, key)
        return jnp.sort(jax.random.permutation(key, x.shape[0])[:count])
    # indices have no derivative
    kernel, x = jax.lax.stop_gradient((unfreeze(model).kernel, x))
    indices, points = _candidates(x, count, key)
    choose = _random_pivots if choice == "randomly pivoted" else partial(_greedy_landmarks, choice)
    return indices[jnp.sort(choose(kernel, points, count, key))]


def _candidates(x, count, key) -> tuple[Int[Array, " c"], Float[Array, "c d"]]:
    """The examples among which landmarks are chosen: their indices and inputs, on one device."""
    examples, divided = x.shape[0], count_row_shards(x) > 1
    number = min(max(_CANDIDATES, 2 * count), examples)
    if number == examples and not divided:
        return jnp.arange(examples), x
    indices = _one_of_each_stretch(examples, number, jax.random.fold_in(key, 1))
    return indices, jnp.asarray(gather_rows(x, np.asarray(indices))) if divided else x[indices]


def _one_of_each_stretch(examples: int, count: int, key: Any) -> Int[Array, " c"]:
    """Indices of examples, one at random from each of equal stretches, without an array of all of them."""
    edges = np.arange(count + 1) * examples // count
    places = jax.random.randint(key, (count,), 0, jnp.asarray(np.diff(edges)))
    return jnp.asarray(edges[:-1]) + places


@partial(jit, static_argnums=2)
def _random_pivots(kernel, x, count, key):
    pivots = add_pivots(kernel, x, no_pivots(kernel, x, count, key), count)
    numbers = jnp.arange(count)
    taken = jnp.zeros(x.shape[0], bool).at[pivots.indices].set(True, mode="drop")
    others = jnp.nonzero(~taken, size=count, fill_value=0)[0]
    return jnp.where(numbers < pivots.number, pivots.indices, others[numbers - pivots.number])


def landmarks_to_tolerance(
    model: KernelMachine, x: Float[Array, "n d"], tolerance: float, max_count: int, key: Any
) -> tuple[Int[Array, " m"], float]:
    """Choose randomly pivoted landmarks until they lose no more than a given share of the prior's variance.

    Their number is a multiple of 32, so that programs for one number serve others nearby, unless it is
    `max_count` or the variance is used up before. The host looks at the share after each block of pivots, so
    the model and the inputs must not be traced. Of more than 20,000 examples, so many are candidates (see
    `choose_landmarks`), and the share is that of their variance, without `Constant` terms of the kernel.

    **Arguments:** `model`; `x`, the inputs; `tolerance`, the share that may be lost; `max_count`, the largest
    number of landmarks; `key`, a random key.

    **Returns:** the indices of the landmarks, in ascending order, and the share that is lost.
    """
    kernel, limit = unfreeze(model).kernel, min(max_count, x.shape[0])
    indices, x = _candidates(x, limit, key)
    capacity = min(_FIRST_CAPACITY, limit)
    pivots, target = _no_pivots(kernel, x, capacity, key), 0
    while True:
        target = min(target + BLOCK, limit)
        if target > capacity:
            capacity = min(2 * capacity, limit)
            pivots = with_capacity(pivots, capacity)
        pivots, lost = _add_pivots(kernel, x, pivots, jnp.asarray(target))
        number, share = int(pivots.number), float(lost)
        if share <= tolerance or number < target or number == limit:
            return indices[jnp.sort(pivots.indices[:number])], share


@partial(jit, static_argnums=2)
def _no_pivots(kernel, x, capacity, key):
    return no_pivots(kernel, x, capacity, key)


@partial(jit, donate_argnums=2)
def _add_pivots(kernel, x, pivots, count):
    pivots = add_pivots(kernel, x, pivots, count)
    return pivots, jnp.sum(pivots.residual) / jnp.sum(varying_part(kernel).diagonal(x))


@partial(jit, static_argnums=(0, 3))
def _greedy_landmarks(choice, kernel, x, count, key):
    variances = kernel.diagonal(x)

    def column(index):
        cross = kernel.matrix(x, x[index][None], same=False)[:, 0]
        return cross.at[index].set(variances[index])

    def by_distance(carry, key):
        nearest, landmarks, number = carry
        free = jnp.where(taken(landmarks), 0.0, nearest)
        # if all remaining examples coincide with landmarks, any of them will do
        free = jnp.where(jnp.any(free > 0), free, jnp.where(taken(landmarks), 0.0, 1.0))
        index = jax.random.categorical(key, jnp.log(free))
        distances = variances + variances[index] - 2 * column(index)
        nearest = jnp.where(number == 0, distances, jnp.minimum(nearest, distances))
        return (jnp.maximum(nearest, 0.0), landmarks.at[number].set(index), number + 1), None

    def by_variance(carry, _):
        residual, landmarks, number, factor = carry
        index = jnp.argmax(jnp.where(taken(landmarks), -1.0, residual))
        pivot = jnp.maximum(residual[index], jnp.finfo(x.dtype).tiny)
        row = (column(index) - factor @ factor[index]) / jnp.sqrt(pivot)
        residual = jnp.maximum(residual - row**2, 0.0)
        return (
            residual,
            landmarks.at[number].set(index),
            number + 1,
            factor.at[:, number].set(row),
        ), None

    def taken(landmarks):
        return jnp.zeros(x.shape[0], bool).at[landmarks].set(True, mode="drop")

    none = jnp.full(count, x.shape[0])
    if choice == "kmeans++":
        begin = (jnp.ones_like(variances), none, 0)
        return jax.lax.scan(by_distance, begin, jax.random.split(key, count))[0][1]
    begin = (variances, none, 0, jnp.zeros((x.shape[0], count), x.dtype))
    return jax.lax.scan(by_variance, begin, None, length=count)[0][1]
