"""Support vector regression with error bars, without a hyperparameter to set."""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from .. import regression
from .._fit import fit
from .._machine import KernelMachine
from .._parameters import free_parameters, freeze, frozen, parameters
from .._trees import stack
from ..criteria import LaplaceEvidence, linear_response
from ..gram import exact_gram
from ..kernels import AbstractKernel, Constant
from ..losses import Quadratic
from ..optimizers import lbfgs
from ..posteriors import LaplacePosterior, laplace
from ..regression import center_and_scale
from ..runtime import jit
from ..selection import Selection, select
from ..selection.stopping import SmallChange, SmallGradient
from ._base import AbstractEstimator, relevances, required
from ._binary import KERNELS, one_lengthscale_each
from ._data import as_numpy, padded, padded_points, subset
from ._searches import Searches, as_searches

_LOSSES = ("soft", "quadratic")
_EVIDENCE = LaplaceEvidence()
_OVER_JUMPS = lbfgs(window=5)  # as `regression.adapt` has it
# Inputs and targets are standardized. Of repeated rows and of targets without noise the evidence grows
# without end as the noise vanishes, until no factorization holds.
_BOUNDS = {
    "loss.C": (1e-4, 1e4),
    "loss.epsilon": (1e-4, 10.0),
    "loss.noise_variance": (1e-8, 1e2),
    "kernel.left.lengthscale": (1e-2, 1e3),
}


class Regression(NamedTuple):
    """A tuned machine and its posterior.

    `score` is minus the logarithm of the likelihood of examples left out, with Laplacian noise as wide as
    their errors are: n times the logarithm of the mean absolute error. `noise_deviation` is the standard
    deviation of the noise in standardized targets, `relevance` that of each input.
    """

    posterior: LaplacePosterior
    search: Selection
    score: float
    noise_deviation: float
    relevance: np.ndarray | None


