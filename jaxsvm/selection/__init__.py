"""Choosing hyperparameters: `select`, when it stops, and what it returns."""

from . import stopping as stopping
from ._coordinates import Ranges as Ranges
from ._coordinates import check_inside as check_inside
from ._coordinates import clip as clip
from ._coordinates import draw_starts as draw_starts
from ._coordinates import limits as limits
from ._fingerprint import fingerprint as fingerprint
from ._methods import METHODS as METHODS
from ._methods import Method as Method
from ._select import select as select
from ._types import History as History
from ._types import Selection as Selection
from ._types import member as member
from ._types import stack as stack
