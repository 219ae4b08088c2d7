"""Preparation of data for a machine: standardization, padding to few sizes, random subsets."""

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..numerics import is_rounding, mean_and_deviation

_STEP = 32


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


def padded(x: np.ndarray, y: np.ndarray, weights: np.ndarray):
    """The examples, padded with copies of the first that have weight zero."""
    missing = rounded_up(len(y)) - len(y)
    x, y = (np.concatenate([part, np.repeat(part[:1], missing, axis=0)]) for part in (x, y))
    return x, y, np.concatenate([weights, np.zeros(missing)])


def padded_points(x: np.ndarray) -> np.ndarray:
    """Points to predict, padded with copies of the first."""
    return np.concatenate([x, np.repeat(x[:1], rounded_up(len(x)) - len(x), axis=0)])


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
