"""The linear algebra of support vectors: products and systems in which most examples take no part.

Shapes are fixed, but the work is not: the examples that take part, usually few, are gathered into the
smallest of a few static sizes that holds them.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ._lapack import cholesky, solve_by_factor


def sizes(examples: int) -> tuple[int, ...]:
    """The static sizes for a problem with that many examples: the largest is all of them."""
    if examples <= 64:
        return (examples,)
    shares = {1 / 4, 1 / 2, 1.0}
    if examples > 512:  # where solving costs more than compiling
        shares |= {1 / 16, 1 / 8, 3 / 8, 3 / 4}
    return tuple(sorted({math.ceil(share * examples) for share in shares}))


def sparse_product(gram: Float[Array, "n n"], vector: Float[Array, " n"]) -> Float[Array, " n"]:
    """`gram @ vector` for a symmetric matrix and a vector of which most entries may be zero.

    **Arguments:** `gram`, symmetric; `vector`, with one entry for each row.

    **Returns:** the product; on a CPU it costs the number of entries that are not zero times n.
    """
    if jax.default_backend() != "cpu":
        return gram @ vector
    active = vector != 0
    places = active_places(active)

    # one row at a time: a CPU waits for memory here, and no row is read or copied in vain
    def add_row(state):
        count, total = state
        place = places[count]
        return count + 1, total + vector[place] * gram[place]

    count = jnp.sum(active)
    start = (0, jnp.zeros_like(vector))
    return jax.lax.while_loop(lambda state: state[0] < count, add_row, start)[1]


def active_places(active: Bool[Array, " n"]) -> Int[Array, " n"]:
    """The places of the active examples, in order, then n for the others."""
    examples = active.shape[0]
    # the same as `jnp.nonzero`, but it compiles five times as fast
    return jnp.sort(jnp.where(active, jnp.arange(examples), examples))


def reduced_solve(
    gram: Float[Array, "n n"],
    scale: Float[Array, " n"],
    diagonal: Float[Array, " n"],
    *rights: Float[Array, " n"],
    jitter: Float[Array, ""] | float | None = None,
    refinements: int = 0,
    coarse: bool = False,
) -> tuple[Float[Array, " n"], ...]:
    """Solve `(diag(diagonal) + diag(scale) gram diag(scale)) t = right` by one Cholesky factorization.

    **Arguments:** `gram`, symmetric; `scale`, zero for examples that take no part; `diagonal`, positive;
    `rights`, one or more right-hand sides (apart, since a derivative may be linear in one of them only);
    `jitter`, added to the diagonal of what is factorized; `refinements`, steps of iterative refinement,
    which remove what the jitter did to the answer; `coarse`, whether to compile for two sizes only,
    where compiling costs more than solving.

    **Returns:** one `t` for each right-hand side, zero for examples that take no part, NaN where the
    matrix is not positive definite.
    """
    examples = gram.shape[0]
    active = scale > 0
    options = sizes(examples)[:-1]
    if coarse:
        options = tuple(size for size in options if size == -(-examples // 4))

    def solve_all(_):
        answers = _solve_scaled(gram, scale, diagonal, rights, jitter, refinements)
        return tuple(jnp.where(active, answer, 0.0) for answer in answers)

    if not options:
        return solve_all(None)
    index, places = jnp.sum(jnp.sum(active) > jnp.array(options)), active_places(active)

    def gathered(size):
        def branch(_):
            some = places[:size]
            answers = _solve_scaled(
                gram.at[some].get(mode="clip").at[:, some].get(mode="clip"),
                scale.at[some].get(mode="fill", fill_value=0),
                diagonal.at[some].get(mode="fill", fill_value=1),
                [right.at[some].get(mode="fill", fill_value=0) for right in rights],
                jitter,
                refinements,
            )
            return tuple(
                jnp.zeros_like(right).at[some].add(answer, mode="drop")
                for right, answer in zip(rights, answers, strict=True)
            )

        return branch

    return jax.lax.switch(index, [gathered(size) for size in options] + [solve_all], None)


def _solve_scaled(gram, scale, diagonal, rights, jitter, refinements: int):
    """The same system for examples that all take part."""
    matrix = scale[:, None] * gram * scale[None, :] + jnp.diag(diagonal)
    eye = jnp.eye(matrix.shape[0], dtype=matrix.dtype)
    lifted = matrix if jitter is None else matrix + jitter * eye
    factor = cholesky(lifted)
    answers = []
    for right in rights:
        answer = solve_by_factor(factor, right)
        for _ in range(refinements):
            left_over = right - matrix @ answer
            answer = answer + solve_by_factor(factor, left_over)
        answers.append(answer)
    return tuple(answers)
