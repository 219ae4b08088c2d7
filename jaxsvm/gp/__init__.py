"""Gaussian process classification by naive mean field, Laplace's approximation, expectation propagation.

A Gaussian process classifier is a `KernelMachine`: its kernel is the covariance, its loss (`Probit`,
`FlipNoise`, `Logistic`) the noise of the labels. The functions `mean_field`, `laplace` and
`expectation_propagation` approximate its posterior. Criteria choose its hyperparameters, with
`jaxsvm.select`: the evidence by `Laplace` and `ExpectationPropagation`, and leave-one-out estimates by
`NaiveMeanField`, `LaplaceLeftOut` and `ExpectationPropagationLeftOut`. What a selection has chosen is
`found.model`, whose posterior these functions make; its `fit()` is the posterior mode.
"""

from ..posteriors import LeftOut as LeftOut
from ._expectation_propagation import ExpectationPropagation as ExpectationPropagation
from ._expectation_propagation import ExpectationPropagationFit as ExpectationPropagationFit
from ._expectation_propagation import expectation_propagation as expectation_propagation
from ._laplace import Laplace as Laplace
from ._laplace import laplace as laplace
from ._leave_one_out import AbstractLeftOut as AbstractLeftOut
from ._leave_one_out import ExpectationPropagationLeftOut as ExpectationPropagationLeftOut
from ._leave_one_out import LaplaceLeftOut as LaplaceLeftOut
from ._leave_one_out import NaiveMeanField as NaiveMeanField
from ._mean_field import MeanFieldFit as MeanFieldFit
from ._mean_field import mean_field as mean_field
from ._posterior import AbstractResponsePosterior as AbstractResponsePosterior
from ._sites import Sites as Sites
