"""Least-squares support vector classification."""

from typing import Any

from ._binary import Settings
from ._classifier import AbstractClassifier


class LSSVC(AbstractClassifier):
    """A least-squares support vector classifier that chooses all its hyperparameters by itself.

    Lengthscales and C minimize the leave-one-out squared error, which it has in closed form, with a
    prior over the relevances of the inputs against over-fitting: [CT07, eq. 15]. Probabilities come from
    a sigmoid of the leave-one-out values.

    **Arguments:** `prior`, whether to have that prior; all others as for `BayesianSVC`.

    **Attributes:** as for `BayesianSVC`, without `evidence_`.
    """

    def __init__(
        self,
        *,
        prior: bool = True,
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
        self.prior = prior
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
        by_prior = self.prior and isinstance(self.kernel, str)  # it is one over their lengthscales
        return self._checked_settings("press-prior" if by_prior else "press")
