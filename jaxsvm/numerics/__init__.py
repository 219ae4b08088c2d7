"""Numerical tools that all packages share: quadrature, safe roots and moments, pytrees of arrays.

This package is for contributors: the other packages of jaxsvm are built on it, and it may change between
versions without notice.
"""

from ._quadrature import STEPS as STEPS
from ._quadrature import log_panels as log_panels
from ._quadrature import over_gaussian as over_gaussian
from ._quadrature import peak as peak
from ._quadrature import standard_normal as standard_normal
from ._stable import is_rounding as is_rounding
from ._stable import mean_and_deviation as mean_and_deviation
from ._stable import safe_root as safe_root
from ._trees import choose as choose
from ._trees import member as member
from ._trees import stack as stack
