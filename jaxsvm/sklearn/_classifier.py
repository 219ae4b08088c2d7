"""What all classifiers of this package have in common, whatever they are tuned by."""

import abc
from numbers import Real
from typing import Any

import jax
import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from ..kernels import AbstractKernel
from ..runtime import map_in_threads
from ..validation import plain
from ._base import AbstractEstimator, required
from ._binary import KERNELS, Binary, Examples, Settings, tune
from ._data import as_numpy, padded, subset
from ._searches import as_searches


class AbstractClassifier(ClassifierMixin, AbstractEstimator):
    """Labels of any kind, any number of classes, weights, and probabilities that agree with the labels.

    With more than two classes each has a machine of its own, which tells it from all others (one
    against the rest), and their log odds `z_k` are coupled by what they should be told together,
    that exactly one class is the right one: `P(k) = exp(z_k) / sum_j exp(z_j)`.
    """

    # set by the constructors of all classifiers
    kernel: Any
    ard: Any
    restarts: int
    class_weight: Any

    @abc.abstractmethod
    def _settings(self) -> Settings:
        """What the user said of the search, checked."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None):
        """Choose all hyperparameters, and fit the machine.

        **Arguments:** `X`, one row for each example; `y`, their labels, of any type; `sample_weight`, one
        number for each example. To the machine a weight of two is a repeated row; but where an example is
        left out, to choose hyperparameters or to learn how certain the machine may be, all of its weight
        is, and of two equal rows one would stay.

        **Returns:** the estimator itself.
        """
        settings = self._settings()
        x, labels = self._validated(X, y)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes, but `y` has one class only: "
                f"{plain(self.classes_[0])!r} ({len(codes)} times)"
            )
        x, codes, weights = self._counted(x, codes, sample_weight)
        missing = [self.classes_[k] for k in range(len(self.classes_)) if not np.any(codes == k)]
        if missing:
            raise ValueError(
                f"all examples of class {plain(missing[0])!r} have a `sample_weight` of zero"
            )
        weights = weights * self._class_weights(codes)
        random = self._random()
        self.scaling_ = self._scaling(x, weights)
        x = self.scaling_(x)
        places = subset(codes, self.max_examples, True, random)
        positive = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        keys = jax.random.split(jax.random.key(random.randint(2**31 - 1)), len(positive))

        def run_one(number):
            signs = np.where(codes == positive[number], 1.0, -1.0)
            chosen, every = (
                _examples(settings, x[part], signs[part], weights[part])
                for part in (places, slice(None))
            )
            named = settings._replace(name=f"class {number}")
            return tune(named, chosen, every, keys[number])

        with jax.enable_x64(True):
            machines = map_in_threads(run_one, len(positive), len(places))
        self.machines_: list[Binary] = as_numpy(machines)
        self._conclude([machine.search for machine in self.machines_])
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """The log odds of the classes.

        **Arguments:** `X`, one row for each point.

        **Returns:** of two classes, `ln P(second) / P(first)`, one number for each point; of more, one
        column for each class, the log odds of that class against all others.
        """
        odds = self._log_odds(X)
        return odds[:, 0] if odds.shape[1] == 1 else odds

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class.

        **Arguments:** `X`, one row for each point.

        **Returns:** one label for each point.
        """
        odds = self._log_odds(X)
        codes = (odds[:, 0] > 0).astype(int) if odds.shape[1] == 1 else np.argmax(odds, axis=1)
        return self.classes_[codes]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probabilities of the classes, of which the largest is that of the predicted class.

        **Arguments:** `X`, one row for each point.

        **Returns:** one row for each point, with one column for each of `classes_`.
        """
        odds = self._log_odds(X)
        if odds.shape[1] == 1:
            return np.column_stack([expit(-odds[:, 0]), expit(odds[:, 0])])
        return softmax(odds, axis=1)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithms of the probabilities, without loss where they are small.

        **Arguments:** `X`, one row for each point.

        **Returns:** one row for each point, with one column for each of `classes_`.
        """
        odds = self._log_odds(X)
        if odds.shape[1] == 1:
            return np.column_stack([log_expit(-odds[:, 0]), log_expit(odds[:, 0])])
        return log_softmax(odds, axis=1)

    @property
    def model_(self):
        """The tuned `KernelMachine`, in standardized inputs; a list with one for each of many classes."""
        models = [machine.search.model for machine in self._machines()]
        return models[0] if len(models) == 1 else models

    @property
    def criterion_(self):
        """The criterion at its end, which was minimized; one number, or one for each of many classes."""
        return _one_or_all([machine.criterion for machine in self._machines()])

    @property
    def evidence_(self):
        """The log evidence in nats; one number, or one for each of many classes.

        That of sampling with `method="evidence"`, otherwise Laplace's approximation. A machine with a
        free offset has none, nor has mean field theory: then this is not there.
        """
        found = [machine.evidence for machine in self._machines()]
        if None in found:
            raise AttributeError("a machine of this kind has no evidence")
        return _one_or_all(found)

    @property
    def history_(self):
        """What happened at each step of the search; a list with one for each of many classes."""
        found = [machine.search.history for machine in self._machines()]
        return found[0] if len(found) == 1 else found

    @property
    def relevance_(self) -> np.ndarray:
        """`1 / lengthscale^2` of each input, normalized so that the largest is 1.

        With more than two classes there is one row for each.
        """
        rows = [required(machine.relevance) for machine in self._machines()]
        return rows[0] if len(rows) == 1 else np.stack(rows)

    def _checked_settings(self, method: str) -> Settings:
        if isinstance(self.kernel, str) and self.kernel not in KERNELS:
            raise ValueError(
                f"`kernel` must be one of {', '.join(KERNELS)}, or a kernel of `jaxsvm.kernels`, not "
                f"{self.kernel!r}"
            )
        if not isinstance(self.kernel, str | AbstractKernel):
            name = type(self.kernel).__name__
            raise TypeError(
                f"`kernel` must be a name, or a kernel of `jaxsvm.kernels`, not a {name}"
            )
        self._check_ard(self.ard)
        counts = (self.restarts, self.max_iter)
        self._check_counts(restarts=self.restarts)
        searches = as_searches(self.checkpoint, self.seconds, self.verbose)
        return Settings(method, self.kernel, self.ard, *counts, self.tol, searches)

    def _machines(self) -> list[Binary]:
        if not hasattr(self, "machines_"):
            raise AttributeError(f"this {type(self).__name__} is not fitted yet: call `fit` first")
        return self.machines_

    def _log_odds(self, X) -> np.ndarray:
        check_is_fitted(self)
        x = self.scaling_(self._points(X))
        with jax.enable_x64(True):
            return np.column_stack([machine.log_odds(x) for machine in self.machines_])

    def _class_weights(self, codes):
        if self.class_weight is None:
            return 1.0
        if isinstance(self.class_weight, dict):
            unknown = [label for label in self.class_weight if label not in self.classes_]
            if unknown:
                raise ValueError(
                    f"`class_weight` has {plain(unknown[0])!r}, which is not a class of `y`"
                )
            for label, weight in self.class_weight.items():
                number = isinstance(weight, Real) and not isinstance(weight, bool)
                if not (number and 0 < float(weight) < np.inf):
                    raise ValueError(
                        f"`class_weight` of {plain(label)!r} must be a positive number, but is "
                        f"{plain(weight)!r}"
                    )
        elif not (isinstance(self.class_weight, str) and self.class_weight == "balanced"):
            raise ValueError(
                '`class_weight` must be None, "balanced" or a dictionary of a weight for each class, not '
                f"{self.class_weight!r}"
            )
        each = compute_class_weight(
            self.class_weight, classes=self.classes_, y=self.classes_[codes]
        )
        return each[codes]


def _examples(settings: Settings, x, y, weights) -> Examples:
    if settings.is_random:
        return Examples(x, y, weights)  # chains are compiled for each number of examples anyway
    return Examples(*padded(x, y, weights))


def _one_or_all(values: list) -> Any:
    return values[0] if len(values) == 1 else np.array(values)
