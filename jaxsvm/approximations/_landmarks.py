"""Landmarks: the examples that Nystrom's method sees the kernel matrix through."""

from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._machine import KernelMachine
from .._parameters import unfreeze
from ..runtime import jit

Choice = Literal["random", "kmeans++", "pivoted"]
CHOICES: tuple[str, ...] = get_args(Choice)


def choose_landmarks(
    model: KernelMachine, x: Float[Array, "n d"], count: int, choice: Choice, key: Any
) -> Int[Array, " m"]:
    """Choose examples that stand for all.

    - `"random"`: all subsets are equally likely.
    - `"kmeans++"`: one after the other, with a probability in proportion to the squared distance, in the
      kernel's feature space, from the nearest one so far.
    - `"pivoted"`: pivoted Cholesky, each time the example with the largest variance given those so far.

    **Arguments:** `model`, whose kernel measures distances; `x`, the inputs; `count`, of landmarks;
    `choice`, one of the three; `key`, of JAX's random numbers.

    **Returns:** the numbers of the chosen examples, in ascending order.
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
