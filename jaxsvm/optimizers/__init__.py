"""Optimizers of hyperparameters, beside all those of optax."""

from ._lbfgs import lbfgs as lbfgs
from ._walk import GreedyWalk as GreedyWalk
