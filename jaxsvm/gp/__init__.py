"""Gaussian process classification by naive mean field, Laplace's approximation, expectation propagation.

A Gaussian process classifier is a `KernelMachine`: its kernel is the covariance, its loss (`Probit`,
`FlipNoise`, `Logistic`) the noise of the labels. The functions `mean_field`, `laplace` and
`expectation_propagation` approximate its posterior; the criteria `NaiveMeanField`, `Laplace` and
`ExpectationPropagation` choose its hyperparameters, with `jaxsvm.select`.
"""

from ._expectation_propagation import ExpectationPropagation as ExpectationPropagation
from ._expectation_propagation import ExpectationPropagationFit as ExpectationPropagationFit
from ._expectation_propagation import expectation_propagation as expectation_propagation
from ._laplace import Laplace as Laplace
from ._laplace import laplace as laplace
from ._leave_one_out import NaiveMeanField as NaiveMeanField
from ._mean_field import MeanFieldFit as MeanFieldFit
from ._mean_field import mean_field as mean_field
from ._posterior import AbstractGaussianPosterior as AbstractGaussianPosterior
from ._posterior import LeftOut as LeftOut
from ._sites import Sites as Sites
