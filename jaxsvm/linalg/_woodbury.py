"""Matrices `diag(d) + diag(a) V V' diag(b)` with a tall factor V: their inverses, by Woodbury's formula.

All of them act through the p x p matrix `I + V' diag(a b / d) V`, p the number of columns of V. The work is
that of a few products with V; no array has two axes as long as V.
"""

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from . import _lapack
from ._lapack import cholesky, solve_by_factor, solve_triangular

_BLOCK = 1024  # rows of V that are multiplied at a time


def weighted_gram(
    rows: Float[Array, "n p"], weights: Float[Array, " n"], shards: int = 1
) -> Float[Array, "p p"]:
    """`V' diag(weights) V`.

    The change is a matrix plus its transpose, which saves one of the two large products of a gradient.

    **Arguments:** `rows`, V; `weights`, one for each row; `shards`, the number of devices among which the
    rows are divided.

    **Returns:** a symmetric matrix.
    """
    return _weighted_gram(rows, weights, shards)


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def _weighted_gram(rows, weights, shards):
    if rows.shape[0] < 2 * _BLOCK * shards:
        return _gram_at_once(rows, weights)
    by_blocks = _gram_by_blocks if shards == 1 else partial(_gram_of_shards, shards)
    return jax.lax.platform_dependent(rows, weights, cpu=by_blocks, default=_gram_at_once)


@_weighted_gram.defjvp
def _weighted_gram_jvp(shards, primals, tangents):
    rows, weights = primals
    rows_dot, weights_dot = tangents
    half = rows.T @ (weights[:, None] * rows_dot + weights_dot[:, None] * rows / 2)
    return _weighted_gram(rows, weights, shards), half + half.T


def _gram_at_once(rows, weights):
    return rows.T @ (weights[:, None] * rows)


def _gram_by_blocks(rows, weights):
    """Blocks of rows stay in a CPU's cache, and one of the two equal quarters is left out.

    With 50,000 rows and 300 columns it takes two thirds of the time, and no array as large as V.
    """
    half = rows.shape[1] // 2

    def parts(rows, weights):
        weighted = weights[:, None] * rows
        return rows[:, :half].T @ weighted, rows[:, half:].T @ weighted[:, half:]

    def add_block(sums, number):
        block = (
            jax.lax.dynamic_slice_in_dim(it, number * _BLOCK, _BLOCK) for it in (rows, weights)
        )
        return jax.tree.map(jnp.add, sums, parts(*block)), None

    blocks = rows.shape[0] // _BLOCK
    rest = parts(rows[blocks * _BLOCK :], weights[blocks * _BLOCK :])
    (top, corner), _ = jax.lax.scan(add_block, rest, jnp.arange(blocks))
    bottom = jnp.concatenate([top[:, half:].T, corner], axis=1)
    return jnp.concatenate([top, bottom])


def _gram_of_shards(shards: int, rows, weights):
    """Each device adds up its own rows; then they exchange one sum."""
    parts = rows.reshape(shards, -1, rows.shape[1]), weights.reshape(shards, -1)
    return jnp.sum(jax.vmap(_gram_by_blocks)(*parts), axis=0)


def inner_matrix(
    rows: Float[Array, "n p"], weights: Float[Array, " n"], shards: int = 1
) -> Float[Array, "p p"]:
    """`I + V' diag(weights) V`, the matrix that Woodbury's formula inverts.

    **Arguments:** `rows`, V; `weights`, one for each row; `shards`, the number of devices among which the
    rows are divided.

    **Returns:** a symmetric matrix, positive definite if no weight is negative.
    """
    return jnp.eye(rows.shape[1], dtype=rows.dtype) + weighted_gram(rows, weights, shards)


def inverse_forms(
    rows: Float[Array, "n p"], matrix: Float[Array, "p p"], definite: bool
) -> Float[Array, " n"]:
    """`v' matrix^-1 v` for each row v.

    With w the rows of `V matrix^-1`, these change by `2 w' dv - w' dmatrix w`, so a gradient stores one
    array of the size of V.

    **Arguments:** `rows`, V; `matrix`, symmetric; `definite`, whether it is positive definite.

    **Returns:** one number for each row; NaN if a definite matrix is not positive definite.
    """
    return _inverse_forms(rows, matrix, definite)


