"""Checks of data and options, with messages that say what to change.

This package is for contributors: the other packages of jaxsvm are built on it, and it may change between
versions without notice.
"""

from ._arrays import as_inputs as as_inputs
from ._arrays import as_points as as_points
from ._arrays import as_targets as as_targets
from ._arrays import as_weights as as_weights
from ._arrays import count_where as count_where
from ._arrays import require_unmasked as require_unmasked
from ._options import check_count as check_count
from ._options import check_number as check_number
from ._options import check_switch as check_switch
from ._options import plain as plain
