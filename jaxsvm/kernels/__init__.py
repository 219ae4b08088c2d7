"""Kernels: covariance functions that compose with `+` and `*`."""

from ._algebra import AbstractKernel as AbstractKernel
from ._algebra import AbstractSpectral as AbstractSpectral
from ._algebra import Product as Product
from ._algebra import Sum as Sum
from ._algebra import waves_of as waves_of
from ._constant import Constant as Constant
from ._constant import White as White
from ._constant import varying_part as varying_part
from ._custom import Custom as Custom
from ._custom import HashableTree as HashableTree
from ._custom import UserFunction as UserFunction
from ._custom import covariance_defect as covariance_defect
from ._custom import is_covariance as is_covariance
from ._custom import is_user_defined as is_user_defined
from ._linear import Linear as Linear
from ._linear import Polynomial as Polynomial
from ._spectrum import Waves as Waves
from ._stationary import RBF as RBF
from ._stationary import Matern12 as Matern12
from ._stationary import Matern32 as Matern32
from ._stationary import Matern52 as Matern52
from ._stationary import Periodic as Periodic
from ._stationary import RationalQuadratic as RationalQuadratic
from ._transform import ARD as ARD
from ._transform import Subspace as Subspace
from ._transform import Transform as Transform
