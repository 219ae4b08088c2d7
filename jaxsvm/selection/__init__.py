"""Choosing hyperparameters: `select`, its history, and ensembles of end points."""

from ._methods import METHODS as METHODS
from ._methods import Method as Method
from ._select import select as select
from ._types import Ensemble as Ensemble
from ._types import History as History
from ._types import Selection as Selection
