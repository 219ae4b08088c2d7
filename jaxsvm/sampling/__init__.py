"""Sampling the posterior of the latent function."""

from ._diagnostics import Diagnostics as Diagnostics
from ._diagnostics import SamplingWarning as SamplingWarning
from ._hyperparameters import sample_hyperparameters as sample_hyperparameters
from ._hyperposterior import HyperDiagnostics as HyperDiagnostics
from ._hyperposterior import HyperPosterior as HyperPosterior
from ._laplace import LaplaceMixture as LaplaceMixture
from ._laplace import LaplacePosterior as LaplacePosterior
from ._laplace import laplace as laplace
from ._methods import HMC as HMC
from ._methods import NUTS as NUTS
from ._methods import paper_setting as paper_setting
from ._posterior import Posterior as Posterior
from ._sample import sample as sample
from ._whitening import Whitening as Whitening
from ._whitening import whiten as whiten
