"""Plots of selections and fits; needs `jaxsvm[plot]`, and an `import jaxsvm.plot` of its own."""

try:
    import matplotlib as _matplotlib  # noqa: F401, to say what to do where it is missing
except ImportError as error:
    raise ImportError(
        '`jaxsvm.plot` needs matplotlib, which is not installed: pip install "jaxsvm[plot]"'
    ) from error

from ._agreement import agreement as agreement
from ._ascent import ascent as ascent
from ._coverage import coverage as coverage
from ._errors import error_histogram as error_histogram
from ._history import history as history
from ._line import Line as Line
from ._line import criterion_along as criterion_along
from ._predictions import predictions as predictions
from ._progress import progress as progress
from ._relevance import relevance as relevance
from ._relevance import relevance_bars as relevance_bars
from ._reliability import reliability as reliability
from ._residuals import residuals as residuals
from ._surface import decision_surface as decision_surface