# a separate function, since type checkers do not know what JAX's decorator returns
@partial(jax.custom_jvp, nondiff_argnums=(2,))
def _inverse_forms(rows, matrix, definite):
    return _forms_and_rows(rows, matrix, definite)[0]


@_inverse_forms.defjvp
def _inverse_forms_jvp(definite, primals, tangents):
    rows, matrix = primals
    forms, solved = _forms_and_rows(rows, matrix, definite)
    rows_dot, matrix_dot = tangents
    change = 2 * jnp.sum(solved * rows_dot, axis=1)
    return forms, change - jnp.sum((solved @ matrix_dot) * solved, axis=1)


def _forms_and_rows(rows, matrix, definite: bool):
    """The forms, and the rows of `V matrix^-1`."""
    if not definite:
        solved = rows @ _lapack.inverse(matrix)
        return jnp.sum(solved * rows, axis=1), solved
    # Products with the inverse of the Cholesky factor: ten times as fast as substitution with as many
    # columns as V has rows, and the relative error grows only with the root of the condition number.
    # With the inverse of the matrix it would grow with the condition number.
    root = solve_triangular(cholesky(matrix), jnp.eye(matrix.shape[0], dtype=matrix.dtype))
    half = rows @ root.T
    return jnp.sum(half**2, axis=1), half @ root


def remaining_share(
    weights: Float[Array, " n"], forms: Float[Array, " n"], squares: Float[Array, " n"]
) -> Float[Array, " n"]:
    """`1 - weights forms`, the part of each example that the factor does not explain.

    The diagonal of `(diag(d) + diag(s) V V' diag(s))^-1` is this share divided by d. If the share is small,
    rounding errors of about `eps weights squares` dominate it; they never make it much smaller than its
    least possible value, `1 / (1 + weights squares)`.

    **Arguments:** `weights`, `s^2 / d`, none negative; `forms`, `v' (I + V' diag(weights) V)^-1 v` for each
    row v of V; `squares`, `v' v`.

    **Returns:** one number for each example.
    """
    share, least = 1 - weights * forms, 1 / (1 + weights * squares)
    return jnp.where(share < least / 2, least, share)


class LowRankSystem(eqx.Module):
    """The matrix `M = diag(d) + diag(left) V V' diag(right)`, with the parts that Woodbury's formula needs.

    `factor` is V, `diagonal` is d; `left` and `right` have one number for each row of V. `lifted` is the
    diagonal that the solver uses, larger than d if d alone is too small. `inner` is
    `I + V' diag(left right / lifted) V`, and `definite` says whether that is positive definite.
    """

    factor: Float[Array, "n p"]
    left: Float[Array, " n"]
    right: Float[Array, " n"]
    diagonal: Float[Array, " n"]
    lifted: Float[Array, " n"]
    inner: Float[Array, "p p"]
    definite: bool = eqx.field(static=True)

    def products(self, vectors: Float[Array, "k n"]) -> Float[Array, "k n"]:
        """The products of M with vectors.

        **Arguments:** `vectors`, one in each row.

        **Returns:** one product in each row.
        """
        inside = (vectors * self.right[None, :]) @ self.factor
        return vectors * self.diagonal[None, :] + self.left[None, :] * (inside @ self.factor.T)

    def solve(
        self, rights: Float[Array, "k n"], corrections: int = 1, refinements: int = 0
    ) -> Float[Array, "k n"]:
        """Solve `M t = r` by Woodbury's formula and corrections of its rounding errors.

        The formula is `t = g / d` with `g = r - left V z` and `z = inner^-1 V' (right r / d)`. Its residual
        is `r - M t = left V (z - V' (right t))`, apart from the rounding error of g. As `M^-1 left V` is
        `diag(left / d) V inner^-1`, adding `left V inner^-1 (z - V' (right t))` to g corrects t.

        **Arguments:** `rights`, r, one in each row; `corrections`, how many to make, each at the cost of two
        products of V with a vector; `refinements`, steps of iterative refinement, which correct for the
        difference between `lifted` and `diagonal`.

        **Returns:** one t in each row; NaN if `inner` is not positive definite and should be.
        """
        # In the formula alone, if r is in the range of `left V`, g nearly vanishes. Its rounding error,
        # divided by d, is `eps |V V'| / d` times as large as t. In a correction nothing cancels. Residuals
        # relative to `|M| |t|` for r in the range, with n = 1500, p = 100, three factors with `|V V'|` of 20
        # to 750 amplitudes (mean variances), and d from 1 to 1e-14 amplitudes (to 1e-7 in float32):
        # - the formula alone: 1e-15 to 1, in proportion to 1 / d (float32: 1e-6 to 1); no better with
        #   a QR factorization of `d^(-1/2) V` in place of the Cholesky factorization of `inner`;
        # - with one correction: at most 4e-16 for d down to 1e-12 amplitudes, like a Cholesky factorization
        #   of M, and 6e-14 below, where that fails (float32: 2e-7 down to 1e-3 amplitudes, 2e-4 below;
        #   solvers use `4 n eps` and more, here 7e-4); with two: at most 4e-16 (float32: 1e-7);
        # - with a step of iterative refinement, which costs twice as much: the first error, squared.
        # For random r the formula alone is as exact as a Cholesky factorization.
        if self.definite:
            solve_inner = partial(solve_by_factor, cholesky(self.inner))
        else:
            solve_inner = partial(jnp.matmul, _lapack.inverse(self.inner))
        share = (self.right / self.lifted)[None, :]

        def solve(rights):
            gap, inside = rights, jnp.zeros((rights.shape[0], self.factor.shape[1]), rights.dtype)
            for _ in range(1 + corrections):
                change = solve_inner((inside - (share * gap) @ self.factor).T).T
                gap = gap + self.left[None, :] * (change @ self.factor.T)
                inside = inside - change
            return gap / self.lifted[None, :]

        answers = solve(rights)
        for _ in range(refinements):
            answers = answers + solve(rights - self.products(answers))
        return answers


