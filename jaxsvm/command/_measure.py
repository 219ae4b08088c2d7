"""What rows that were held out say of an estimator."""

from typing import Any

import numpy as np

from .. import calibration
from .._moments import mean_and_deviation


def measure(estimator: Any, is_classes: bool, x, y, y_train) -> dict[str, str]:
    """What the held-out rows say, beside what is easily had."""
    if not is_classes:
        mean = estimator.predict(x)
        error, trivial = (
            _size(y - mean),
            _size(y - mean_and_deviation(y_train, np.ones(len(y_train)))[0]),
        )
        low, high = estimator.predict_interval(x)
        return {
            "test error": f"root mean square {error:.4g} (of the mean of all: {trivial:.4g})",
            "R squared": f"{1 - (error / trivial) ** 2:.3f}" if trivial > 0 else "not defined",
            "95 % intervals": f"hold {np.mean((low <= y) & (y <= high)):.1%} of the targets held out",
            "noise": f"standard deviation {estimator.noise_std_:.4g}",
            "log evidence": f"{estimator.evidence_:.2f} nats (Laplace)",
        }
    p = estimator.predict_proba(x)
    codes = np.searchsorted(estimator.classes_, y)
    labels, counts = np.unique(y_train, return_counts=True)
    trivial = np.mean(y != labels[np.argmax(counts)])
    loss = -np.mean(np.log(np.clip(p[np.arange(len(y)), codes], 1e-15, 1)))
    frequencies = counts / counts.sum()
    base = -np.mean(np.log(frequencies[np.searchsorted(labels, y)]))
    certain = p.max(axis=1)
    right = np.where(np.argmax(p, axis=1) == codes, 1.0, -1.0)
    gap = calibration.expected_calibration_error(right, certain)
    found = {
        "test error": f"{np.mean(right < 0):.2%} (of the most frequent class: {trivial:.2%})",
        "log loss": f"{loss:.3f} nats (of class frequencies: {base:.3f})",
        "calibration": f"certainty {certain.mean():.1%}, right {np.mean(right > 0):.1%}, "
        f"calibration error {gap:.3f}",
    }
    if hasattr(estimator, "evidence_"):
        values = np.atleast_1d(estimator.evidence_)
        found["log evidence"] = ", ".join(f"{value:.2f}" for value in values) + " nats"
    return found


def _size(errors: np.ndarray) -> float:
    """Their root mean square, in units of the largest, so that no square overflows or underflows."""
    largest = float(np.abs(errors).max())
    return largest * float(np.sqrt(np.mean((errors / largest) ** 2))) if largest > 0 else 0.0
