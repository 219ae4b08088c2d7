"""Model-selection criteria: numbers to minimize, with gradients."""

from . import priors as priors
from . import scores as scores
from ._base import AbstractCriterion as AbstractCriterion
from ._base import AbstractFitCriterion as AbstractFitCriterion
from ._base import Evaluation as Evaluation
from ._base import evaluation as evaluation
from ._base import is_usable as is_usable
from ._base import mean as mean
from ._base import memory_of as memory_of
from ._base import prepare as prepare
from ._bounds import JaakkolaHaussler as JaakkolaHaussler
from ._bounds import SupportVectorCount as SupportVectorCount
from ._cross_validation import CrossValidation as CrossValidation
from ._gacv import GACV as GACV
from ._laplace import LaplaceEvidence as LaplaceEvidence
from ._leave_one_out import LeaveOneOut as LeaveOneOut
from ._linear_response import LinearResponse as LinearResponse
from ._linear_response import linear_response as linear_response
from ._press import PRESS as PRESS
from ._radius import RadiusMargin as RadiusMargin
from ._regularized import FAR as FAR
from ._regularized import Regularized as Regularized
from ._regularized import prune as prune
from ._span import Span as Span
