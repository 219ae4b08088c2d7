"""Gaussian process classification by naive mean field theory."""

from typing import Any

from ._binary import MEAN_FIELD, Settings
from ._classifier import AbstractClassifier


class MeanFieldGPC(AbstractClassifier):
    """A Gaussian process classifier by naive mean field theory that chooses its hyperparameters by itself.

    They minimize the log loss of leave-one-out predictions, which follow from the solution:
    [OW00, eqs. 8.40-8.42]. Probabilities are those of the posterior, with labels by a probit likelihood.

    **Arguments:** as for `BayesianSVC`, without `method`.

    **Attributes:** as for `BayesianSVC`, without `evidence_`.
    """

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        ard: Any = "auto",
        restarts: int = 1,
        standardize: bool = True,
        class_weight: Any = None,
        max_iter: int = 60,
        tol: float = 1e-3,
        max_examples: int = 1000,
        random_state: Any = None,
        seconds: float | None = None,
        checkpoint: Any = None,
        verbose: bool = False,
    ):
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
        return self._checked_settings(MEAN_FIELD)