class BayesianSVR(RegressorMixin, AbstractEstimator):
    """Support vector regression that chooses all its hyperparameters by itself, with error bars.

    Inputs and targets are standardized; C, epsilon, the offset's variance and all lengthscales maximize the
    evidence: [CKO04], by `jaxsvm.regression.adapt`. The noise that comes with the loss, and what is not
    known of the function, give standard deviations and intervals. Its standard deviation is at least
    about a ten-thousandth of that of the targets, without which the evidence of targets without noise
    would have no end.

    **Arguments:**

    - `loss`: "soft", the soft insensitive loss, whose noise has long tails and whose solution is sparse; or
      "quadratic", which is Gaussian process regression.
    - `kernel`: "rbf", the paper's, or "matern12", "matern32", "matern52", "rational_quadratic".
    - `ard`: whether each input has a lengthscale of its own (automatic relevance determination). "auto":
      where leave-one-out predictions gain by more than a nat for each of them (Akaike's criterion).
    - `restarts`: how many of the paper's four starts to take.
    - `standardize`: whether inputs are shifted and scaled to mean zero and variance one.
    - `max_iter`: steps of each search; `tol`, of the gradient at which it ends.
    - `max_examples`: if there are more, the hyperparameters are chosen on so many of them, drawn at random;
      the machine is always fitted to all.
    - `random_state`: of that choice.
    - `seconds`: after which searches end and the best so far is taken; every search takes its first steps.
    - `checkpoint`: a folder in which searches save their progress. An interrupted fit continues from it when
      it is repeated with the same data and parameters (`seconds` and `verbose` may differ), and ends as it
      would have without the interruption. Needs an integer `random_state`.
    - `verbose`: whether to show progress.

    **Attributes:** `model_` (in standardized inputs and targets), `posterior_`, `relevance_`, `evidence_`,
    `noise_std_`, `history_`, `n_iter_`, `scaling_`, `n_features_in_`, `feature_names_in_`.
    """

    def __init__(
        self,
        *,
        loss: str = "soft",
        kernel: str = "rbf",
        ard: Any = "auto",
        restarts: int = 2,
        standardize: bool = True,
        max_iter: int = 100,
        tol: float = 1e-3,
        max_examples: int = 2000,
        random_state: Any = None,
        seconds: float | None = None,
        checkpoint: Any = None,
        verbose: bool = False,
    ):
        self.loss = loss
        self.kernel = kernel
        self.ard = ard
        self.restarts = restarts
        self.standardize = standardize
        self.max_iter = max_iter
        self.tol = tol
        self.max_examples = max_examples
        self.random_state = random_state
        self.seconds = seconds
        self.checkpoint = checkpoint
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None):
        """Choose all hyperparameters, and fit the machine.

        **Arguments:** `X`, one row for each example; `y`, their targets; `sample_weight`, one number for
        each example: a weight of two is a repeated row, with which the evidence is the same.

        **Returns:** the estimator itself.
        """
        self._check_settings()
        searches = as_searches(self.checkpoint, self.seconds, self.verbose)
        x, y = self._validated(X, y, y_numeric=True)
        x, y, weights = self._counted(x, np.asarray(y, float), sample_weight)
        center, scale = center_and_scale(y, weights)
        self.target_center_, self.target_scale_ = center, scale
        self.scaling_ = self._scaling(x, weights)
        every = padded(self.scaling_(x), (y - center) / scale, weights)
        places = subset(y, self.max_examples, False, self._random())
        chosen = padded(every[0][places], every[1][places], weights[places])
        with jax.enable_x64(True):
            kinds = (False, True) if self.ard == "auto" and x.shape[1] > 1 else (self.ard is True,)
            found = [self._tune(ard, chosen, every, searches) for ard in kinds]
            # each lengthscale that is fitted makes a score look better than it is, by about a nat (Akaike)
            costs = [each.score + ard * x.shape[1] for each, ard in zip(found, kinds, strict=True)]
        self.regression_: Regression = as_numpy(found[int(np.argmin(costs))])
        self._conclude([self.regression_.search])
        return self

    def predict(self, X: Any, return_std: bool = False):
        """The expected targets.

        **Arguments:** `X`, one row for each point; `return_std`, whether to give standard deviations too.

        **Returns:** one target for each point; with `return_std` also the standard deviations of new
        targets, noise included.
        """
        mean, deviation = self._moments(X, "target")
        return (mean, deviation) if return_std else mean

    def predict_function(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """The function behind the targets, without their noise.

        **Arguments:** `X`, one row for each point.

        **Returns:** means and standard deviations, one for each point.
        """
        return self._moments(X, "latent")

    def predict_interval(self, X: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """The interval that holds a new target with a given probability, by the noise's own quantiles.

        **Arguments:** `X`, one row for each point; `level`, the probability.

        **Returns:** lower and upper ends, one for each point.
        """
        points, count = self._standardized(X)
        with jax.enable_x64(True):
            ends = self.regression_.posterior.interval(points, level)
        low, high = (self._in_units(np.asarray(end)[:count]) for end in ends)
        return low, high

    @property
    def model_(self):
        """The tuned `KernelMachine`, in standardized inputs and targets."""
        return self._found().search.model

    @property
    def posterior_(self) -> LaplacePosterior:
        """The Gaussian process around the fit, in standardized inputs and targets."""
        return self._found().posterior

    @property
    def evidence_(self) -> float:
        """Laplace's approximation of the log evidence of the targets the search has seen, in nats."""
        found = self._found()
        counted = float(np.sum(np.asarray(found.search.weights)))
        return -float(found.search.value) - counted * np.log(self.target_scale_)

    @property
    def noise_std_(self) -> float:
        """The standard deviation of the noise, in units of the targets."""
        return self.target_scale_ * self._found().noise_deviation

    @property
    def history_(self):
        """What happened at each step of the search."""
        return self._found().search.history

    @property
    def relevance_(self) -> np.ndarray:
        """`1 / lengthscale^2` of each input, normalized so that the largest is 1."""
        return required(self._found().relevance)

    def _check_settings(self) -> None:
        if self.loss not in _LOSSES:
            raise ValueError(f"`loss` must be one of {', '.join(_LOSSES)}, not {self.loss!r}")
        if not isinstance(self.kernel, str) or self.kernel not in KERNELS:
            raise ValueError(f"`kernel` must be one of {', '.join(KERNELS)}, not {self.kernel!r}")
        self._check_ard(self.ard)
        self._check_counts(restarts=self.restarts)

    def _tune(self, ard: bool, chosen, every, searches: Searches) -> Regression:
        x, y, weights = chosen
        chosen_model: dict[str, Any] = {
            "ard": ard,
            "weights": weights,
            "loss": Quadratic(0.1) if self.loss == "quadratic" else None,
        }
        first = regression.machine(x, y, **chosen_model)
        starts = [_of_family(KERNELS[self.kernel], m) for m in regression.starts(first, x.shape[1])]
        starts = starts[: self.restarts]
        limits = {name: _BOUNDS[name] for name in free_parameters(starts[0]) if name in _BOUNDS}

        search = select(
            starts[0], x, y, _EVIDENCE, weights=weights, optimizer=_OVER_JUMPS,
            stop=(SmallGradient(self.tol), SmallChange(1e-6, patience=20)), starts=stack(starts),
            restarts=len(starts), bounds=limits, max_steps=self.max_iter,
            **searches.options("relevance" if ard else "common lengthscale"),
        )  # fmt: skip
        fitted = fit(one_lengthscale_each(search.model, x.shape[1]), *every[:2], weights=every[2])
        left_out = np.asarray(_left_out(fitted))
        fitted = dataclasses.replace(fitted, model=search.model)
        total = every[2].sum()
        score = total * np.log(every[2] @ np.abs(every[1] - left_out) / total)
        loss: Any = search.model.loss
        deviation, relevance = (
            float(loss.noise_variance) ** 0.5,
            relevances(search.model, x.shape[1]),
        )
        return Regression(laplace(fitted), search, float(score), deviation, relevance)

    def _found(self) -> Regression:
        if not hasattr(self, "regression_"):
            raise AttributeError("this BayesianSVR is not fitted yet: call `fit` first")
        return self.regression_

    def _standardized(self, X) -> tuple[np.ndarray, int]:
        check_is_fitted(self)
        points = self.scaling_(self._points(X))
        return padded_points(points), len(points)

    def _moments(self, X, which: str) -> tuple[np.ndarray, np.ndarray]:
        points, count = self._standardized(X)
        with jax.enable_x64(True):
            mean, deviation = getattr(self.regression_.posterior, which)(points)
        mean, deviation = (np.asarray(part)[:count] for part in (mean, deviation))
        return self._in_units(mean), self.target_scale_ * deviation

    def _in_units(self, targets: np.ndarray) -> np.ndarray:
        return self.target_center_ + self.target_scale_ * targets


def _of_family(family: Any, model: KernelMachine) -> KernelMachine:
    """The paper's model with another family of kernels in the place of its RBF."""
    values: dict[str, Any] = parameters(model)
    own: AbstractKernel = family(values["kernel.left.lengthscale"], values["kernel.left.variance"])
    changed = KernelMachine(own + Constant(values["kernel.right.variance"]), model.loss)
    return freeze(changed, *(name for name in frozen(model) if name.startswith("kernel")))


@jit
def _left_out(fitted):
    return linear_response(exact_gram(fitted.model.kernel, fitted.x), fitted)
