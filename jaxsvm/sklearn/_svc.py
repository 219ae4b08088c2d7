"""Support vector classification without a hyperparameter to set."""

from typing import Any

from ..selection import METHODS
from ._binary import EVIDENCE, Settings
from ._classifier import AbstractClassifier


class BayesianSVC(AbstractClassifier):
    """A support vector classifier that chooses all its hyperparameters by itself.

    Inputs are standardized; amplitude, lengthscales, offset and C are found by gradients of a criterion
    (`jaxsvm.select`), without cross-validation. Probabilities come from a sigmoid of leave-one-out
    values, which the fit has in closed form, or with `method="evidence"` from draws of the posterior.

    **Arguments:**

    - `method`: what chooses the hyperparameters. "span" (the default), "laplace", "laplace2", "gacv",
      "radius", "response", "cv", "press", "press-prior": see `jaxsvm.selection.METHODS`. "evidence": ascent
      of the exact evidence by sampling, whose posterior predicts.
    - `kernel`: "rbf", "matern12", "matern32", "matern52", "rational_quadratic", or any kernel of
      `jaxsvm.kernels`, of which the free hyperparameters are tuned from where they are; an offset is added.
    - `ard`: whether each input has a lengthscale of its own (automatic relevance determination). "auto":
      where the log loss of leave-one-out predictions gains by more than a nat for each of them (Akaike's
      criterion). Not for a kernel of yours.
    - `restarts`: of the search, from random starts around the first.
    - `standardize`: whether inputs are shifted and scaled to mean zero and variance one.
    - `class_weight`: None, "balanced", or a dictionary of a weight for each class.
    - `max_iter`: steps of each search; `tol`, of the gradient at which it ends.
    - `max_examples`: if there are more, the hyperparameters are chosen on so many of them, drawn at random;
      the machine is always fitted to all.
    - `random_state`: of the draws, restarts and choices of examples.
    - `seconds`: after which searches end and the best so far is taken; every search takes its first steps.
    - `checkpoint`: a folder in which searches save their progress. An interrupted fit continues from it when
      it is repeated with the same data and parameters (`seconds` and `verbose` may differ), and ends as it
      would have without the interruption. Needs an integer `random_state`.
    - `verbose`: whether to show progress.

    **Attributes:** `classes_`, `model_`, `relevance_`, `evidence_`, `criterion_`, `history_`, `n_iter_`,
    `machines_` (what is behind them: fits, searches, sigmoids), `scaling_`, `n_features_in_`,
    `feature_names_in_`.
    """

    def __init__(
        self,
        method: str = "span",
        *,
        kernel: Any = "rbf",
        ard: Any = "auto",
        restarts: int = 1,
        standardize: bool = True,
        class_weight: Any = None,
        max_iter: int = 60,
        tol: float = 1e-3,
        max_examples: int = 2000,
        random_state: Any = None,
        seconds: float | None = None,
        checkpoint: Any = None,
        verbose: bool = False,
    ):
        self.method = method
        self.kernel = kernel
        self.ard = ard
        self.restarts = restarts
        self.standardize = standardize
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
        self.max_examples = max_examples
        self.random_state = random_state
        self.seconds = seconds
        self.checkpoint = checkpoint
        self.verbose = verbose

    def _settings(self) -> Settings:
        names = (EVIDENCE, *METHODS)
        if self.method not in names:
            raise ValueError(f"`method` must be one of {', '.join(names)}, not {self.method!r}")
        return self._checked_settings(self.method)
