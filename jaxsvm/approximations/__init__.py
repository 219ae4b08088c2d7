"""Representations of the kernel matrix: exact, or of low rank; and the white coordinates they give."""

from ._choices import AbstractApproximation as AbstractApproximation
from ._choices import Exact as Exact
from ._choices import Nystrom as Nystrom
from ._choices import require_approximation as require_approximation
from ._landmarks import choose_landmarks as choose_landmarks
from ._whitening import Subspace as Subspace
from ._whitening import Whitening as Whitening
from ._whitening import whiten as whiten
