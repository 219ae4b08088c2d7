"""Exact and low-rank representations of the kernel matrix, and the white coordinates they define."""

from ._approximation import AbstractApproximation as AbstractApproximation
from ._approximation import Exact as Exact
from ._approximation import Nystrom as Nystrom
from ._approximation import choose_landmarks as choose_landmarks
from ._approximation import require_approximation as require_approximation
from ._whitening import Subspace as Subspace
from ._whitening import Whitening as Whitening
from ._whitening import whiten as whiten
