"""Preparation of data for a machine: standardization, padding to few sizes, random subsets."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..numerics import is_rounding, mean_and_deviation

_STEP = 32
_POINTS = 8192  # to predict at a time, so that memory does not grow with their number


def as_numpy(tree: Any) -> Any:
    """The same structure with NumPy arrays, which keep double precision when JAX runs in single."""

    def convert(leaf):
        numeric = isinstance(leaf, jax.Array) and not jnp.issubdtype(
            leaf.dtype, jax.dtypes.extended
        )
        return np.asarray(leaf) if numeric else leaf

    return jax.tree.map(convert, tree)


class Scaling(NamedTuple):
    """The map `(x - center) / scale` of the inputs."""

    center: np.ndarray
    scale: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The inputs in the units of the machine."""
        return (x - self.center) / self.scale


def scaling(x: np.ndarray, weights: np.ndarray, standardize: bool) -> Scaling:
    """Weighted means and standard deviations of the inputs; a constant input has a scale of one."""
    inputs = x.shape[1]
    if not standardize:
        return Scaling(np.zeros(inputs), np.ones(inputs))
    center, deviations = mean_and_deviation(x, weights)
    constant = is_rounding(center, deviations)
    for i in np.flatnonzero(constant & (deviations > 0)):
        warnings.warn(
            f"input {i} varies only by rounding error (mean {center[i]:.6g}, standard deviation "
            f"{deviations[i]:.3g}) and is treated as constant: subtract a common offset before the values "
            "are rounded, or drop the input",
            stacklevel=4,
        )
    return Scaling(center, np.where(constant, 1.0, deviations))


def rounded_up(count: int) -> int:
    """The next larger padded size, at most an eighth larger from 256 on; each size is compiled once."""
    step = max(_STEP, 2 ** int(np.log2(max(count, 1))) // 8)
    return -(-count // step) * step


def padded(x: np.ndarray, y: np.ndarray, weights: np.ndarray, *, evenly: bool = False):
    """The examples, padded with copies of weight zero of the first, or `evenly` of all.

    The share of the variance that a low rank loses counts rows without their weights. Copies of the first
    row could change it, copies of all hardly.
    """
    missing = rounded_up(len(y)) - len(y)
    copies = (
        np.arange(missing) * len(y) // missing if evenly and missing else np.zeros(missing, int)
    )
    x, y = (np.concatenate([part, part[copies]]) for part in (x, y))
    return x, y, np.concatenate([weights, np.zeros(missing)])


def predict_in_parts(predict: Callable[[np.ndarray], Any], x: np.ndarray) -> Any:
    """What `predict` returns for many points: an array or several, with an entry for each point.

    It sees some of the points at a time, padded with copies of the first of them.
    """

    def predict_part(points):
        missing = rounded_up(len(points)) - len(points)
        answers = predict(np.concatenate([points, np.repeat(points[:1], missing, axis=0)]))
        return jax.tree.map(lambda answer: np.asarray(answer)[: len(points)], answers)

    parts = [predict_part(x[begin : begin + _POINTS]) for begin in range(0, len(x), _POINTS)]
    return jax.tree.map(lambda *some: np.concatenate(some), *parts)


def random_subset(
    y: np.ndarray, size: int, random: np.random.RandomState, *, stratify: bool
) -> np.ndarray:
    """The indices of at most `size` random examples.

    With `stratify`, each class of `y` keeps its share, and at least two examples.
    """
    if len(y) <= size:
        return np.arange(len(y))
    if not stratify:
        return np.sort(random.choice(len(y), size, replace=False))
    indices = []
    for label in np.unique(y):
        members = np.flatnonzero(y == label)
        count = min(len(members), max(2, round(size * len(members) / len(y))))
        indices.append(random.choice(members, count, replace=False))
    return np.sort(np.concatenate(indices))
