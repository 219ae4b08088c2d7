"""Posteriors of the latent function: what predicts, with error bars, probabilities and intervals.

All posteriors offer the methods of `AbstractPosterior`, under the same names and with the same arguments:
`decision`, `predict`, `latent`, `probability`, `target`, `interval`, `cumulative`, `log_density`, `sample`.
Point estimates, a `jaxsvm.Fit` or an `Ensemble`, have `decision` and `predict`.
"""

from .._predictor import AbstractPointEstimate as AbstractPointEstimate
from .._predictor import AbstractPredictor as AbstractPredictor
from .._predictor import Examples as Examples
from ._around import around as around
from ._around import laplace as laplace
from ._around import require_maximum as require_maximum
from ._averages import Average as Average
from ._averages import averaged as averaged
from ._base import AbstractMixture as AbstractMixture
from ._base import AbstractPosterior as AbstractPosterior
from ._components import Components as Components
from ._components import Joint as Joint
from ._components import mixture as mixture
from ._components import same_for_all as same_for_all
from ._ensemble import Ensemble as Ensemble
from ._gaussian import AbstractGaussianPosterior as AbstractGaussianPosterior
from ._gaussian import LeftOut as LeftOut
from ._laplace import LaplacePosterior as LaplacePosterior
from ._mixture import LaplaceMixture as LaplaceMixture
from ._probability import probability as probability
from ._targets import require_known_noise as require_known_noise
