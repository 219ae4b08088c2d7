"""Scores of predictions: elementwise functions of the truth and the prediction, `(y, f)`."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..losses import AbstractLoss

Score = Literal["error", "hinge", "smooth", "squared", "absolute"] | Callable[..., Any]


def error(y: Float[Array, " n"], f: Float[Array, " n"]) -> Float[Array, " n"]:
    """One if the sign of `f` is not the label, else zero; its derivative is zero everywhere.

    **Arguments:** `y`, labels or targets; `f`, predictions.

    **Returns:** one score for each.
    """
    return (y * jnp.where(f >= 0, 1.0, -1.0) < 0).astype(f.dtype)


def hinge(y: Float[Array, " n"], f: Float[Array, " n"]) -> Float[Array, " n"]:
    """`max(1 - y f, 0)`, an upper bound on the error with a kink at the margin.

    **Arguments:** `y`, labels or targets; `f`, predictions.

    **Returns:** one score for each.
    """
    return jnp.maximum(1 - y * f, 0)


def smooth_error(
    y: Float[Array, " n"], f: Float[Array, " n"], steepness: float = 5.0
) -> Float[Array, " n"]:
    """`1 / (1 + exp(steepness y f))`, a smooth version of the error.

    **Arguments:** `y`, labels or targets; `f`, predictions; `steepness`, how steep the step is.

    **Returns:** one score for each.
    """
    return jax.nn.sigmoid(-steepness * y * f)


def squared(y: Float[Array, " n"], f: Float[Array, " n"]) -> Float[Array, " n"]:
    """The squared error `(y - f)^2`.

    **Arguments:** `y`, labels or targets; `f`, predictions.

    **Returns:** one score for each.
    """
    return (y - f) ** 2


def absolute(y: Float[Array, " n"], f: Float[Array, " n"]) -> Float[Array, " n"]:
    """The absolute error `|y - f|`.

    **Arguments:** `y`, labels or targets; `f`, predictions.

    **Returns:** one score for each.
    """
    return jnp.abs(y - f)


_BY_NAME = {
    "error": error,
    "hinge": hinge,
    "smooth": smooth_error,
    "squared": squared,
    "absolute": absolute,
}
_OF_LABELS = ("error", "hinge", "smooth")


def by_name(score: Score) -> Callable[..., Array]:
    """Find a score by its name; a function of `(y, f)` is returned unchanged.

    **Arguments:** `score`: `"error"`, `"hinge"`, `"smooth"`, `"squared"`, `"absolute"`, or a function.

    **Returns:** a function of `(y, f)`.
    """
    if callable(score):
        return score
    if score not in _BY_NAME:
        raise ValueError(
            f"`score` must be one of {', '.join(_BY_NAME)}, or a function of (y, f), not {score!r}"
        )
    return _BY_NAME[score]


def check(score: Score, loss: AbstractLoss) -> None:
    """Raise if a score for labels is used with a regression loss.

    **Arguments:** `score`, a name or a function; `loss`, that of the model.
    """
    labels = [_BY_NAME[name] for name in _OF_LABELS]
    if by_name(score) in labels and not loss.is_classifier:
        raise ValueError(
            f"the score {score!r} is for labels, but {type(loss).__name__} is a regression loss: use "
            '"squared" or "absolute"'
        )
