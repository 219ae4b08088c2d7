"""The classifiers. They accept labels of any kind, any number of classes, and weights."""

import abc
import dataclasses
from typing import Any, Literal, Self

import jax
import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from ..kernels import AbstractKernel
from ..runtime import map_in_threads
from ..selection import METHODS
from ..validation import plain
from ._binary import EVIDENCE, MEAN_FIELD, Binary, Examples, Settings, tune
from ._class_weights import class_weights
from ._data import Scaling, as_numpy, padded, random_subset
from ._estimator import KERNELS, AbstractEstimator, KernelName, documented, require_relevance
from ._kernel_matrix import EXACT_ROWS, is_exact, rows_to_refine

MethodName = Literal[
    "span",
    "laplace",
    "laplace2",
    "gacv",
    "radius",
    "response",
    "cv",
    "press",
    "press-prior",
    "evidence",
]


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class AbstractClassifier(ClassifierMixin, AbstractEstimator):
    """A classifier whose probabilities agree with its labels.

    With more than two classes, each class has a machine that separates it from all others (one against the
    rest). Exactly one class is right, which turns the log odds `z_k` of the machines into
    `P(k) = exp(z_k) / sum_j exp(z_j)`.
    """

    kernel: KernelName | AbstractKernel = "rbf"
    class_weight: dict[Any, float] | Literal["balanced"] | None = None

    @abc.abstractmethod
    def _method(self) -> str:
        """What chooses the hyperparameters."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Choose all hyperparameters and fit the machine.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.
        y : array-like of shape (n_samples,)
            Labels of any type.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the examples. For the fit, a weight of two is the same as a repeated row. It is not
            the same for leave-one-out estimates, which leave out an example with all of its weight, but only
            one of two equal rows.

        Returns
        -------
        self
        """
        settings = self._settings()
        x, labels = self._validate_examples(X, y)
        check_classification_targets(labels)
        classes, codes = np.unique(labels, return_inverse=True)
        self.classes_: np.ndarray = classes
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes, but `y` has one class only: "
                f"{plain(self.classes_[0])!r} ({len(codes)} times)"
            )
        x, codes, weights = self._with_positive_weight(x, codes, sample_weight)
        missing = [self.classes_[k] for k in range(len(self.classes_)) if not np.any(codes == k)]
        if missing:
            raise ValueError(
                f"all examples of class {plain(missing[0])!r} have a `sample_weight` of zero"
            )
        weights = weights * class_weights(self.class_weight, self.classes_, codes)
        random = self._random()
        self.scaling_: Scaling = self._fit_scaling(x, weights)
        x = self.scaling_(x)
        indices = random_subset(codes, self.max_examples, random, stratify=True)
        positive = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        keys = jax.random.split(jax.random.key(random.randint(2**31 - 1)), len(positive))
        count = rows_to_refine(self.approximation, len(codes), self.max_examples)
        refines = count > 0 and settings.method not in (EVIDENCE, MEAN_FIELD)
        more = random_subset(codes, count, random, stratify=True) if refines else None

        def tune_one(number):
            signs = np.where(codes == positive[number], 1.0, -1.0)
            named = settings._replace(name=f"class {number}")
            parts = [
                _examples(settings, x[part], signs[part], weights[part])
                for part in (indices, slice(None), *([] if more is None else [more]))
            ]
            return tune(named, keys[number], *parts)

        with jax.enable_x64(True):
            if len(codes) <= EXACT_ROWS or len(positive) == 1:
                machines = map_in_threads(tune_one, len(positive), len(indices))
            else:  # one after the other: each uses all cores, and much of the memory
                machines = [tune_one(number) for number in range(len(positive))]
        self.machines_: list[Binary] = as_numpy(machines)
        self._conclude(self.machines_)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """The log odds of the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The points.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes, `ln P(second) / P(first)`. Otherwise a column for each class, with its log odds
            against all others.
        """
        odds = self._log_odds(X)
        return odds[:, 0] if odds.shape[1] == 1 else odds

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The points.

        Returns
        -------
        ndarray of shape (n_samples,)
            The labels.
        """
        odds = self._log_odds(X)
        codes = (odds[:, 0] > 0).astype(int) if odds.shape[1] == 1 else np.argmax(odds, axis=1)
        return self.classes_[codes]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probabilities of the classes; the predicted class has the largest.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The points.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            The probabilities, in the order of `classes_`.
        """
        odds = self._log_odds(X)
        if odds.shape[1] == 1:
            return np.column_stack([expit(-odds[:, 0]), expit(odds[:, 0])])
        return softmax(odds, axis=1)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithms of the probabilities, accurate even for small ones.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The points.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            The logarithms, in the order of `classes_`.
        """
        odds = self._log_odds(X)
        if odds.shape[1] == 1:
            return np.column_stack([log_expit(-odds[:, 0]), log_expit(odds[:, 0])])
        return log_softmax(odds, axis=1)

    @property
    def model_(self) -> Any:
        """The tuned `KernelMachine`, for standardized inputs; a list for more than two classes."""
        return _one_or_all([machine.search.model for machine in self._fitted_machines()])

    @property
    def criterion_(self) -> Any:
        """The minimum of the criterion; an array for more than two classes."""
        return _one_or_array([machine.criterion for machine in self._fitted_machines()])

    @property
    def evidence_(self) -> Any:
        """The log evidence in nats; an array for more than two classes.

        It is sampled with `method="evidence"`, and Laplace's approximation otherwise. The attribute does
        not exist for machines with a free offset and for mean field theory.
        """
        values = [machine.evidence for machine in self._fitted_machines()]
        if None in values:
            raise AttributeError("the evidence is not defined for this kind of machine")
        return _one_or_array(values)

    @property
    def rank_(self) -> Any:
        """The rank of the kernel matrix, None if it is exact; a list for more than two classes."""
        return _one_or_all([machine.rank for machine in self._fitted_machines()])

    @property
    def lost_variance_(self) -> Any:
        """The share of the prior's variance that the kernel matrix lacks; an array for several classes.

        It is zero if the matrix is exact.
        """
        return _one_or_array([machine.lost_variance for machine in self._fitted_machines()])

    @property
    def calibration_(self) -> Any:
        """Where probabilities come from; a list for more than two classes.

        - `"sigmoid"`: from the latent value, by a sigmoid that fits the leave-one-out values.
        - `"posterior"`: from the posterior.
        - `"recalibrated posterior"`: from its log odds, by a sigmoid that predicts left-out labels better.
        """
        return _one_or_all([machine.calibration for machine in self._fitted_machines()])

    @property
    def history_(self) -> Any:
        """The steps of the search, as a `jaxsvm.History`; a list for more than two classes."""
        return _one_or_all([machine.search.history for machine in self._fitted_machines()])

    @property
    def relevance_(self) -> np.ndarray:
        """`1 / lengthscale^2` of each input, normalized so that the largest is 1.

        For more than two classes, a matrix with one row for each class.
        """
        return _one_or_array(
            [require_relevance(machine.relevance) for machine in self._fitted_machines()]
        )

    def _settings(self) -> Settings:
        method = self._method()
        if isinstance(self.kernel, str) and self.kernel not in KERNELS:
            raise ValueError(
                f"`kernel` must be one of {', '.join(KERNELS)}, or a kernel from `jaxsvm.kernels`, not "
                f"{self.kernel!r}"
            )
        if not isinstance(self.kernel, str | AbstractKernel):
            raise TypeError(
                "`kernel` must be a name or a kernel from `jaxsvm.kernels`, not of type "
                f"{type(self.kernel).__name__}"
            )
        self._check_shared_parameters()
        counts = (self.restarts, self.max_iter)
        options = (self.tol, self.approximation, self._start_searches())
        return Settings(method, self.kernel, self.ard, *counts, *options)

    def _fitted_machines(self) -> list[Binary]:
        check_is_fitted(self)
        return self.machines_

    def _log_odds(self, X) -> np.ndarray:
        machines = self._fitted_machines()
        x = self.scaling_(self._validate_points(X))
        with jax.enable_x64(True):
            return np.column_stack([machine.log_odds(x) for machine in machines])


@documented
@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class BayesianSVC(AbstractClassifier):
    """A support vector classifier that chooses all its hyperparameters itself.

    Inputs are standardized. Amplitude, lengthscales, offset and C minimize a differentiable criterion
    (`jaxsvm.select`) within wide bounds (`_BOUNDS` in `jaxsvm/sklearn/_binary.py`), without
    cross-validation. Probabilities come from a sigmoid of the leave-one-out values, which the fit has in
    closed form; with `method="evidence"` they come from posterior samples (see `calibration_`).

    Parameters
    ----------
    method : str, default="span"
        What chooses the hyperparameters: "span", "laplace", "laplace2", "gacv", "radius", "response", "cv",
        "press" or "press-prior" (see `jaxsvm.selection.METHODS`), or "evidence", which ascends the exact
        evidence of a normalized hinge with a prior, by sampling, and predicts with the sampled posterior.
    {parameters}

    Attributes
    ----------
    classes_ : ndarray
        The labels, sorted.
    model_, relevance_, evidence_, criterion_, history_, calibration_, rank_, lost_variance_
        See the properties below.
    machines_ : list
        The machines behind them, with their fits, searches and sigmoids.
    scaling_ : tuple
        The `center` and `scale` of the inputs.
    n_iter_ : int
        The largest number of steps of a search.
    n_features_in_, feature_names_in_
        As in all estimators of scikit-learn.
    """

    method: MethodName = dataclasses.field(default="span", kw_only=False)

    def _method(self) -> str:
        names = (EVIDENCE, *METHODS)
        if self.method not in names:
            raise ValueError(f"`method` must be one of {', '.join(names)}, not {self.method!r}")
        return self.method


@documented
@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class LSSVC(AbstractClassifier):
    """A least-squares support vector classifier that chooses all its hyperparameters itself.

    Lengthscales and C minimize the leave-one-out squared error, which has a closed form, with a prior over
    the relevances of the inputs against over-fitting: [CT07, eq. 15]. Probabilities come from a sigmoid of
    the leave-one-out values.

    Parameters
    ----------
    prior : bool, default=True
        Whether to use the prior. It needs a kernel given by name, and is not used for any other.
    {parameters}

    Attributes
    ----------
    classes_, model_, relevance_, criterion_, history_, calibration_, rank_, lost_variance_
        As for `BayesianSVC`.
    machines_, scaling_, n_iter_
        As for `BayesianSVC`.
    """

    prior: bool = True

    def _method(self) -> str:
        return "press-prior" if self.prior and isinstance(self.kernel, str) else "press"


@documented
@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class MeanFieldGPC(AbstractClassifier):
    """A Gaussian process classifier by naive mean field theory that chooses its hyperparameters itself.

    They minimize the leave-one-out log loss, which follows from the solution: [OW00, eqs. 8.40-8.42].
    Probabilities are those of the posterior with a probit likelihood.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    classes_, model_, relevance_, criterion_, history_, calibration_, rank_, lost_variance_
        As for `BayesianSVC`.
    machines_, scaling_, n_iter_
        As for `BayesianSVC`.
    """

    max_examples: int = 1000

    def _method(self) -> str:
        return MEAN_FIELD


def _examples(settings: Settings, x, y, weights) -> Examples:
    if settings.method == EVIDENCE:  # sampling is compiled for each number of examples anyway
        return Examples(x, y, weights)
    evenly = not is_exact(settings.approximation, len(y))
    return Examples(*padded(x, y, weights, evenly=evenly))


def _one_or_all(values: list) -> Any:
    return values[0] if len(values) == 1 else values


def _one_or_array(values: list) -> Any:
    return values[0] if len(values) == 1 else np.array(values)
