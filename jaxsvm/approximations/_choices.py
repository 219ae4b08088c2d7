"""How the kernel matrix is represented: exactly, or with a low rank by Nystrom's method."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._machine import KernelMachine
from ..validation import plain
from ._landmarks import CHOICES, Choice, choose_landmarks
from ._whitening import Subspace

_LANDMARKS = 200  # unless more are needed, or there are fewer examples


class AbstractApproximation(eqx.Module):
    """A representation of the kernel matrix, passed as `approximation=`."""

    @abc.abstractmethod
    def subspace(self, model: KernelMachine, x: Float[Array, "n d"], key: Any) -> Subspace:
        """The part of the kernel matrix that is kept.

        **Arguments:** `model`, the kernel machine; `x`, the inputs; `key`, to draw landmarks with.

        **Returns:** a `Subspace`.
        """


class Exact(AbstractApproximation):
    """The whole kernel matrix; as many white coordinates as there are examples."""

    def subspace(self, model, x, key):
        """All examples, in their order."""
        return Subspace(None, x.shape[0])


class Nystrom(AbstractApproximation):
    """Nystrom's method: a matrix of low rank, made from the kernel between examples and landmarks.

    `K ~ K_nm U_p Lambda_p^-1 U_p' K_mn`, with the p largest eigenvalues of the landmarks' own matrix
    `K_mm = U Lambda U'` [GS05, eqs. 14-18].

    **Arguments:**

    - `rank`: the number p of white coordinates; by default as many as there are landmarks.
    - `landmarks`: their number, or a list of the numbers of examples; by default 200, or as many as the rank
      needs, or all examples where there are fewer.
    - `choice`: how landmarks are chosen, `"random"`, `"kmeans++"` or `"pivoted"`.

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
        if choice not in CHOICES:
            raise ValueError(f"`choice` of landmarks must be one of {CHOICES}, not {choice!r}")
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

    def subspace(self, model, x, key):
        """What the landmarks see of the matrix."""
        examples, given = x.shape[0], self.landmarks
        count = len(given) if isinstance(given, tuple) else self._count(examples)
        rank = count if self.rank is None else self.rank
        if rank > count:
            raise ValueError(
                f"a rank of {rank} needs at least as many landmarks, but there are {count}: lower `rank` "
                "or raise `landmarks`"
            )
        if isinstance(given, tuple):
            return Subspace(_inside(given, examples), rank)
        if count == examples:
            return Subspace(None, rank)
        return Subspace(choose_landmarks(model, x, count, self.choice, key), rank)

    def _count(self, examples: int) -> int:
        if self.landmarks is None:
            return min(max(_LANDMARKS, self.rank or 0), examples)
        assert not isinstance(self.landmarks, tuple)
        if self.landmarks > examples:
            raise ValueError(
                f"{self.landmarks} landmarks were asked for, but there are {examples} examples: a landmark "
                "is one of them"
            )
        return int(self.landmarks)


def _as_numbers(landmarks: Any) -> tuple[int, ...]:
    numbers = np.asarray(landmarks)
    if numbers.dtype.kind not in "iu" or len(set(numbers.tolist())) != len(numbers):
        raise ValueError("`landmarks` must be different numbers of examples")
    return tuple(numbers.tolist())


def _inside(landmarks: tuple[int, ...], examples: int) -> Int[Array, " m"]:
    if min(landmarks) < 0 or max(landmarks) >= examples:
        raise ValueError(f"`landmarks` must be numbers of examples, 0 to {examples - 1}")
    return jnp.asarray(landmarks)


def require_approximation(approximation: Any) -> None:
    """Raise a clear error unless this says how to represent the kernel matrix.

    **Arguments:** `approximation`, what the user passed.
    """
    if not isinstance(approximation, AbstractApproximation):
        raise TypeError(
            "`approximation` must be `jaxsvm.Exact()` or `jaxsvm.Nystrom(rank=...)`, not "
            f"{plain(approximation)!r}"
        )
