"""Optimizers of hyperparameters, in addition to those of optax."""

from ._adaptive import adaptive_rates as adaptive_rates
from ._lbfgs import lbfgs as lbfgs
from ._walk import GreedyWalk as GreedyWalk
