"""Platt's sigmoid: from latent values, or from log odds, to log odds that fit left-out labels."""

from typing import NamedTuple

import numpy as np
from scipy.special import expit

_ITERATIONS = 100
_SMALLEST_SLOPE = 1e-3  # for values with unit variance: the order of predictions is never reversed
_PARAMETERS = 2


class Sigmoid(NamedTuple):
    """Log odds `slope * f + intercept` of a latent value f."""

    slope: float
    intercept: float

    def __call__(self, latent: np.ndarray) -> np.ndarray:
        """The log odds of latent values."""
        return self.slope * latent + self.intercept


def fit_sigmoid(left_out: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Sigmoid:
    """The sigmoid with the largest likelihood of the labels, given leave-one-out latent values.

    Platt, "Probabilistic outputs for support vector machines", 1999, with his regularized targets
    `(N+ + 1) / (N+ + 2)` and `1 / (N- + 2)`; his values come from cross-validation, these from leave-one-out,
    which needs no further fit. Newton's method on a convex function of two numbers.
    """
    positive, negative = weights[y > 0].sum(), weights[y < 0].sum()
    targets = np.where(y > 0, (positive + 1) / (positive + 2), 1 / (negative + 2))
    total = weights.sum()
    center = weights @ left_out / total
    unit = np.sqrt(weights @ (left_out - center) ** 2 / total)
    unit = unit if unit > 0 else 1.0
    design = np.column_stack([(left_out - center) / unit, np.ones_like(left_out)])

    def objective(coefficients):
        odds = design @ coefficients
        return weights @ (np.logaddexp(0, odds) - targets * odds)

    coefficients = np.array([0.0, np.log((positive + 1) / (negative + 1))])
    for _ in range(_ITERATIONS):
        p = expit(design @ coefficients)
        gradient = design.T @ (weights * (p - targets))
        curvature = (design * (weights * p * (1 - p))[:, None]).T @ design
        step = np.linalg.solve(curvature + 1e-12 * total * np.eye(2), gradient)
        size = 1.0
        while size > 1e-10 and objective(coefficients - size * step) > objective(coefficients):
            size /= 2
        coefficients = coefficients - size * step
        if np.max(np.abs(size * step)) < 1e-10:
            break
    slope, intercept = coefficients
    if slope < _SMALLEST_SLOPE:
        slope, intercept = _SMALLEST_SLOPE, np.log((positive + 1) / (negative + 1))
    return Sigmoid(float(slope / unit), float(intercept - slope * center / unit))


def recalibrated(left_out: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Sigmoid | None:
    """A sigmoid of leave-one-out log odds, or None if they are better as they are."""
    sigmoid = fit_sigmoid(left_out, y, weights)
    losses = [weights @ np.logaddexp(0, -y * odds) for odds in (left_out, sigmoid(left_out))]
    return sigmoid if losses[0] - losses[1] > _PARAMETERS else None
