"""Calibration of predictions: scores and reliability of probabilities, and coverage of intervals.

Labels are -1 and +1, and predictions are `P(y = +1)`, one for each label. Coverage is for regressions.
"""

from typing import Any, NamedTuple

import numpy as np

from .posteriors import AbstractPosterior
from .validation import plain, require_unmasked


class Reliability(NamedTuple):
    """Predictions in bins of equal width over [0, 1].

    `prediction` is the mean prediction in each bin and `frequency` the fraction of labels +1, both NaN for an
    empty bin; `counts` is the number of predictions.
    """

    prediction: np.ndarray
    frequency: np.ndarray
    counts: np.ndarray


class Coverage(NamedTuple):
    """How often central intervals hold a new target.

    `levels` are the probabilities of the intervals, `shares` the fractions of targets inside, with their
    binomial `standard_errors`.
    """

    levels: np.ndarray
    shares: np.ndarray
    standard_errors: np.ndarray


def log_loss(y: Any, p: Any) -> float:
    """The mean of `-ln P(y_i)`, in nats: zero is perfect, always predicting 0.5 scores `ln 2`.

    A probability of zero for the right label would make it infinite, so predictions are first clipped to
    `[eps, 1 - eps]`, with the rounding unit `eps` of their precision, as in scikit-learn (2.2e-16 in double
    precision).

    **Arguments:** `y`, labels -1 and +1; `p`, predictions of +1.

    **Returns:** a number.

    **Example:**

    >>> round(jsvm.calibration.log_loss([-1, 1], [0.5, 0.5]), 4)
    0.6931
    """
    positive, p = _checked(y, p)
    eps = np.finfo(p.dtype).eps
    p = np.clip(p, eps, 1 - eps).astype(float)
    return float(-np.mean(np.where(positive, np.log(p), np.log1p(-p))))


def brier_score(y: Any, p: Any) -> float:
    """The mean of `(p_i - t_i)^2` with `t_i` one for the label +1 and zero for -1.

    Zero is perfect, always predicting 0.5 scores one quarter. Brier, "Verification of forecasts expressed
    in terms of probability".

    **Arguments:** `y`, labels -1 and +1; `p`, predictions of +1.

    **Returns:** a number.

    **Example:**

    >>> jsvm.calibration.brier_score([-1, 1], [0.5, 0.5])
    0.25
    """
    positive, p = _checked(y, p)
    return float(np.mean((p.astype(float) - positive) ** 2))


def reliability(y: Any, p: Any, bins: int = 10) -> Reliability:
    """Mean prediction and observed frequency of the label +1 in bins of equal width.

    Bins include their left edges, and the last one also its right edge.

    **Arguments:** `y`, labels -1 and +1; `p`, predictions of +1; `bins`, the number of bins.

    **Returns:** a `Reliability`.

    **Example:**

    >>> jsvm.calibration.reliability([-1, 1, 1, 1], [0.1, 0.2, 0.7, 0.9], bins=2).counts.tolist()
    [2, 2]
    """
    positive, p = _checked(y, p)
    if not isinstance(bins, int | np.integer) or isinstance(bins, bool) or bins < 1:
        raise ValueError(f"`bins` must be a positive integer, but is {plain(bins)!r}")
    p = p.astype(float)
    # compared with the edges, since floor(p * bins) is one bin too low for p = 0.29 and 100 bins
    numbers = np.searchsorted(np.arange(1, bins) / bins, p, side="right")
    counts = np.bincount(numbers, minlength=bins)
    divisor = np.where(counts > 0, counts, np.nan)
    prediction = np.bincount(numbers, weights=p, minlength=bins) / divisor
    frequency = np.bincount(numbers, weights=positive, minlength=bins) / divisor
    return Reliability(prediction, frequency, counts)


def expected_calibration_error(y: Any, p: Any, bins: int = 10) -> float:
    """`sum_b n_b / n |frequency_b - prediction_b|` over bins of equal width, with `n_b` their counts.

    Naeini, Cooper and Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning".

    **Arguments:** `y`, labels -1 and +1; `p`, predictions of +1; `bins`, the number of bins.

    **Returns:** a number between zero and one.

    **Example:**

    >>> round(jsvm.calibration.expected_calibration_error([-1, 1, 1, 1], [0.1, 0.3, 0.7, 0.9], bins=2), 4)
    0.25
    """
    prediction, frequency, counts = reliability(y, p, bins)
    return float(np.nansum(counts * np.abs(frequency - prediction)) / counts.sum())


def coverage(posterior: AbstractPosterior, x: Any, y: Any, levels: Any = None) -> Coverage:
    """The fraction of new targets inside the central interval of each level, which should equal the level.

    A target is inside if `|2 F(y) - 1| <= level`, with F its predictive distribution function. The intervals
    are those of `posterior.interval`, for all levels in one pass. Gneiting, Balabdaoui and Raftery,
    "Probabilistic forecasts, calibration and sharpness".

    **Arguments:**

    - `posterior`: the posterior of a regression, from `jaxsvm.laplace` or `jaxsvm.sample`.
    - `x`, `y`: new points, one row each, and their targets. Do not use the training data.
    - `levels`: probabilities between zero and one; by default 0.05, 0.1, ..., 0.95.

    **Returns:** a `Coverage`. Its standard errors use Laplace's rule of succession, since the plain standard
    error of a fraction of zero or one is zero; they assume independent targets.

    **Example:**

    >>> regression = jsvm.KernelMachine(jsvm.kernels.RBF(), jsvm.losses.Quadratic(0.1))
    >>> line = jsvm.laplace(jsvm.fit(regression, x, x[:, 0]))
    >>> jsvm.calibration.coverage(line, x, x[:, 0], levels=[0.5, 0.9]).shares.shape
    (2,)
    """
    levels = _as_levels(levels)
    below = np.asarray(as_posterior(posterior).cumulative(x, y), float)
    count = len(below)
    inside = np.sum(np.abs(2 * below - 1)[None, :] <= levels[:, None], axis=1)
    smoothed = (inside + 1) / (count + 2)
    return Coverage(levels, inside / count, np.sqrt(smoothed * (1 - smoothed) / count))


def as_posterior(posterior: Any) -> AbstractPosterior:
    """The argument, if it is a posterior; raises a `TypeError` otherwise.

    **Arguments:** `posterior`, from `jaxsvm.laplace` or `jaxsvm.sample`.

    **Returns:** the posterior.
    """
    if not isinstance(posterior, AbstractPosterior):
        raise TypeError(
            "`posterior` must be the result of `jaxsvm.laplace` or `jaxsvm.sample`, not a "
            f"{type(posterior).__name__}"
        )
    return posterior


def _as_levels(levels: Any) -> np.ndarray:
    if levels is None:
        return np.arange(1, 20) / 20
    array = np.atleast_1d(np.asarray(levels))
    if array.dtype.kind not in "fiu":
        raise TypeError(f"`levels` must be probabilities, but is {array.dtype}")
    if array.ndim != 1 or not len(array):
        raise ValueError(f"`levels` must be a list of probabilities, but has shape {array.shape}")
    if not np.all((array > 0) & (array < 1)):
        raise ValueError(
            f"`levels` must be between zero and one, both excluded, but is {array.tolist()}"
        )
    return array.astype(float)


def _checked(y: Any, p: Any) -> tuple[np.ndarray, np.ndarray]:
    """Whether each label is +1, and the predictions in their given precision."""
    require_unmasked(y, "`y`")
    require_unmasked(p, "`p`")
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
                else f"ranges from {predictions.min():g} to {predictions.max():g}"
            )
        )
    return labels > 0, predictions
