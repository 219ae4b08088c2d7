"""Nystrom's method: a kernel matrix of low rank, made from landmarks."""

from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from .._machine import KernelMachine
from ..runtime import is_traced, warn_user
from ..validation import check_count, check_number
from ._approximation import AbstractApproximation
from ._landmarks import Choice, choose_landmarks, landmarks_to_tolerance
from ._whitening import AbstractSubspace, LandmarkSubspace

_LANDMARKS = 200  # by default, unless the rank needs more or there are fewer examples


class ApproximationWarning(UserWarning):
    """A low rank loses more of the prior's variance than is tolerated."""


class Nystrom(AbstractApproximation):
    """Nystrom's method: a matrix of low rank, made from the kernel between examples and landmarks.

    `K ~ K_nm U_p Lambda_p^-1 U_p' K_mn`, with the p largest eigenvalues of the matrix of the landmarks,
    `K_mm = U Lambda U'` [GS05, eqs. 14-18].

    **Arguments:**

    - `rank`: the number p of white coordinates; by default the number of landmarks. `"auto"` adds landmarks
      by randomly pivoted Cholesky until at most the share `tolerance` of the prior's variance is lost
      (`lost_variance` of a fit). Their number depends on the hyperparameters at which they are chosen. It
      cannot be used inside `jax.jit` and other transformations.
    - `landmarks`: the number of landmarks, or a list of indices of examples; by default 200, or as many as
      the rank needs, or all examples if there are fewer.
    - `choice`: how to choose landmarks, `"random"` (the default), `"kmeans++"`, `"pivoted"` or
      `"randomly pivoted"` (see `approximations.choose_landmarks`).
    - `seed`: for the random choice of landmarks if no random key is passed.
    - `tolerance`: the share of variance that may be lost, from 0 to below 1: `rank="auto"` chooses the rank
      by it, and a larger loss, if it is more than 1 %, is reported for any rank. In float32 about 0.001 is
      lost at any rank, because white coordinates leave out anything smaller than rounding errors.
    - `max_rank`: for `rank="auto"`, the largest rank. If it is reached before the tolerance, an
      `ApproximationWarning` says so.

    **Example:**

    >>> posterior = jsvm.sample(
    ...     model, x, y, key=jax.random.key(1), approximation=jsvm.Nystrom(rank=25, landmarks=28)
    ... )
    >>> posterior.whitening.factor.shape
    (30, 25)
    """

    rank: int | Literal["auto"] | None = eqx.field(static=True)
    landmarks: int | tuple[int, ...] | None = eqx.field(static=True)
    choice: Choice = eqx.field(static=True)
    seed: int = eqx.field(static=True)
    tolerance: float = eqx.field(static=True)
    max_rank: int = eqx.field(static=True)

    def __init__(
        self,
        rank: int | Literal["auto"] | None = None,
        landmarks: int | Any | None = None,
        choice: Choice | None = None,
        seed: int = 0,
        *,
        tolerance: float = 0.01,
        max_rank: int = 2000,
    ):
        check_count("seed", seed, 0)
        check_number("tolerance", tolerance, least=0, below=1)
        check_count("max_rank", max_rank)
        if choice is not None and choice not in get_args(Choice):
            raise ValueError(
                f"`choice` of landmarks must be one of {get_args(Choice)}, not {choice!r}"
            )
        is_auto = isinstance(rank, str) and rank == "auto"
        if is_auto and (landmarks is not None or choice not in (None, "randomly pivoted")):
            raise ValueError(
                '`rank="auto"` chooses its landmarks itself: leave out `landmarks` and `choice`, or give a '
                "number as `rank`"
            )
        listed = landmarks is not None and np.ndim(landmarks) == 1
        if isinstance(rank, str) and not is_auto:
            raise ValueError(f'`rank` must be a positive integer or "auto", but is {rank!r}')
        if rank is not None and not is_auto:
            check_count("rank", rank)
        if landmarks is not None and not listed:
            check_count("landmarks", landmarks)
        if rank is None and landmarks is None:
            raise ValueError("Nystrom's method needs a `rank`, or `landmarks`, or both")
        self.rank = rank if rank is None or isinstance(rank, str) else int(rank)
        self.landmarks = _as_numbers(landmarks) if listed else landmarks
        self.choice = choice or ("randomly pivoted" if is_auto else "random")
        self.seed = int(seed)
        self.tolerance = float(tolerance)
        self.max_rank = int(max_rank)

    def subspace(self, model: KernelMachine, x: Array, key: Any = None) -> AbstractSubspace:
        key = jax.random.key(self.seed) if key is None else key
        if isinstance(self.rank, str):
            return self._automatic(model, x, key)
        examples, landmarks = x.shape[0], self.landmarks
        count = len(landmarks) if isinstance(landmarks, tuple) else self._count(self.rank, examples)
        rank = count if self.rank is None else self.rank
        if rank > count:
            raise ValueError(
                f"a rank of {rank} needs at least as many landmarks, but there are {count}: lower `rank` "
                "or raise `landmarks`"
            )
        if isinstance(landmarks, tuple):
            return LandmarkSubspace(_inside(landmarks, examples), rank)
        if count == examples:
            return LandmarkSubspace(None, rank)
        return LandmarkSubspace(choose_landmarks(model, x, count, self.choice, key), rank)

    def _automatic(self, model: KernelMachine, x: Array, key: Any) -> AbstractSubspace:
        if is_traced(model, x, key):
            raise ValueError(
                '`rank="auto"` needs the numbers of the model and the data, which are not known inside '
                "`jax.jit`, `jax.grad` or `jax.vmap`: give a number as `rank`"
            )
        landmarks, lost = landmarks_to_tolerance(model, x, self.tolerance, self.max_rank, key)
        rank = landmarks.shape[0]
        if lost > self.tolerance:
            warn_user(
                f"the largest rank allowed, {rank}, loses {lost:.2%} of the prior's variance, more than the "
                f"tolerance of {self.tolerance:.2%}: raise `max_rank` or `tolerance` of `jaxsvm.Nystrom`",
                ApproximationWarning,
            )
        return LandmarkSubspace(None if rank == x.shape[0] else landmarks, rank)

    def _count(self, rank: int | None, examples: int) -> int:
        if self.landmarks is None:
            return min(max(_LANDMARKS, rank or 0), examples)
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
