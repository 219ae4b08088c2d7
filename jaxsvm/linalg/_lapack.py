"""Factorizations and linear systems, one matrix at a time.

On a CPU, a batched LAPACK call divides its batch among the threads of the pool that runs the program, and
waits for them. Several such calls at once can occupy all threads and deadlock (seen with jaxlib 0.10.2, three
calls on two cores). So this module processes the members of a batch one after the other. All functions are
differentiable in forward and reverse mode, to any order.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def one_by_one(function: Callable[..., Any], shared: int = 0) -> Callable[..., Any]:
    """Make `vmap` of a function process the members of a batch one after the other on a CPU.

    Each member does only its own work: a loop ends when its own condition is met, and only one of several
    branches runs. Reverse mode needs a derivative rule for the result.

    **Arguments:** `function`, whose arguments are any pytrees and which captures no traced arrays; `shared`,
    the number of leading arguments whose work, such as a factorization, can be shared across the batch: if
    they are the same for all members, the members are computed together.

    **Returns:** a function of the same arguments.
    """
    if jax.default_backend() != "cpu":
        return function
    single = jax.custom_batching.custom_vmap(function)

    @single.def_vmap
    def rule(axis_size, in_batched, *arguments):
        if shared and not any(jax.tree.leaves(in_batched[:shared])):
            axes = jax.tree.map(lambda batched: 0 if batched else None, tuple(in_batched))
            together = jax.vmap(function, in_axes=axes, axis_size=axis_size)
            answers = one_by_one(together, shared)(*arguments)
        else:
            leaves, structure = jax.tree.flatten(arguments)
            batched = jax.tree.leaves(in_batched)

            def member(batched_leaves):
                rest = iter(batched_leaves)
                all_leaves = [
                    next(rest) if b else leaf for leaf, b in zip(leaves, batched, strict=True)
                ]
                return single(*structure.unflatten(all_leaves))

            batched_leaves = [leaf for leaf, b in zip(leaves, batched, strict=True) if b]
            answers = jax.lax.map(member, batched_leaves)
        return answers, jax.tree.map(lambda _: True, answers)

    return single


@jax.custom_jvp
def cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The lower triangular L with `L L' = matrix`.

    **Arguments:** `matrix`, symmetric; its lower triangle is read.

    **Returns:** L; NaN if the matrix is not positive definite.
    """
    return one_by_one(_cholesky)(matrix)


def _cholesky(matrix):
    return jax.lax.linalg.cholesky(matrix, symmetrize_input=False)


@cholesky.defjvp
def _cholesky_jvp(primals, tangents):
    """`dL = L half(L^-1 dmatrix L'^-1)`, where `half` is the lower triangle with half of the diagonal."""
    factor = cholesky(*primals)
    change = (tangents[0] + tangents[0].T) / 2
    inner = solve_triangular(factor, solve_triangular(factor, change).T)
    half = jnp.tril(inner) - jnp.diag(jnp.diag(inner)) / 2
    return factor, factor @ half


def solve_triangular(
    factor: Float[Array, "n n"], rights: Float[Array, "n ..."], transposed: bool = False
) -> Float[Array, "n ..."]:
    """`L^-1 rights`, or `L'^-1 rights`, for a lower triangular L.

    **Arguments:** `factor`, L; `rights`, a right-hand side or several columns; `transposed`, whether to solve
    with `L'`.

    **Returns:** an array of the shape of `rights`.
    """

    def product(answers):
        triangle = jnp.tril(factor)
        return (triangle.T if transposed else triangle) @ answers

    return jax.lax.custom_linear_solve(
        product,
        rights,
        lambda _, rights: _solve_triangular(factor, rights, transposed),
        lambda _, rights: _solve_triangular(factor, rights, not transposed),
    )


def _solve_triangular(factor, rights, transposed: bool):
    def run(factor, rights):
        columns = rights if rights.ndim == 2 else rights[:, None]
        answers = jax.lax.linalg.triangular_solve(
            factor, columns, left_side=True, lower=True, transpose_a=transposed
        )
        return answers.reshape(rights.shape)

    return one_by_one(run, shared=1)(factor, rights)


def solve_by_factor(
    factor: Float[Array, "n n"], rights: Float[Array, "n ..."]
) -> Float[Array, "n ..."]:
    """`(L L')^-1 rights` for a lower triangular L.

    **Arguments:** `factor`, L, as `cholesky` returns it; `rights`, a right-hand side or several columns.

    **Returns:** an array of the shape of `rights`.
    """
    return solve_triangular(factor, solve_triangular(factor, rights), transposed=True)


def solve(matrix: Float[Array, "n n"], rights: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
    """`matrix^-1 rights` for any invertible matrix.

    **Arguments:** `matrix`, square; `rights`, a right-hand side or several columns.

    **Returns:** an array of the shape of `rights`.
    """
    run = one_by_one(jnp.linalg.solve, shared=1)
    return jax.lax.custom_linear_solve(
        lambda answers: matrix @ answers,
        rights,
        lambda _, rights: run(matrix, rights),
        lambda _, rights: run(matrix.T, rights),
    )


def inverse(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The inverse of any invertible matrix.

    **Arguments:** `matrix`, square.

    **Returns:** a matrix.
    """
    return solve(matrix, jnp.eye(matrix.shape[0], dtype=matrix.dtype))


@jax.custom_jvp
def log_determinant(matrix: Float[Array, "n n"]) -> Float[Array, ""]:
    """`ln det matrix` for any square matrix.

    **Arguments:** `matrix`, square.

    **Returns:** a number; NaN if the determinant is not positive.
    """
    sign, value = one_by_one(lambda matrix: tuple(jnp.linalg.slogdet(matrix)))(matrix)
    return jnp.where(sign > 0, value, jnp.nan)


@log_determinant.defjvp
def _log_determinant_jvp(primals, tangents):
    return log_determinant(*primals), jnp.vdot(inverse(*primals).T, tangents[0])


@jax.custom_jvp
def eigh(matrix: Float[Array, "n n"]) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """Eigenvalues, in ascending order, and eigenvectors of a symmetric matrix.

    If two eigenvalues coincide, their eigenvectors have no derivative: it is not finite.

    **Arguments:** `matrix`, symmetric.

    **Returns:** the eigenvalues, and the eigenvectors in columns.
    """
    values, vectors = one_by_one(lambda matrix: tuple(jnp.linalg.eigh(matrix)))(matrix)
    return values, vectors


@eigh.defjvp
def _eigh_jvp(primals, tangents):
    """`dvectors = vectors F`, `F_ij = (vectors' dmatrix vectors)_ij / (value_j - value_i)`, `F_ii = 0`."""
    values, vectors = eigh(*primals)
    turned = vectors.T @ tangents[0] @ vectors
    same = jnp.eye(values.shape[0], dtype=bool)
    gaps = jnp.where(same, 1.0, values[None, :] - values[:, None])
    return (values, vectors), (jnp.diag(turned), vectors @ jnp.where(same, 0.0, turned / gaps))
