"""Bayesian support vector regression: the paper's model, its starts, and its adaptation to data."""

from ._adaptation import adapt as adapt
from ._adaptation import center_and_scale as center_and_scale
from ._adaptation import default_beta as default_beta
from ._adaptation import machine as machine
from ._adaptation import starts as starts
