"""Support vector regression with error bars and no hyperparameters to set."""

import dataclasses
from typing import Any, Literal, NamedTuple, Self, overload

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from .. import (
    History,
    KernelMachine,
    LaplacePosterior,
    Selection,
    fit,
    free_parameters,
    freeze,
    frozen,
    laplace,
    parameters,
    regression,
    select,
)
from ..criteria import LaplaceEvidence, linear_response
from ..kernels import AbstractKernel, Constant
from ..losses import Quadratic
from ..optimizers import lbfgs
from ..regression import center_and_scale
from ..runtime import jit
from ..selection.stopping import SmallChange, SmallGradient
from ._data import Scaling, as_numpy, padded, predict_in_parts, random_subset
from ._estimator import (
    KERNELS,
    REFINED,
    AbstractEstimator,
    KernelName,
    Searches,
    documented,
    one_lengthscale_each,
    relevances,
    require_relevance,
)
from ._kernel_matrix import (
    is_exact,
    low_rank_for_search,
    matrix_of,
    represented,
    rows_to_refine,
)

_LOSSES = ("soft", "quadratic")
_EVIDENCE = LaplaceEvidence()
_OPTIMIZER = lbfgs(window=5)  # as in `regression.adapt`: it steps across jumps of the evidence
# Inputs and targets are standardized. With repeated rows, or targets without noise, the evidence grows
# without limit as the noise vanishes, until factorizations fail.
_BOUNDS = {
    "loss.C": (1e-4, 1e4),
    "loss.epsilon": (1e-4, 10.0),
    "loss.noise_variance": (1e-8, 1e2),
    "kernel.left.lengthscale": (1e-2, 1e3),
}


Examples = tuple[np.ndarray, np.ndarray, np.ndarray]  # inputs and targets, standardized; weights


class Regression(NamedTuple):
    """A tuned machine: its posterior, and the search that tuned it.

    `score` compares machines for the same examples, in nats: n times the logarithm of the mean absolute
    leave-one-out error, which is minus the log likelihood of Laplacian noise of that width.
    `noise_deviation` is the standard deviation of the noise in standardized targets; `relevance` has an
    entry for each input. `rank` is that of the kernel matrix, None if it is exact, and `lost_variance` the
    share of the prior's variance that it lacks.
    """

    posterior: LaplacePosterior
    search: Selection
    score: float
    noise_deviation: float
    relevance: np.ndarray | None
    rank: int | None = None
    lost_variance: float = 0.0


