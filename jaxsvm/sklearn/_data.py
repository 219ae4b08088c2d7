"""Data on their way into a machine: standardized, in sizes that repeat, not too many."""

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._moments import is_rounding, mean_and_deviation

_STEP = 32


def as_numpy(tree: Any) -> Any:
    """The same structure with NumPy's arrays: they keep double precision where JAX's mode is single."""

    def convert(leaf):
        numeric = isinstance(leaf, jax.Array) and not jnp.issubdtype(
            leaf.dtype, jax.dtypes.extended
        )
        return np.asarray(leaf) if numeric else leaf

    return jax.tree.map(convert, tree)


class Scaling(NamedTuple):
    """Inputs become `(x - center) / scale`."""

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
    for place in np.flatnonzero(constant & (deviations > 0)):
        warnings.warn(
            f"input {place} differs by no more than rounding, with a standard deviation of "
            f"{deviations[place]:.3g} around {center[place]:.6g}, and counts as constant: subtract a common "
            "number before it is rounded, or leave it out",
            stacklevel=4,
        )
    return Scaling(center, np.where(constant, 1.0, deviations))


def rounded_up(count: int) -> int:
    """The next of few sizes, at most an eighth larger from 256 on: each size is compiled for once."""
    step = max(_STEP, 2 ** int(np.log2(max(count, 1))) // 8)
    return -(-count // step) * step


def padded(x: np.ndarray, y: np.ndarray, weights: np.ndarray):
    """The examples and some that do not count: repetitions of the first, with a weight of zero."""
    missing = rounded_up(len(y)) - len(y)
    x, y = (np.concatenate([part, np.repeat(part[:1], missing, axis=0)]) for part in (x, y))
    return x, y, np.concatenate([weights, np.zeros(missing)])


def padded_points(x: np.ndarray) -> np.ndarray:
    """Points to predict, with repetitions of the first behind them."""
    return np.concatenate([x, np.repeat(x[:1], rounded_up(len(x)) - len(x), axis=0)])


def subset(y: np.ndarray, most: int, classes: bool, random: np.random.RandomState) -> np.ndarray:
    """The places of at most so many examples, drawn at random; of each class its share, at least two."""
    if len(y) <= most:
        return np.arange(len(y))
    if not classes:
        return np.sort(random.choice(len(y), most, replace=False))
    places = []
    for label in np.unique(y):
        own = np.flatnonzero(y == label)
        count = min(len(own), max(2, round(most * len(own) / len(y))))
        places.append(random.choice(own, count, replace=False))
    return np.sort(np.concatenate(places))
