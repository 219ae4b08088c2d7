"""Validation of data: inputs, targets and weights."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from ..runtime import count_row_shards, is_traced, require_own_process


def require_unmasked(value: Any, name: str) -> None:
    """Raise if an array has masked entries, which conversion would unmask.

    **Arguments:** `value`, an array or a list of arrays; `name`, for the message.
    """
    parts = [value]
    if isinstance(value, list | tuple):
        parts = [part for part in value if isinstance(part, np.ma.MaskedArray)]
    masked = sum(int(np.ma.count_masked(part)) for part in parts if np.ma.isMaskedArray(part))
    if masked:
        raise ValueError(
            f"{name} has {masked} masked entr{'ies' if masked > 1 else 'y'}: remove or impute them, or use "
            "`.filled(...)`"
        )


def as_inputs(x: Any, name: str = "x") -> Float[Array, "n d"]:
    """Convert inputs to a floating-point matrix with one row for each example.

    **Arguments:** `x`, anything that NumPy reads as a matrix; `name`, for messages.

    **Returns:** the matrix, finite and not empty.
    """
    array = _as_float(x, name)
    if array.ndim == 1:
        raise ValueError(
            f"`{name}` must be a matrix with one row for each example, but has shape {array.shape}; "
            f"for a single input use `{name}[:, None]`, for a single example `{name}[None, :]`"
        )
    if array.ndim != 2:
        raise ValueError(
            f"`{name}` must be a matrix (examples x inputs), but has shape {array.shape}"
        )
    if array.shape[0] == 0 or array.shape[1] == 0:
        raise ValueError(f"`{name}` is empty: it has shape {array.shape}")
    _require_finite(array, name)
    return array


def as_points(x: Any, examples: Float[Array, "n d"]) -> Float[Array, "m d"]:
    """Convert new points to a floating-point matrix with as many inputs as the examples of a fit.

    **Arguments:** `x`, one row for each point; `examples`, the inputs of the fit.

    **Returns:** the matrix.
    """
    points = as_inputs(x)
    if points.shape[1] != examples.shape[1]:
        raise ValueError(
            f"the machine was fitted on {examples.shape[1]} inputs, but `x` has {points.shape[1]}"
        )
    return points


def as_targets(y: Any, examples: int, *, labels: bool, both: bool = True) -> Float[Array, " n"]:
    """Convert targets or labels to a floating-point vector.

    **Arguments:** `y`, one entry for each example; `examples`, their number; `labels`, whether `y` must
    hold only -1 and +1; `both`, whether both of these must occur.

    **Returns:** the vector, finite.
    """
    array = _as_float(y, "y")
    if array.ndim != 1:
        raise ValueError(
            f"`y` must be a vector with one entry for each example, but has shape {array.shape}"
        )
    if array.shape[0] != examples:
        raise ValueError(f"`x` has {examples} rows, but `y` has {array.shape[0]} entries")
    _require_finite(array, "y")
    if labels and not is_traced(array):
        values = _different_values(array)
        if values == {0.0, 1.0}:
            raise ValueError("labels must be -1 and +1, but are 0 and 1: use `2 * y - 1`")
        if not values <= {-1.0, 1.0}:
            few = sorted(values)[:5]
            raise ValueError(
                f"labels must be -1 and +1, but `y` holds {few}{' ...' if len(values) > 5 else ''}; "
                "for real-valued targets choose a regression loss such as `losses.SoftInsensitive`"
            )
        if both and len(values) == 1:
            raise ValueError(
                f"all labels are {values.pop():+.0f}: a classifier needs examples of both classes"
            )
    return array


def as_weights(weights: Any, examples: int, dtype: Any) -> Float[Array, " n"]:
    """Convert weights of examples to a vector: finite, none negative, at least one positive.

    **Arguments:** `weights`, one for each example, or None for ones; `examples`, their number; `dtype`, of
    the result.

    **Returns:** the vector.
    """
    if weights is None:
        return jnp.ones(examples, dtype)
    array = _as_float(weights, "weights")
    if array.shape != (examples,):
        raise ValueError(f"`weights` must have shape ({examples},), but has {array.shape}")
    _require_finite(array, "weights")
    if not is_traced(array):
        if count_where(array, lambda values: values < 0):
            raise ValueError("`weights` must not be negative")
        if not count_where(array, lambda values: values > 0):
            raise ValueError("`weights` are all zero: at least one must be positive")
    return array.astype(dtype)


def count_where(array: Shaped[Array, "..."], condition: Callable[[Any], Any]) -> int:
    """The number of entries that meet a condition.

    With NumPy, which also works while something else is traced; if the array is divided among devices, there.

    **Arguments:** `array`; `condition`, a function of an array that works for NumPy and JAX.

    **Returns:** a number.
    """
    if count_row_shards(array) == 1:
        return int(np.sum(condition(np.asarray(array))))
    with jax.ensure_compile_time_eval():
        return int(jnp.sum(condition(array)))


def _as_float(value: Any, name: str) -> Float[Array, "..."]:
    require_own_process()
    if not isinstance(value, jax.Array):
        require_unmasked(value, f"`{name}`")
        try:
            value = np.asarray(value)
        except ValueError as error:  # rows of different lengths
            raise TypeError(f"`{name}` cannot be read as an array of numbers: {error}") from error
        if value.dtype.kind not in "biufc":
            raise TypeError(f"`{name}` cannot be read as an array of numbers: it is {value.dtype}")
        _require_range(value, name)
    array = jnp.asarray(value)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise TypeError(f"`{name}` must be real, but is {array.dtype}")
    if not jnp.issubdtype(array.dtype, jnp.floating):
        array = array.astype(jnp.result_type(float))  # integers and booleans
    return array


def _require_range(value: np.ndarray, name: str) -> None:
    """Raise if JAX's precision would turn finite numbers into infinity, or all numbers into zero."""
    kept = jax.dtypes.canonicalize_dtype(value.dtype)
    if value.dtype.kind != "f" or kept == value.dtype or not value.size:
        return
    sizes = np.abs(value[np.isfinite(value)])
    if not sizes.size or sizes.max() == 0:
        return
    if sizes.max() > np.finfo(kept).max or sizes.max() < np.finfo(kept).tiny:
        raise ValueError(
            f"`{name}` has numbers of size {sizes.max():.3g}, which {kept} cannot hold: change their unit, "
            "or use double precision (`jax.config.update('jax_enable_x64', True)`)"
        )


def _require_finite(array, name):
    if is_traced(array):
        return
    bad = count_where(array, lambda values: ~(abs(values) < np.inf))
    if bad:
        raise ValueError(
            f"`{name}` holds {bad} NaN or infinite value{'s' if bad > 1 else ''}: remove or impute them"
        )


def _different_values(y: Array) -> set[float]:
    """The values that occur; if the array is divided among devices, -1, 0, 1 and the extremes of the rest."""
    if count_row_shards(y) == 1:
        return set(np.unique(np.asarray(y)).tolist())
    values = {v for v in (-1.0, 0.0, 1.0) if count_where(y, lambda y, v=v: y == v)}
    if count_where(y, lambda y: (y != 0) & (abs(y) != 1)):
        with jax.ensure_compile_time_eval():
            values |= {float(jnp.min(y)), float(jnp.max(y))}
    return values