@documented
@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class BayesianSVR(RegressorMixin, AbstractEstimator):
    """Support vector regression with error bars that chooses all its hyperparameters itself.

    Inputs and targets are standardized. C, epsilon, the variance of the offset and all lengthscales maximize
    the evidence: [CKO04], as in `jaxsvm.regression.adapt`. Standard deviations and intervals combine the
    noise of the loss with the uncertainty of the function. The standard deviation of the noise is at least
    about 1e-4 of that of the targets: without this bound, the evidence of noise-free targets has no maximum.

    Parameters
    ----------
    loss : {"soft", "quadratic"}, default="soft"
        "soft" is the soft insensitive loss, whose noise has long tails and whose solution is sparse;
        "quadratic" is Gaussian process regression.
    kernel : str, default="rbf"
        "rbf", as in the paper, "matern12", "matern32", "matern52" or "rational_quadratic".
    restarts : int, default=2
        How many of the paper's four starts to use.
    {parameters}

    Attributes
    ----------
    model_, posterior_, relevance_, evidence_, noise_std_, history_, rank_, lost_variance_
        See the properties below.
    scaling_ : tuple
        The `center` and `scale` of the inputs.
    target_center_, target_scale_ : float
        Targets are standardized to `(y - target_center_) / target_scale_`.
    n_iter_ : int
        The largest number of steps of a search.
    n_features_in_, feature_names_in_
        As in all estimators of scikit-learn.
    """

    loss: Literal["soft", "quadratic"] = "soft"
    kernel: KernelName = "rbf"
    restarts: int = 2
    max_iter: int = 100

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Choose all hyperparameters and fit the machine.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.
        y : array-like of shape (n_samples,)
            The targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the examples. A weight of two is the same as a repeated row.

        Returns
        -------
        self
        """
        self._check_parameters()
        searches = self._start_searches()
        x, y = self._validate_examples(X, y, y_numeric=True)
        x, y, weights = self._with_positive_weight(x, np.asarray(y, float), sample_weight)
        center, scale = center_and_scale(y, weights)
        self.target_center_: float = center
        self.target_scale_: float = scale
        self.scaling_: Scaling = self._fit_scaling(x, weights)
        examples = self.scaling_(x), (y - center) / scale, weights
        random = self._random()
        with jax.enable_x64(True):
            best = self._tune(examples, random, searches)
        self.regression_: Regression = as_numpy(best)
        self._conclude([self.regression_])
        return self

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> np.ndarray: ...
    @overload
    def predict(self, X: Any, return_std: Literal[True]) -> tuple[np.ndarray, np.ndarray]: ...
    @overload
    def predict(self, X: Any, return_std: bool) -> np.ndarray | tuple[np.ndarray, np.ndarray]: ...
    def predict(
        self, X: Any, return_std: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """The expected targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The points.
        return_std : bool, default=False
            Whether to return standard deviations too.

        Returns
        -------
        ndarray of shape (n_samples,), or a tuple of two
            The means; with `return_std` also the standard deviations of new targets, noise included.
        """
        mean, deviation = self._moments(X, self._fitted().posterior.target)
        return (mean, deviation) if return_std else mean

    def predict_function(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """The function behind the targets, without their noise.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The points.

        Returns
        -------
        tuple of two ndarrays of shape (n_samples,)
            The means and the standard deviations.
        """
        return self._moments(X, self._fitted().posterior.latent)

    def predict_interval(self, X: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """The central interval that holds a new target with a given probability.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The points.
        level : float, default=0.95
            The probability.

        Returns
        -------
        tuple of two ndarrays of shape (n_samples,)
            The lower and the upper ends.
        """
        posterior = self._fitted().posterior
        low, high = self._predicted(X, lambda points: posterior.interval(points, level))
        return self._in_units(low), self._in_units(high)

    @property
    def model_(self) -> KernelMachine[AbstractKernel, Any]:
        """The tuned `KernelMachine`, for standardized inputs and targets."""
        return self._fitted().search.model

    @property
    def posterior_(self) -> LaplacePosterior:
        """The Laplace posterior, for standardized inputs and targets."""
        return self._fitted().posterior

    @property
    def evidence_(self) -> float:
        """Laplace's approximation of the log evidence, in nats, for the targets used in the search."""
        search = self._fitted().search
        total = float(np.sum(np.asarray(search.weights)))
        return -float(search.value) - total * np.log(self.target_scale_)

    @property
    def noise_std_(self) -> float:
        """The standard deviation of the noise, in units of the targets."""
        return self.target_scale_ * self._fitted().noise_deviation

    @property
    def rank_(self) -> int | None:
        """The rank of the kernel matrix, None if it is exact."""
        return self._fitted().rank

    @property
    def lost_variance_(self) -> float:
        """The share of the prior's variance that the kernel matrix lacks, zero if it is exact."""
        return self._fitted().lost_variance

    @property
    def history_(self) -> History:
        """The steps of the search, as a `jaxsvm.History`."""
        return self._fitted().search.history

    @property
    def relevance_(self) -> np.ndarray:
        """`1 / lengthscale^2` of each input, normalized so that the largest is 1."""
        return require_relevance(self._fitted().relevance)

    def _check_parameters(self) -> None:
        if self.loss not in _LOSSES:
            raise ValueError(f"`loss` must be one of {', '.join(_LOSSES)}, not {self.loss!r}")
        if not isinstance(self.kernel, str) or self.kernel not in KERNELS:
            raise ValueError(f"`kernel` must be one of {', '.join(KERNELS)}, not {self.kernel!r}")
        self._check_shared_parameters()

    def _tune(self, examples: Examples, random, searches: Searches) -> Regression:
        """Search on some of the examples, and fit the best machine to all of them."""
        rows, inputs = examples[0].shape
        indices = random_subset(examples[1], self.max_examples, random, stratify=False)
        full, subset = self._padded(examples), self._padded(examples, indices)
        count = rows_to_refine(self.approximation, rows, self.max_examples)
        compared = subset if count else full
        ards = (False, True) if self.ard == "auto" and inputs > 1 else (self.ard is True,)
        tuned = [self._fit_tuned(self._search(ard, subset, searches), compared) for ard in ards]
        # each fitted lengthscale improves the score by about one nat by chance alone (Akaike)
        costs = [one.score + ard * inputs for one, ard in zip(tuned, ards, strict=True)]
        best = tuned[int(np.argmin(costs))]
        if not count:
            return best
        indices = random_subset(examples[1], count, random, stratify=False)
        return self._fit_tuned(self._refine(best, self._padded(examples, indices), searches), full)

    def _padded(self, examples: Examples, indices: Any = slice(None)) -> Examples:
        chosen = tuple(part[indices] for part in examples)
        return padded(*chosen, evenly=not is_exact(self.approximation, len(chosen[1])))

    def _search(self, ard: bool, subset: Examples, searches: Searches) -> Selection:
        x, y, weights = subset
        loss = Quadratic(0.1) if self.loss == "quadratic" else None
        initial = regression.machine(x, y, ard=ard, weights=weights, loss=loss)
        starts = [
            _with_family(KERNELS[self.kernel], start)
            for start in regression.starts(initial, x.shape[1])
        ][: self.restarts]
        return select(
            starts[0], x, y, _EVIDENCE, weights=weights, optimizer=_OPTIMIZER,
            stop=(SmallGradient(self.tol), SmallChange(1e-6, patience=20)),
            starts=jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts),
            restarts=len(starts), bounds=_bounds(starts[0]), max_steps=self.max_iter,
            approximation=represented(
                self.approximation, starts[0], _rows(x, weights), low_rank_for_search
            ),
            **searches.options("relevance" if ard else "common lengthscale"),
        )  # fmt: skip

    def _refine(self, tuned: Regression, more: Examples, searches: Searches) -> Selection:
        """Continue a search on more examples, at a low rank."""
        if searches.is_over:
            return tuned.search
        (x, y, weights), model = more, tuned.search.model
        return select(
            model, x, y, _EVIDENCE, weights=weights, optimizer=_OPTIMIZER, stop=REFINED,
            bounds=_bounds(model), max_steps=self.max_iter,
            approximation=low_rank_for_search(model, _rows(x, weights)),
            **searches.options("more examples"),
        )  # fmt: skip

    def _fit_tuned(self, search: Selection, full: Examples) -> Regression:
        x, y, weights = full
        inputs = x.shape[1]
        machine = one_lengthscale_each(search.model, inputs)
        kept = represented(self.approximation, machine, _rows(x, weights))
        fitted = fit(machine, x, y, weights=weights, approximation=kept)
        left_out = np.asarray(_leave_one_out(fitted))
        fitted = dataclasses.replace(fitted, model=search.model)
        total = weights.sum()
        score = total * np.log(weights @ np.abs(y - left_out) / total)
        tuned_loss: Any = search.model.loss
        deviation = float(tuned_loss.noise_variance) ** 0.5
        relevance = relevances(search.model, inputs)
        matrix = matrix_of(fitted.expansion, fitted.stats.lost_variance)
        return Regression(laplace(fitted), search, float(score), deviation, relevance, *matrix)

    def _fitted(self) -> Regression:
        check_is_fitted(self)
        return self.regression_

    def _predicted(self, X, predict: Any) -> tuple[np.ndarray, np.ndarray]:
        points = self.scaling_(self._validate_points(X))
        with jax.enable_x64(True):
            return predict_in_parts(predict, points)

    def _moments(self, X, predict: Any) -> tuple[np.ndarray, np.ndarray]:
        mean, deviation = self._predicted(X, predict)
        return self._in_units(mean), self.target_scale_ * deviation

    def _in_units(self, targets: np.ndarray) -> np.ndarray:
        return self.target_center_ + self.target_scale_ * targets


def _with_family(family: Any, model: KernelMachine) -> KernelMachine:
    """The paper's model with a kernel of another family instead of its RBF."""
    values: dict[str, Any] = parameters(model)
    kernel: AbstractKernel = family(
        values["kernel.left.lengthscale"], values["kernel.left.variance"]
    )
    changed = KernelMachine(kernel + Constant(values["kernel.right.variance"]), model.loss)
    return freeze(changed, *(name for name in frozen(model) if name.startswith("kernel")))


def _bounds(model: KernelMachine) -> dict[str, tuple[float, float]]:
    return {name: _BOUNDS[name] for name in free_parameters(model) if name in _BOUNDS}


def _rows(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The inputs without padding, which has weight zero and comes last."""
    return x[: np.count_nonzero(weights)]


@jit
def _leave_one_out(fitted):
    return linear_response(fitted.gram(), fitted)
