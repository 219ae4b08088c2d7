"""Systems and spans in which few examples are active, for matrices `V V' + diag(d)` with a tall factor V."""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ._lapack import cholesky, solve_triangular
from ._reduced import SolveOptions, first_active_indices, solve_part, solve_scaled
from ._woodbury import definite_solve, definite_system, inverse_forms, remaining_share


def low_rank_reduced_solve(
    factor: Float[Array, "n p"],
    scale: Float[Array, " n"],
    diagonal: Float[Array, " n"],
    *rights: Float[Array, " n"],
    options: SolveOptions = SolveOptions(),  # noqa: B008, it is immutable
    shards: int = 1,
) -> tuple[Float[Array, " n"], ...]:
    """Solve `(diag(diagonal) + diag(scale) V V' diag(scale)) t = right`, as `reduced_solve` does.

    If at most p examples are active, their matrix is formed and factorized: it is no larger than the one that
    Woodbury's formula inverts, and may be nearly singular. More active examples are gathered into the
    smallest of a few sizes that holds them. With n = 100000, p = 300 and a tenth of the examples active, that
    takes a sixth of the time. If the rows of V are divided among devices, only up to p of them are gathered.

    **Arguments:** `factor`, V; `scale`, zero for inactive examples; `diagonal`, positive; `rights`, one or
    more right-hand sides; `options`; `shards`, the number of devices among which the rows of V are divided.

    **Returns:** one `t` for each right-hand side, zero for inactive examples; NaN if the matrix is not
    positive definite, or if more than p examples are active and one has a diagonal that is not positive.
    """
    examples, rank = factor.shape
    active = scale > 0
    shares = () if examples <= 512 or shards > 1 else (1 / 4,) if options.coarse else (1 / 8, 3 / 8)
    fewer = [size for share in shares if (size := math.ceil(share * examples)) > rank]
    indices = first_active_indices(active, max([rank, *fewer]), shards)

    def gathered(solve, size):
        part = indices[:size]

        def of_part(*system):
            return solve(factor.at[part].get(mode="clip"), *system)

        return lambda: solve_part(of_part, part, scale, diagonal, rights)

    def few(rows, scale, diagonal, rights):
        return solve_scaled(rows @ rows.T, scale, diagonal, rights, options)

    def many(rows, scale, diagonal, rights):
        refinements = options.refinements
        if options.jitter is None:
            system = definite_system(rows, scale, diagonal, shards=shards)
            return tuple(system.solve(jnp.stack(rights), corrections=1 + refinements))
        system = definite_system(rows, scale, diagonal, options.jitter, shards)
        return tuple(system.solve(jnp.stack(rights), refinements=refinements))

    def all_of_them():
        others = [jnp.where(active, right, 0.0) for right in rights]
        return many(factor, scale, jnp.where(active, diagonal, 1.0), others)

    branches = [gathered(few, rank), *(gathered(many, size) for size in fewer), all_of_them]
    index = jnp.sum(jnp.sum(active) > jnp.array([rank, *fewer]))
    return jax.lax.switch(index, branches)


def low_rank_squared_spans(
    factor: Float[Array, "n p"],
    diagonal: Float[Array, " n"],
    free: Bool[Array, " n"],
    has_offset: bool,
    shards: int = 1,
) -> Float[Array, " n"]:
    """`S_i^2 = min l' (V V' + diag(diagonal)) l` with `l_i = 1` and `l_j = 0` unless j is i or free.

    `S_i^2 - diagonal_i` is the squared distance of row `v_i` of V from the span of the rows of the other free
    examples, if a coefficient `l_j` costs `diagonal_j l_j^2`. Up to p free examples (p + 1 with an
    offset) are treated as in `squared_spans`, and their diagonal may be zero. More free examples with a
    diagonal of zero span the whole space, and the distance is zero. To solve systems with them, their
    diagonal is lifted to `4 eps` times the sum of their variances; `S_i^2` is too large by about as much.

    **Arguments:** `factor`, V; `diagonal`, zero or positive; `free`, which examples are free; `has_offset`,
    whether the entries of `l` sum to zero; `shards`, the number of devices among which the rows of V are
    divided.

    **Returns:** one number for each example.
    """
    examples, rank = factor.shape
    if rank + has_offset >= examples:
        return _spans_of_few(factor, diagonal, free, has_offset, shards)
    # without checkpoints, a gradient would store the intermediate arrays of both branches
    return jax.lax.cond(
        jnp.sum(free) <= rank + has_offset,
        jax.checkpoint(partial(_spans_of_few, has_offset=has_offset, shards=shards)),
        jax.checkpoint(partial(_spans_of_many, has_offset=has_offset, shards=shards)),
        factor,
        diagonal,
        free,
    )


def _with_constant(factor, diagonal):
    """V with a constant column, which matters only for vectors whose entries do not sum to zero.

    Then p + 1 free examples and an offset can have a matrix that is not singular.
    """
    amplitude = jax.lax.stop_gradient(jnp.mean(jnp.sum(factor**2, axis=1) + diagonal))
    constant = jnp.sqrt(jnp.where(amplitude > 0, amplitude, 1.0))
    return jnp.concatenate([factor, jnp.broadcast_to(constant, (factor.shape[0], 1))], axis=1)


