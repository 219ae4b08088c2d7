"""Posteriors of the latent function: what predicts, with error bars, probabilities and intervals."""

from ._ensemble import Ensemble as Ensemble
from ._laplace import LaplaceMixture as LaplaceMixture
from ._laplace import LaplacePosterior as LaplacePosterior
from ._laplace import around as around
from ._laplace import laplace as laplace
from ._predictive import AbstractPredictive as AbstractPredictive
from ._predictive import Components as Components
from ._predictive import noisy as noisy
from ._predictive import same_for_all as same_for_all
from ._probability import check_rule as check_rule
from ._probability import probability as probability
