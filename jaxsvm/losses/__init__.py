"""Losses: negative log likelihoods of labels and targets."""

from ._likelihood import AbstractClassification as AbstractClassification
from ._likelihood import AbstractLoss as AbstractLoss
from ._likelihood import AbstractRegression as AbstractRegression
from ._margin import Hinge as Hinge
from ._margin import LeastSquares as LeastSquares
from ._margin import SquaredHinge as SquaredHinge
from ._normalized import Normalized as Normalized
from ._piecewise import AbstractPiecewise as AbstractPiecewise
from ._piecewise import AbstractTwoSided as AbstractTwoSided
from ._piecewise import Shape as Shape
from ._piecewise import weighted_bound as weighted_bound
from ._piecewise import weighted_compliance as weighted_compliance
from ._regression import EpsilonInsensitive as EpsilonInsensitive
from ._regression import Huber as Huber
from ._regression import Laplacian as Laplacian
from ._regression import Quadratic as Quadratic
from ._regression import SoftInsensitive as SoftInsensitive
from ._residual import AbstractResidual as AbstractResidual
from ._smooth import FlipNoise as FlipNoise
from ._smooth import Logistic as Logistic
from ._smooth import Probit as Probit
from ._smooth import Trigonometric as Trigonometric