def _least_diagonal(variances):
    """With at least this on its diagonal, a matrix of these variances has a Cholesky factorization."""
    total = jnp.sum(variances)
    return jnp.where(total > 0, 4 * jnp.finfo(variances.dtype).eps * total, 1.0)


@partial(jax.custom_jvp, nondiff_argnums=(3, 4))
def _spans_of_few(factor, diagonal, free, has_offset: bool, shards: int):
    """By the matrix of the free examples.

    With `u_i = V' l_i`, `S_i^2 = u_i' u_i + sum_j diagonal_j l_ij^2` changes by `2 u_i' dV' l_i + sum_j
    ddiagonal_j l_ij^2`: at the minimum `l` need not be differentiated.
    """
    return _few(factor, diagonal, free, has_offset, shards)[0]


@_spans_of_few.defjvp
def _spans_of_few_jvp(has_offset, shards, primals, tangents):
    factor, diagonal, free = primals
    spans, indices, spanning, ends = _few(factor, diagonal, free, has_offset, shards)
    factor_dot, diagonal_dot, _ = tangents
    outside = (~free).astype(spans.dtype)
    rows = factor_dot.at[indices].get(mode="fill", fill_value=0)
    moves = outside[:, None] * factor_dot + spanning.T @ rows
    costs = diagonal_dot.at[indices].get(mode="fill", fill_value=0) @ spanning**2
    return spans, 2 * jnp.sum(ends * moves, axis=1) + outside * diagonal_dot + costs


def _few(factor, diagonal, free, has_offset: bool, shards: int):
    """`S^2`; the indices of the free examples; for each example in a column their part of `l`; `V' l`."""
    examples = factor.shape[0]
    wide = _with_constant(factor, diagonal) if has_offset else factor
    indices = first_active_indices(free, min(wide.shape), shards)
    counts = indices < examples
    rows = wide.at[indices].get(mode="fill", fill_value=0)
    costs = diagonal.at[indices].get(mode="fill", fill_value=0)
    among = rows @ rows.T
    jitter = _least_diagonal(jnp.diag(among) + costs)
    root = cholesky(among + jnp.diag(jnp.where(counts, costs + jitter, 1.0)))
    inverse_root = solve_triangular(root, jnp.eye(root.shape[0], dtype=root.dtype))
    itself = indices[:, None] == jnp.arange(examples)[None, :]
    rights = jnp.where(free[None, :], itself.astype(rows.dtype), rows @ wide.T)
    answers = inverse_root.T @ (inverse_root @ rights)
    # the free examples' share of the condition that `l` sums to zero
    shared = jnp.zeros_like(costs)
    if has_offset:
        per_offset = inverse_root.T @ (inverse_root @ counts.astype(rows.dtype))
        total = jnp.sum(per_offset)
        column = per_offset / jnp.where(total > 0, total, 1.0)
        projected = answers - column[:, None] * jnp.sum(answers, axis=0)[None, :]
        # a single free example cannot satisfy this condition with the help of another
        alone = free & (jnp.sum(free) == 1)
        answers, shared = jnp.where(alone[None, :], answers, projected), column
    pivots = jnp.where(free, jnp.sum(jnp.where(itself, answers, 0.0), axis=0), 1.0)
    spanning = jnp.where(free[None, :], answers / pivots[None, :], -answers - shared[:, None])
    outside = (~free).astype(rows.dtype)
    ends = outside[:, None] * factor + spanning.T @ rows[:, : factor.shape[1]]
    spans = jnp.sum(ends**2, axis=1) + outside * diagonal + costs @ spanning**2
    return spans, indices, spanning, ends


def _spans_of_many(factor, diagonal, free, has_offset: bool, shards: int):
    """By Woodbury's formula, which needs a positive diagonal."""
    if has_offset:
        factor = _with_constant(factor, diagonal)
    variances = jnp.sum(factor**2, axis=1)
    least = _least_diagonal(jnp.where(free, variances + diagonal, 0.0))
    lift = jax.lax.stop_gradient(jnp.where(free, jnp.maximum(least - diagonal, 0.0), 0.0))
    lifted = jnp.where(free, diagonal + lift, 1.0)
    scale = free.astype(factor.dtype)
    system = definite_system(factor, scale, lifted, shards=shards)
    forms = inverse_forms(factor, system.inner, True)
    pivots = remaining_share(scale / lifted, forms, variances) / lifted
    spans = diagonal + forms
    if has_offset:
        per_offset = definite_solve(system, scale)
        total = jnp.sum(per_offset)
        # no example is further from the others than twice the largest deviation
        lowest = 1 / (8 * jnp.max(jnp.where(free, variances + lifted, 0.0)))
        projected = pivots - per_offset**2 / total
        pivots = jnp.where(projected < lowest, lowest, projected)
        spans = spans + (1 - factor @ (per_offset @ factor)) ** 2 / total
    return jnp.where(free, 1 / pivots - lift, spans)
