"""The linear algebra of support vectors: products, systems and spans in which few examples are active.

Shapes are static, but the work is not: the active examples, usually few, are gathered into the smallest of
a few static sizes that holds them.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from ._inverse import quadratic_forms
from ._lapack import cholesky, solve_by_factor


def sizes(examples: int) -> tuple[int, ...]:
    """The static sizes for a number of examples; the largest is that number."""
    if examples <= 64:
        return (examples,)
    shares = {1 / 4, 1 / 2, 1.0}
    if examples > 512:  # where solving costs more than compiling
        shares |= {1 / 16, 1 / 8, 3 / 8, 3 / 4}
    return tuple(sorted({math.ceil(share * examples) for share in shares}))


def sparse_product(gram: Float[Array, "n n"], vector: Float[Array, " n"]) -> Float[Array, " n"]:
    """`gram @ vector` for a symmetric matrix and a vector whose entries are mostly zero.

    **Arguments:** `gram`, symmetric; `vector`, with one entry for each row.

    **Returns:** the product; on a CPU its cost is n times the number of nonzero entries.
    """
    if jax.default_backend() != "cpu":
        return gram @ vector
    active = vector != 0
    indices = active_indices(active)

    # one row at a time: memory limits a CPU here, and this reads only the rows that count
    def add_row(state):
        count, total = state
        index = indices[count]
        return count + 1, total + vector[index] * gram[index]

    count = jnp.sum(active)
    start = (0, jnp.zeros_like(vector))
    return jax.lax.while_loop(lambda state: state[0] < count, add_row, start)[1]


def active_indices(active: Bool[Array, " n"]) -> Int[Array, " n"]:
    """The indices of the active examples in order, padded with n."""
    examples = active.shape[0]
    # equals `jnp.nonzero(active, size=n, fill_value=n)`, but compiles five times as fast
    return jnp.sort(jnp.where(active, jnp.arange(examples), examples))


def count_active(active: Bool[Array, " n"], shards: int = 1) -> Int[Array, " n"]:
    """The number of active examples up to and including each one.

    **Arguments:** `active`; `shards`, the number of devices among which the examples are divided. Each counts
    its own, and they exchange only their totals.

    **Returns:** one number for each example.
    """
    if shards == 1:
        return jnp.cumsum(active)
    within = jnp.cumsum(active.reshape(shards, -1), axis=1)
    totals = within[:, -1]
    return (within + (jnp.cumsum(totals) - totals)[:, None]).reshape(-1)


def first_active_indices(active: Bool[Array, " n"], size: int, shards: int) -> Int[Array, " k"]:
    """The first indices of the active examples in order, at most `size`, padded with n.

    With several shards, equal stretches of the examples, each is sorted by itself, and only its first indices
    leave it.
    """
    examples = active.shape[0]
    if shards == 1:
        return active_indices(active)[:size]
    indices = jnp.where(active, jnp.arange(examples), examples).reshape(shards, -1)
    first = jnp.sort(indices, axis=1)[:, :size]
    return jnp.sort(first.reshape(-1))[:size]


def thinned(rows: Shaped[Array, "n ..."], stride: int, shards: int) -> Shaped[Array, "k ..."]:
    """The first row of each device's share, and one in every `stride` after it.

    **Arguments:** `rows`; `stride`; `shards`, the number of devices among which the
    rows are divided, in equal parts.

    **Returns:** the rows, divided in the same way.
    """
    rest = rows.shape[1:]
    return rows.reshape(shards, -1, *rest)[:, ::stride].reshape(-1, *rest)


class SolveOptions(NamedTuple):
    """How to solve a system for the active examples.

    `jitter` is added to the diagonal before the factorization; `refinements` is the number of steps of
    iterative refinement, which remove the effect of the jitter; `coarse` says whether to compile fewer sizes,
    for when compiling costs more than solving.
    """

    jitter: Float[Array, ""] | float | None = None
    refinements: int = 0
    coarse: bool = False


def reduced_solve(
    gram: Float[Array, "n n"],
    scale: Float[Array, " n"],
    diagonal: Float[Array, " n"],
    *rights: Float[Array, " n"],
    options: SolveOptions = SolveOptions(),  # noqa: B008, it is immutable
) -> tuple[Float[Array, " n"], ...]:
    """Solve `(diag(diagonal) + diag(scale) gram diag(scale)) t = right` by one Cholesky factorization.

    **Arguments:** `gram`, symmetric; `scale`, zero for inactive examples; `diagonal`, positive; `rights`, one
    or more right-hand sides (separate, since a derivative may be linear in only one of them); `options`.

    **Returns:** one `t` for each right-hand side, zero for inactive examples, NaN if the matrix is not
    positive definite.
    """
    examples = gram.shape[0]
    active = scale > 0
    fewer = sizes(examples)[:-1]
    if options.coarse:
        fewer = tuple(size for size in fewer if size == -(-examples // 4))

    def solve_all():
        answers = solve_scaled(gram, scale, diagonal, rights, options)
        return tuple(jnp.where(active, answer, 0.0) for answer in answers)

    if not fewer:
        return solve_all()
    index, indices = jnp.sum(jnp.sum(active) > jnp.array(fewer)), active_indices(active)

    def gathered(size):
        part = indices[:size]

        def solve(*system):
            matrix = gram.at[part].get(mode="clip").at[:, part].get(mode="clip")
            return solve_scaled(matrix, *system, options=options)

        return lambda: solve_part(solve, part, scale, diagonal, rights)

    return jax.lax.switch(index, [gathered(size) for size in fewer] + [solve_all])


def solve_part(solve, part, scale, diagonal, rights):
    """`solve(scale, diagonal, rights)` for the examples in `part`, with zeros for all others."""
    answers = solve(
        scale.at[part].get(mode="fill", fill_value=0),
        diagonal.at[part].get(mode="fill", fill_value=1),
        [right.at[part].get(mode="fill", fill_value=0) for right in rights],
    )
    return tuple(
        jnp.zeros_like(right).at[part].add(answer, mode="drop")
        for right, answer in zip(rights, answers, strict=True)
    )


def scaled_matrix(
    gram: Float[Array, "n n"], scale: Float[Array, " n"], diagonal: Float[Array, " n"]
) -> Float[Array, "n n"]:
    """`diag(scale) gram diag(scale) + diag(diagonal)`.

    All functions write it in this way, so that the compiler factorizes it once for several of them.

    **Arguments:** `gram`, symmetric; `scale`, `diagonal`, one number for each example.

    **Returns:** a symmetric matrix.
    """
    return scale[:, None] * gram * scale[None, :] + jnp.diag(diagonal)


def solve_scaled(gram, scale, diagonal, rights, options: SolveOptions):
    """Solve `(diag(diagonal) + diag(scale) gram diag(scale)) t = right` for all examples."""
    matrix = scaled_matrix(gram, scale, diagonal)
    eye = jnp.eye(matrix.shape[0], dtype=matrix.dtype)
    lifted = matrix if options.jitter is None else matrix + options.jitter * eye
    factor = cholesky(lifted)
    answers = []
    for right in rights:
        answer = solve_by_factor(factor, right)
        for _ in range(options.refinements):
            residual = right - matrix @ answer
            answer = answer + solve_by_factor(factor, residual)
        answers.append(answer)
    return tuple(answers)


def squared_spans(
    matrix: Float[Array, "n n"], free: Bool[Array, " n"], has_offset: bool
) -> Float[Array, " n"]:
    """`S_i^2 = min l' matrix l` over vectors with `l_i = 1` and `l_j = 0` unless j is i or free.

    `S_i` is the distance of an example from the span of the free examples.

    **Arguments:** `matrix`, positive semi-definite; `free`, which examples are free; `has_offset`, whether
    the entries of `l` sum to zero.

    **Returns:** one number for each example.
    """
    return _squared_spans(matrix, free, has_offset)


# at the minimum the derivative is `l' dmatrix l`, so `l` itself need not be differentiated
@partial(jax.custom_jvp, nondiff_argnums=(2,))
def _squared_spans(matrix, free, has_offset: bool):
    return quadratic_forms(_spanning(matrix, free, has_offset), matrix)


@_squared_spans.defjvp
def _squared_spans_jvp(has_offset, primals, tangents):
    matrix, free = primals
    spanning = _spanning(matrix, free, has_offset)
    return quadratic_forms(spanning, matrix), quadratic_forms(spanning, tangents[0])


def _spanning(matrix, free, has_offset: bool) -> Float[Array, "n n"]:
    """The minimizing vectors `l`, one in each column.

    A jitter of `4 n eps` times the mean variance makes singular systems solvable. It moves `l` only in
    directions in which `l' matrix l` is flat.
    """
    examples, dtype = matrix.shape[0], matrix.dtype
    eye = jnp.eye(examples, dtype=dtype)
    mask = free.astype(dtype)
    amplitude = jnp.mean(jnp.diag(matrix))
    jitter = 4 * examples * float(jnp.finfo(dtype).eps) * amplitude
    masked = mask[:, None] * matrix * mask[None, :]
    factor = cholesky(masked + jnp.diag(jnp.where(free, jitter, amplitude)))
    rights = mask[:, None] * jnp.where(free[None, :], eye, matrix)
    answers = solve_by_factor(factor, rights)
    shared = jnp.zeros_like(mask)  # the free examples' share of the condition that `l` sums to zero
    if has_offset:
        per_offset = solve_by_factor(factor, mask)
        total = jnp.sum(per_offset)
        column = per_offset / jnp.where(total > 0, total, 1.0)
        projected = answers - column[:, None] * jnp.sum(answers, axis=0)[None, :]
        # a single free example cannot satisfy this condition with the help of another
        alone = free & (jnp.sum(mask) == 1)
        answers, shared = jnp.where(alone[None, :], answers, projected), column
    pivots = jnp.where(free, jnp.diag(answers), 1.0)
    return jnp.where(free[None, :], answers / pivots[None, :], eye - answers - shared[:, None])
