"""How good predicted probabilities are: scores, and reliability by bins.

Labels are -1 and +1, and predictions are `P(y = +1)`, one for each label.
"""

from typing import Any, NamedTuple

import numpy as np


class Reliability(NamedTuple):
    """Predictions by bins of equal width over [0, 1]; NaN in the first two where a bin is empty.

    `prediction` is the mean prediction in each bin, `frequency` the share of labels +1 there, `counts` the
    number of predictions.
    """

    prediction: np.ndarray
    frequency: np.ndarray
    counts: np.ndarray


def log_loss(y: Any, p: Any) -> float:
    """The mean of `-ln P(y_i)`, in nats: zero is perfect, `ln 2` is what one half for all gets.

    Predictions of the wrong label with certainty would make it infinite, so all are first moved into
    `[eps, 1 - eps]`, with the rounding unit `eps = 2.2e-16` as scikit-learn has it (for
    predictions in single precision its own).

    **Arguments:** `y`, labels -1 and +1; `p`, predictions of +1.

    **Returns:** a number.
    """
    positive, p = _checked(y, p)
    eps = np.finfo(p.dtype).eps
    p = np.clip(p, eps, 1 - eps).astype(float)
    return float(-np.mean(np.where(positive, np.log(p), np.log1p(-p))))


def brier_score(y: Any, p: Any) -> float:
    """The mean of `(p_i - t_i)^2` with `t_i` one for the label +1 and zero for -1.

    Zero is perfect, one quarter is what one half for all gets. Brier, "Verification of forecasts
    expressed in terms of probability".

    **Arguments:** `y`, labels -1 and +1; `p`, predictions of +1.

    **Returns:** a number.
    """
    positive, p = _checked(y, p)
    return float(np.mean((p.astype(float) - positive) ** 2))


def reliability(y: Any, p: Any, bins: int = 10) -> Reliability:
    """Mean prediction and observed frequency of the label +1 in bins of equal width.

    A bin holds its left end, and the last one both ends.

    **Arguments:** `y`, labels -1 and +1; `p`, predictions of +1; `bins`, how many.

    **Returns:** a `Reliability`.
    """
    positive, p = _checked(y, p)
    if not isinstance(bins, int | np.integer) or isinstance(bins, bool) or bins < 1:
        raise ValueError(f"`bins` must be a positive integer, but is {bins!r}")
    p = p.astype(float)
    # by the edges themselves: p * bins would round 0.29 * 100 into the bin before its own
    places = np.searchsorted(np.arange(1, bins) / bins, p, side="right")
    counts = np.bincount(places, minlength=bins)
    divisor = np.where(counts > 0, counts, np.nan)
    prediction = np.bincount(places, weights=p, minlength=bins) / divisor
    frequency = np.bincount(places, weights=positive, minlength=bins) / divisor
    return Reliability(prediction, frequency, counts)


def expected_calibration_error(y: Any, p: Any, bins: int = 10) -> float:
    """`sum_b n_b / n |frequency_b - prediction_b|` over bins of equal width, with `n_b` their counts.

    Naeini, Cooper and Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning".

    **Arguments:** `y`, labels -1 and +1; `p`, predictions of +1; `bins`, how many.

    **Returns:** a number between zero and one.
    """
    prediction, frequency, counts = reliability(y, p, bins)
    return float(np.nansum(counts * np.abs(frequency - prediction)) / counts.sum())


def _checked(y: Any, p: Any) -> tuple[np.ndarray, np.ndarray]:
    """Which labels are +1, and the predictions in their own precision."""
    labels, predictions = np.asarray(y), np.asarray(p)
    if predictions.dtype.kind not in "fiu":
        raise TypeError(f"`p` must be probabilities, but is {predictions.dtype}")
    if predictions.dtype.kind != "f":
        predictions = predictions.astype(float)
    if labels.ndim != 1 or labels.shape != predictions.shape:
        raise ValueError(
            f"`y` and `p` must be vectors of the same length, but have shapes {labels.shape} and "
            f"{predictions.shape}"
        )
    if not len(labels):
        raise ValueError("`y` is empty")
    values = set(np.unique(labels).tolist())
    if not values <= {-1, 1}:
        hint = ": use `2 * y - 1`" if values <= {0, 1} else f", but `y` holds {sorted(values)[:5]}"
        raise ValueError(f"labels must be -1 and +1{hint}")
    if not np.all((predictions >= 0) & (predictions <= 1)):
        raise ValueError(
            "`p` must be probabilities of the label +1, between 0 and 1, but "
            + (
                "holds NaN"
                if np.isnan(predictions).any()
                else f"reaches from {predictions.min():g} to {predictions.max():g}"
            )
        )
    return labels > 0, predictions
