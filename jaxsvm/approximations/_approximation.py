"""Representations of the kernel matrix: exact, or of low rank by Nystrom's method with landmarks."""

import abc
from functools import partial
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._machine import KernelMachine
from .._parameters import unfreeze
from ..runtime import jit
from ..validation import plain
from ._whitening import Subspace

Choice = Literal["random", "kmeans++", "pivoted"]
_LANDMARKS = 200  # by default, unless the rank needs more or there are fewer examples


class AbstractApproximation(eqx.Module):
    """A representation of the kernel matrix, passed as `approximation=`."""

    @abc.abstractmethod
    def subspace(self, model: KernelMachine, x: Float[Array, "n d"], key: Any) -> Subspace:
        """The part of the kernel matrix that is kept.

        **Arguments:** `model`, the kernel machine; `x`, the inputs; `key`, a random key for the landmarks.

        **Returns:** a `Subspace`.
        """


class Exact(AbstractApproximation):
    """The whole kernel matrix, with one white coordinate for each example."""

    def subspace(self, model: KernelMachine, x: Array, key: Any) -> Subspace:
        return Subspace(None, x.shape[0])


class Nystrom(AbstractApproximation):
    """Nystrom's method: a matrix of low rank, made from the kernel between examples and landmarks.

    `K ~ K_nm U_p Lambda_p^-1 U_p' K_mn`, with the p largest eigenvalues of the matrix of the landmarks,
    `K_mm = U Lambda U'` [GS05, eqs. 14-18].

    **Arguments:**

    - `rank`: the number p of white coordinates; by default the number of landmarks.
    - `landmarks`: the number of landmarks, or a list of indices of examples; by default 200, or as many as
      the rank needs, or all examples if there are fewer.
    - `choice`: how to choose landmarks, `"random"`, `"kmeans++"` or `"pivoted"` (see
      `approximations.choose_landmarks`).

    **Example:**

    >>> posterior = jsvm.sample(
    ...     model, x, y, key=jax.random.key(1), approximation=jsvm.Nystrom(rank=25, landmarks=28)
    ... )
    >>> posterior.whitening.factor.shape
    (30, 25)
    """

    rank: int | None = eqx.field(static=True)
    landmarks: int | tuple[int, ...] | None = eqx.field(static=True)
    choice: Choice = eqx.field(static=True)

    def __init__(
        self,
        rank: int | None = None,
        landmarks: int | Any | None = None,
        choice: Choice = "random",
    ):
        if choice not in get_args(Choice):
            raise ValueError(
                f"`choice` of landmarks must be one of {get_args(Choice)}, not {choice!r}"
            )
        listed = landmarks is not None and np.ndim(landmarks) == 1
        for name, value in (("rank", rank), ("landmarks", None if listed else landmarks)):
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if value is not None and not (whole and value >= 1):
                raise ValueError(f"`{name}` must be a positive integer, but is {plain(value)!r}")
        if rank is None and landmarks is None:
            raise ValueError("Nystrom's method needs a `rank`, or `landmarks`, or both")
        self.rank = None if rank is None else int(rank)
        self.landmarks = _as_numbers(landmarks) if listed else landmarks
        self.choice = choice

    def subspace(self, model: KernelMachine, x: Array, key: Any) -> Subspace:
        examples, landmarks = x.shape[0], self.landmarks
        count = len(landmarks) if isinstance(landmarks, tuple) else self._count(examples)
        rank = count if self.rank is None else self.rank
        if rank > count:
            raise ValueError(
                f"a rank of {rank} needs at least as many landmarks, but there are {count}: lower `rank` "
                "or raise `landmarks`"
            )
        if isinstance(landmarks, tuple):
            return Subspace(_inside(landmarks, examples), rank)
        if count == examples:
            return Subspace(None, rank)
        return Subspace(choose_landmarks(model, x, count, self.choice, key), rank)

    def _count(self, examples: int) -> int:
        if self.landmarks is None:
            return min(max(_LANDMARKS, self.rank or 0), examples)
        assert not isinstance(self.landmarks, tuple)
        if self.landmarks > examples:
            raise ValueError(
                f"{self.landmarks} landmarks are more than the {examples} examples to choose from: lower "
                "`landmarks`"
            )
        return int(self.landmarks)


def _as_numbers(landmarks: Any) -> tuple[int, ...]:
    numbers = np.asarray(landmarks)
    if numbers.dtype.kind not in "iu" or len(set(numbers.tolist())) != len(numbers):
        raise ValueError("`landmarks` must be different indices of examples")
    return tuple(numbers.tolist())


def _inside(landmarks: tuple[int, ...], examples: int) -> Int[Array, " m"]:
    if min(landmarks) < 0 or max(landmarks) >= examples:
        raise ValueError(f"`landmarks` must be indices of examples, 0 to {examples - 1}")
    return jnp.asarray(landmarks)


def require_approximation(approximation: Any) -> None:
    """Raise unless this is a representation of the kernel matrix.

    **Arguments:** `approximation`, passed by the user.
    """
    if not isinstance(approximation, AbstractApproximation):
        raise TypeError(
            "`approximation` must be `jaxsvm.Exact()` or `jaxsvm.Nystrom(rank=...)`, not "
            f"{plain(approximation)!r}"
        )


def choose_landmarks(
    model: KernelMachine, x: Float[Array, "n d"], count: int, choice: Choice, key: Any
) -> Int[Array, " m"]:
    """Choose landmarks, a subset of the examples that represents all.

    - `"random"`: all subsets are equally likely.
    - `"kmeans++"`: one after the other, each with a probability proportional to the squared distance, in the
      feature space of the kernel, from the nearest landmark so far.
    - `"pivoted"`: pivoted Cholesky; each landmark has the largest variance given the previous ones.

    **Arguments:** `model`, whose kernel measures distances; `x`, the inputs; `count`, the number of
    landmarks; `choice`, one of the three; `key`, a random key.

    **Returns:** the indices of the landmarks, in ascending order.
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
