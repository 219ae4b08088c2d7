"""What classifiers and regressors have in common: parameters, data that are checked, words of warning."""

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, validate_data

from .._machine import KernelMachine
from .._relevance import lengthscales, relevance
from .._results import RESULTS
from ..runtime import require_own_process
from ..validation import check_count, check_number, require_unmasked
from ._data import Scaling, scaling

MOST_EXAMPLES = 20_000  # of which the kernel matrix takes 3.2 GB


class AbstractEstimator(BaseEstimator):
    """Validation shared by all estimators."""

    # set by the constructors of all estimators
    standardize: bool
    max_iter: int
    tol: float
    max_examples: int
    random_state: Any
    seconds: float | None
    checkpoint: Any
    verbose: bool
    n_features_in_: int

    def _check_counts(self, **counts: Any) -> None:
        counts |= {"max_iter": self.max_iter, "max_examples": self.max_examples}
        for name, value in counts.items():
            check_count(name, value)
        check_number("tol", self.tol, above=0)
        if self.max_examples < 10:
            raise ValueError(f"`max_examples` must be at least 10, but is {self.max_examples}")

    def _check_ard(self, ard: Any) -> None:
        if not (isinstance(ard, bool) or (isinstance(ard, str) and ard == "auto")):
            raise ValueError(f'`ard` must be True, False or "auto", not {ard!r}')

    def _validated(self, X, y, **options) -> tuple[np.ndarray, np.ndarray]:
        require_unmasked(X, "`X`")
        require_unmasked(y, "`y`")
        require_own_process()
        x, y = map(np.asarray, validate_data(self, X, y, dtype=np.float64, **options))
        if len(y) < 2:
            raise ValueError(f"{type(self).__name__} needs more than one sample, but n_samples = 1")
        if len(y) > MOST_EXAMPLES:
            raise ValueError(
                f"{len(y)} examples are too many: their kernel matrix would take "
                f"{8e-9 * len(y) ** 2:.0f} GB. Fit to a random part of at most {MOST_EXAMPLES}"
            )
        return x, y

    def _points(self, X) -> np.ndarray:
        require_unmasked(X, "`X`")
        require_own_process()
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False))

    def _counted(self, x, y, sample_weight) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The examples that count: those of a positive weight."""
        require_unmasked(sample_weight, "`sample_weight`")
        weights = _check_sample_weight(
            sample_weight, x, dtype=np.float64, ensure_non_negative=True, copy=True
        )
        counts = weights > 0
        if counts.sum() < 2:
            raise ValueError("at least two examples must have a positive `sample_weight`")
        return x[counts], y[counts], weights[counts]

    def _scaling(self, x, weights) -> Scaling:
        found = scaling(x, weights, self.standardize)
        if not np.all(np.isfinite(found.center)) or not np.all(np.isfinite(found.scale)):
            raise ValueError("the inputs are too large: their variance is not a finite number")
        return found

    def _random(self) -> np.random.RandomState:
        if self.checkpoint is not None and not isinstance(self.random_state, int | np.integer):
            raise ValueError(
                "`checkpoint` needs an integer `random_state`: otherwise a repeated fit is another one, "
                "which cannot continue an interrupted one"
            )
        return check_random_state(self.random_state)

    def _conclude(self, searches: list) -> None:
        """The number of steps, and a warning where one search ended before its end."""
        self.n_iter_ = max(1, *(int(np.max(np.asarray(s.history.steps))) for s in searches))
        codes = [RESULTS(int(np.asarray(s.results)[s.best])) for s in searches]
        out_of_time = codes.count(RESULTS.time_limit)
        unfinished = codes.count(RESULTS.iteration_limit) + out_of_time
        if unfinished:
            which = "" if len(codes) == 1 else f" of {unfinished} of {len(codes)} classes"
            end, more = f"`max_iter={self.max_iter}`", "a larger `max_iter`"
            if out_of_time:
                end, more = f"`seconds={self.seconds:g}`", "more time"
            warnings.warn(
                f"the search for hyperparameters{which} was ended by {end} before it had settled: what "
                f"was found is used, but {more} may find better ones",
                ConvergenceWarning,
                stacklevel=3,
            )


def relevances(model: KernelMachine, inputs: int) -> np.ndarray | None:
    """`1 / lengthscale^2` of each input, normalized so that the largest is 1; None without lengthscales."""
    found = list(lengthscales(model).values())
    if len(found) != 1 or found[0].shape not in ((), (inputs,)):
        return None
    return relevance(model) if found[0].ndim else np.ones(inputs)


def required(relevance: np.ndarray | None) -> np.ndarray:
    """The relevances, or an `AttributeError` where the kernel has none."""
    if relevance is None:
        raise AttributeError("the kernel does not have one lengthscale, or one for each input")
    return relevance
