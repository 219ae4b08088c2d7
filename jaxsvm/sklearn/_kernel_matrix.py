"""The kernel matrix of an estimator: exact or of low rank, and the memory that it takes."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import Exact, KernelMachine, Nystrom, RandomFourier, unfreeze
from ..approximations import (
    EXACT,
    AbstractApproximation,
    ApproximationWarning,
    Corrected,
    Expansion,
    LandmarkSubspace,
    Representation,
    choose_landmarks,
    landmarks_to_tolerance,
    represent,
)
from ..runtime import available_memory, warn_user

ApproximationName = Literal["auto", "exact"]
EXACT_ROWS = 5000  # up to which "auto" is exact
# the share of the prior's variance that "auto" loses if its rank may be so large
_TOLERANCE = 0.001
_REPORTED = 0.05  # the share that may be lost without a warning
_MAX_RANK = 2000
_WORK, _SEARCH_WORK = 5e10, 6e9  # the largest n p^2 of a fit, and of each step of a search
_REFINEMENT = 5  # times `max_examples`, on which a search ends if there are many rows
_SQUARES = 6  # matrices of n x n numbers that a fit with its leave-one-out values holds at a time
_TALLS = 6  # matrices of n x p numbers


def check_approximation(approximation: Any) -> None:
    """Raise unless this is "auto", "exact" or an approximation of `jaxsvm`."""
    named = isinstance(approximation, str) and approximation in ("auto", "exact")
    if not named and not isinstance(approximation, AbstractApproximation):
        raise ValueError(
            '`approximation` must be "auto", "exact" or an approximation such as '
            f"`jaxsvm.Nystrom(rank=300)`, not {approximation!r}"
        )


def is_exact(approximation: AbstractApproximation | ApproximationName, rows: int) -> bool:
    """Whether the kernel matrix of so many rows is exact."""
    if isinstance(approximation, str):
        return approximation == "exact" or rows <= EXACT_ROWS
    return isinstance(approximation, Exact)


def rows_to_refine(
    approximation: AbstractApproximation | ApproximationName, rows: int, max_examples: int
) -> int:
    """On how many rows a search on `max_examples` of them continues at a low rank; 0 if it ends there."""
    if is_exact(approximation, rows) or not isinstance(approximation, str) or rows <= max_examples:
        return 0
    return min(rows, _REFINEMENT * max_examples)


def low_rank_for_fit(model: KernelMachine, x: np.ndarray) -> Representation:
    """A low rank with landmarks chosen at a model; raises if memory is too small.

    Landmarks are added by randomly pivoted Cholesky until they lose no more than 0.1 % of the variance, or
    their number p is so large that a fit would take long: `n p^2 = 5e10`, or 2000.
    """
    most, key = _largest_rank(_WORK, len(x)), jax.random.key(0)
    return _with_landmarks(
        landmarks_to_tolerance(model, jnp.asarray(x), _TOLERANCE, most, key)[0], x
    )


def low_rank_for_search(model: KernelMachine, x: np.ndarray) -> Representation:
    """A low rank for the steps of a search that begins at a model; raises if memory is too small.

    It may end at much shorter lengthscales, which need more landmarks. So their number is the largest for
    which `n p^2 = 6e9`.
    """
    most, key = _largest_rank(_SEARCH_WORK, len(x)), jax.random.key(0)
    return _with_landmarks(
        choose_landmarks(model, jnp.asarray(x), most, "randomly pivoted", key), x
    )


def require_memory_for(
    approximation: AbstractApproximation | ApproximationName, rows: int, inputs: int
) -> None:
    """Raise if the fit may need more memory than is free: now, and not after a long search.

    The rank of an automatic choice is not known before the search, so its largest one counts.

    **Arguments:** `approximation`; `rows`, the number of examples; `inputs`, the number of their inputs.
    """
    if is_exact(approximation, rows):
        require_memory(rows, inputs, None)
        return
    if isinstance(approximation, str):
        require_memory(rows, inputs, _largest_rank(_WORK, rows), "up to ")
        return
    while isinstance(approximation, Corrected):
        approximation = approximation.approximation
    if isinstance(approximation, RandomFourier):
        require_memory(rows, inputs, approximation.features)
    if not isinstance(approximation, Nystrom):
        return  # the rank is known when landmarks have been chosen
    if isinstance(approximation.rank, str):
        require_memory(rows, inputs, min(approximation.max_rank, rows), "up to ")
        return
    rank, landmarks = approximation.rank, approximation.landmarks
    if rank is None:
        rank = len(landmarks) if isinstance(landmarks, tuple) else landmarks or rows
    require_memory(rows, inputs, min(rank, rows))


def represented(
    approximation: AbstractApproximation | ApproximationName,
    model: KernelMachine,
    x: np.ndarray,
    low_rank: Callable[[KernelMachine, np.ndarray], Representation] = low_rank_for_fit,
) -> Representation:
    """The kernel matrix of some rows, with all choices made at a model; raises if memory is too small.

    Beyond `EXACT_ROWS` rows, "auto" stands for `low_rank(model, x)`. Fits and searches do not warn of what is
    lost. `warn_of_lost_variance` does, once for all of them.
    """
    rows, inputs = x.shape
    if is_exact(approximation, rows):
        require_memory(rows, inputs, None)
        return EXACT
    if isinstance(approximation, str):
        return low_rank(model, x)
    found = represent(approximation, model, jnp.asarray(x))
    require_memory(rows, inputs, _features(found, model, x))
    return dataclasses.replace(found, tolerance=1.0)


def _largest_rank(work: float, rows: int) -> int:
    return min(_MAX_RANK, rows, int((work / rows) ** 0.5))


def _with_landmarks(landmarks: jax.Array, x: np.ndarray) -> Representation:
    rank = landmarks.shape[0]
    require_memory(len(x), x.shape[1], rank)
    return Representation(LandmarkSubspace(landmarks, rank), tolerance=1.0)


class Matrix(NamedTuple):
    """The kernel matrix of a fit: its `rank`, None if it is exact, and what it lacks, as a share."""

    rank: int | None
    lost_variance: float


def matrix_of(expansion: Expansion | None, lost: Any) -> Matrix:
    """Describe the kernel matrix of a fit; `lost` is the share of the variance that the low rank loses."""
    if expansion is None:
        return Matrix(None, 0.0)
    return Matrix(expansion.coefficients.shape[0], float(lost))


def warn_of_lost_variance(
    approximation: AbstractApproximation | ApproximationName, matrices: Sequence[Any]
) -> None:
    """Warn if the kernel matrix of a fit, or of one of several, lacks more than 5 % of the variance.

    `Nystrom(..., tolerance=...)` may lose its tolerance.
    """
    worst = max(matrices, key=lambda matrix: matrix.lost_variance)
    allowed = _REPORTED
    if isinstance(approximation, Nystrom):
        allowed = max(allowed, approximation.tolerance)
    if worst.lost_variance > allowed:
        warn_user(
            f"a kernel matrix of rank {worst.rank} loses {worst.lost_variance:.1%} of the prior's variance, "
            f"more than {100 * allowed:.3g}%: predictions may be better with a larger rank, such as "
            f'`approximation=jaxsvm.Nystrom(rank={2 * worst.rank}, choice="randomly pivoted")`, or with '
            '"exact"',
            ApproximationWarning,
        )


def _features(found: Representation, model: KernelMachine, x: np.ndarray) -> int | None:
    """The number of features of a representation, or None if it is exact."""
    if found.kept is None:
        return None
    kernel, kept = unfreeze(model).kernel, found.kept
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.eval_shape(lambda points: kept.whiten(kernel, points).factor, shape).shape[1]


def require_memory(rows: int, inputs: int, rank: int | None, up_to: str = "") -> None:
    """Raise if a fit with a kernel matrix of this rank, or an exact one, needs more memory than is free."""
    needed, free = memory_of(rows, inputs, rank), available_memory()
    if free is None or needed <= free:
        return
    how = "an exact kernel matrix" if rank is None else f"a kernel matrix of rank {up_to}{rank}"
    most = int((free / 8 / rows - 2 * inputs - 40) / _TALLS)
    remedy = (
        f"use a low rank of at most {most}, such as `approximation=jaxsvm.Nystrom(rank={most}, "
        'choice="randomly pivoted")`, or fewer examples'
        if most >= 10
        else "use fewer examples"
    )
    raise MemoryError(
        f"a fit of {rows} examples with {how} needs {up_to or 'about '}{needed / 1e9:.1f} GB, but only "
        f"{free / 1e9:.1f} GB of memory are free: {remedy}"
    )


def memory_of(rows: int, inputs: int, rank: int | None) -> int:
    """An estimate of the memory of a fit in bytes, with its leave-one-out values."""
    if rank is None:
        return 8 * rows * (_SQUARES * rows + 2 * inputs + 40)
    return 8 * rows * (_TALLS * rank + 2 * inputs + 40)
