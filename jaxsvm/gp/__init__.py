"""Gaussian process classification by naive mean field, Laplace's approximation, expectation propagation.

A Gaussian process classifier is a `KernelMachine`: its kernel is the covariance, its loss (`Probit`,
`FlipNoise`, `Logistic`) the noise of the labels. The functions `mean_field`, `laplace` and
`expectation_propagation` approximate its posterior. To select its hyperparameters, pass a criterion to
`jaxsvm.select`: `Laplace` and `ExpectationPropagation` approximate the evidence; `NaiveMeanField`,
`LaplaceLeaveOneOut` and `ExpectationPropagationLeaveOneOut` estimate the leave-one-out score. Pass the
`model` of the selection to one of the functions for its posterior; the selection's `fit()` is only the
posterior mode.
"""

from ..posteriors import LeaveOneOutPredictions as LeaveOneOutPredictions
from ._classifier import ClassifierPosterior as ClassifierPosterior
from ._expectation_propagation import ExpectationPropagation as ExpectationPropagation
from ._expectation_propagation import expectation_propagation as expectation_propagation
from ._laplace_classifier import Laplace as Laplace
from ._laplace_classifier import laplace as laplace
from ._leave_one_out_criteria import AbstractLeaveOneOut as AbstractLeaveOneOut
from ._leave_one_out_criteria import (
    ExpectationPropagationLeaveOneOut as ExpectationPropagationLeaveOneOut,
)
from ._leave_one_out_criteria import LaplaceLeaveOneOut as LaplaceLeaveOneOut
from ._leave_one_out_criteria import NaiveMeanField as NaiveMeanField
from ._mean_field import mean_field as mean_field
from ._sites import Sites as Sites
