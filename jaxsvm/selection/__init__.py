"""Choosing hyperparameters: `select`, its stopping rules, and the `Selection` it returns."""

from . import stopping as stopping
from ._checkpoint import fingerprint as fingerprint
from ._coordinates import Ranges as Ranges
from ._coordinates import check_inside as check_inside
from ._coordinates import clip as clip
from ._coordinates import draw_starts as draw_starts
from ._coordinates import limits as limits
from ._methods import METHODS as METHODS
from ._methods import Method as Method
from ._select import select as select
from ._selection import History as History
from ._selection import Selection as Selection
