"""Linear algebra: factorizations, inverses and determinants, differentiable and safe to batch."""

from ._conditioning import general_log_determinant as general_log_determinant
from ._conditioning import laplace_log_determinant as laplace_log_determinant
from ._conditioning import posterior_marginals as posterior_marginals
from ._conditioning import response as response
from ._inverse import inverse_and_log_determinant as inverse_and_log_determinant
from ._inverse import inverse_diagonal as inverse_diagonal
from ._inverse import solve_and_inverse_diagonal as solve_and_inverse_diagonal
from ._lapack import cholesky as cholesky
from ._lapack import eigh as eigh
from ._lapack import inverse as inverse
from ._lapack import log_determinant as log_determinant
from ._lapack import one_by_one as one_by_one
from ._lapack import solve as solve
from ._lapack import solve_by_factor as solve_by_factor
from ._lapack import solve_triangular as solve_triangular
from ._reduced import reduced_solve as reduced_solve
from ._reduced import sparse_product as sparse_product
from ._reduced import squared_spans as squared_spans