def definite_system(
    factor: Float[Array, "n p"],
    scale: Float[Array, " n"],
    diagonal: Float[Array, " n"],
    jitter: Float[Array, ""] | float = 0.0,
    shards: int = 1,
) -> LowRankSystem:
    """The matrix `diag(diagonal) + diag(scale) V V' diag(scale)`, for a positive diagonal.

    **Arguments:** `factor`, V; `scale`, `diagonal`, one number for each row; `jitter`, added to the diagonal
    that the solver uses; `shards`, the number of devices among which the rows of V are divided.

    **Returns:** a `LowRankSystem`; NaN if an entry of the diagonal with jitter is not positive.
    """
    lifted = diagonal + jitter
    lifted = jnp.where(jnp.all(lifted > 0), lifted, jnp.nan)
    inner = inner_matrix(factor, scale**2 / lifted, shards)
    return LowRankSystem(factor, scale, scale, diagonal, lifted, inner, True)


def definite_solve(system: LowRankSystem, right: Float[Array, " n"]) -> Float[Array, " n"]:
    """Solve a symmetric system, with derivatives of any order.

    **Arguments:** `system`, from `definite_system`; `right`, the right-hand side.

    **Returns:** a vector; NaN if the matrix is not positive definite.
    """
    fixed = jax.lax.stop_gradient(system)
    return jax.lax.custom_linear_solve(
        lambda vector: system.products(vector[None, :])[0],
        right,
        lambda _, right: fixed.solve(right[None, :])[0],
        symmetric=True,
    )


def general_solve(
    factor: Float[Array, "n p"],
    diagonal: Float[Array, " n"],
    scale: Float[Array, " n"],
    right: Float[Array, " n"],
    shards: int = 1,
) -> Float[Array, " n"]:
    """`(diag(diagonal) + diag(scale) V V')^-1 right` for numbers of any sign, with derivatives of any order.

    **Arguments:** `factor`, V; `diagonal`, not zero; `scale`; `right`, the right-hand side; `shards`, the
    number of devices among which the rows of V are divided.

    **Returns:** a vector.
    """
    inner = inner_matrix(factor, scale / diagonal, shards)
    ones = jnp.ones_like(scale)
    system = LowRankSystem(factor, scale, ones, diagonal, diagonal, inner, False)
    fixed = jax.lax.stop_gradient(system)
    transposed = dataclasses.replace(fixed, left=fixed.right, right=fixed.left)
    return jax.lax.custom_linear_solve(
        lambda vector: system.products(vector[None, :])[0],
        right,
        lambda _, right: fixed.solve(right[None, :])[0],
        lambda _, right: transposed.solve(right[None, :])[0],
    )
