"""Posteriors of the latent function: predictions with error bars, probabilities and intervals.

All posteriors have the methods of `AbstractPosterior`, with the same names and arguments: `decision`,
`predict`, `latent`, `probability`, `target`, `interval`, `cumulative`, `log_density`, `sample`. Point
estimates (a `jaxsvm.Fit` or an `Ensemble`) have only `decision` and `predict`.
"""

from .._predictor import AbstractMachinePredictor as AbstractMachinePredictor
from .._predictor import AbstractPointEstimate as AbstractPointEstimate
from .._predictor import AbstractPredictor as AbstractPredictor
from .._predictor import AbstractSolution as AbstractSolution
from .._predictor import Examples as Examples
from ._abstract import AbstractGaussianPosterior as AbstractGaussianPosterior
from ._abstract import AbstractMixture as AbstractMixture
from ._abstract import AbstractPosterior as AbstractPosterior
from ._abstract import LeaveOneOutPredictions as LeaveOneOutPredictions
from ._averages import Average as Average
from ._averages import averaged as averaged
from ._components import Components as Components
from ._components import Joint as Joint
from ._components import mixture as mixture
from ._components import same_for_all as same_for_all
from ._ensemble import AbstractCommittee as AbstractCommittee
from ._ensemble import Ensemble as Ensemble
from ._ensemble import LaplaceMixture as LaplaceMixture
from ._ensemble import laplace as laplace
from ._laplace_covariance import AbstractLaplaceCovariance as AbstractLaplaceCovariance
from ._laplace_covariance import ExactLaplaceCovariance as ExactLaplaceCovariance
from ._laplace_covariance import LowRankLaplaceCovariance as LowRankLaplaceCovariance
from ._laplace_posterior import LaplacePosterior as LaplacePosterior
from ._laplace_posterior import around as around
from ._laplace_posterior import require_maximum as require_maximum
from ._probability import probability as probability
from ._targets import require_known_noise as require_known_noise
