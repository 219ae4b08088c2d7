"""Exact and low-rank representations of the kernel matrix, and the white coordinates they define."""

from ._approximation import AbstractApproximation as AbstractApproximation
from ._approximation import Exact as Exact
from ._approximation import require_approximation as require_approximation
from ._basis import AbstractBasis as AbstractBasis
from ._basis import LandmarkBasis as LandmarkBasis
from ._basis import residual_variance as residual_variance
from ._fourier import FourierBasis as FourierBasis
from ._fourier import FourierSubspace as FourierSubspace
from ._fourier import RandomFourier as RandomFourier
from ._landmarks import choose_landmarks as choose_landmarks
from ._landmarks import landmarks_to_tolerance as landmarks_to_tolerance
from ._nystrom import ApproximationWarning as ApproximationWarning
from ._nystrom import Nystrom as Nystrom
from ._representation import EXACT as EXACT
from ._representation import LOST_VARIANCE as LOST_VARIANCE
from ._representation import Corrected as Corrected
from ._representation import Expansion as Expansion
from ._representation import Representation as Representation
from ._representation import Represented as Represented
from ._representation import check_lost_variance as check_lost_variance
from ._representation import represent as represent
from ._representation import represent_in_white as represent_in_white
from ._whitening import AbstractSubspace as AbstractSubspace
from ._whitening import LandmarkSubspace as LandmarkSubspace
from ._whitening import Whitening as Whitening
