"""The kernel matrix of the examples, and the operations that solvers and criteria use."""

from ._dense import DenseGram as DenseGram
from ._dense import exact_gram as exact_gram
from ._interface import AbstractGram as AbstractGram
from ._low_rank import LowRankGram as LowRankGram
