"""Model-selection criteria: numbers to minimize, with gradients."""

from . import priors as priors
from . import scores as scores
from ._base import AbstractCriterion as AbstractCriterion
from ._laplace import LaplaceEvidence as LaplaceEvidence
from ._press import PRESS as PRESS
from ._regularized import Regularized as Regularized
from ._regularized import prune as prune
