"""Plots of selections, fits and predictions (extra `plot`; import `jaxsvm.plot` explicitly)."""

try:
    import matplotlib as _matplotlib  # noqa: F401, for a clear message if it is missing
except ImportError as _error:
    raise ImportError(
        '`jaxsvm.plot` needs matplotlib, which is not installed: pip install "jaxsvm[plot]"'
    ) from _error

from ._calibration import coverage as coverage
from ._calibration import reliability as reliability
from ._error_histogram import error_histogram as error_histogram
from ._history import ascent as ascent
from ._history import history as history
from ._history import progress as progress
from ._line import Line as Line
from ._line import criterion_along as criterion_along
from ._predictions import agreement as agreement
from ._predictions import predictions as predictions
from ._relevance_bars import relevance as relevance
from ._relevance_bars import relevance_bars as relevance_bars
from ._residuals import residuals as residuals
from ._surface import decision_surface as decision_surface
