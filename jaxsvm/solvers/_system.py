"""The one linear system of the library: `(diag(d) + S K S) t = r`, restricted to where `S` is not zero.

Newton steps, implicit derivatives and (with another diagonal) Laplace determinants all need it. Shapes
are fixed, but the work is not: the examples with `S > 0`, usually few, are gathered into the smallest
of a few static sizes that holds them, so that the factorization costs their number cubed.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def sizes(examples: int) -> tuple[int, ...]:
    """The static sizes for a problem with that many examples: the largest is all of them."""
    if examples <= 64:
        return (examples,)
    return tuple(sorted({-(-examples // 2**k) for k in range(5)}))


def reduced_solve(
    gram: Float[Array, "n n"],
    scale: Float[Array, " n"],
    diagonal: Float[Array, " n"],
    right: Float[Array, "n k"],
    jitter: Float[Array, ""] | float | None = None,
    refinements: int = 0,
) -> Float[Array, "n k"]:
    """Solve `(diag(diagonal) + diag(scale) gram diag(scale)) t = right` by Cholesky.

    **Arguments:** `gram`, symmetric; `scale`, zero for examples that take no part; `diagonal`, positive;
    `right`, one column for each right-hand side; `jitter`, added to the diagonal of what is factorized;
    `refinements`, steps of iterative refinement, which remove what the jitter did to the answer.

    **Returns:** `t`, zero for examples that take no part, NaN where the matrix is not positive definite.
    """
    examples = gram.shape[0]
    active = scale > 0
    count = jnp.sum(active)
    options = sizes(examples)

    def solve_dense(sub, scales, diagonals, rights):
        matrix = scales[:, None] * sub * scales[None, :] + jnp.diag(diagonals)
        eye = jnp.eye(matrix.shape[0], dtype=matrix.dtype)
        lifted = matrix if jitter is None else matrix + jitter * eye
        factor = jax.lax.linalg.cholesky(lifted, symmetrize_input=False)
        answer = jax.scipy.linalg.cho_solve((factor, True), rights)
        for _ in range(refinements):
            left_over = rights - matrix @ answer
            answer = answer + jax.scipy.linalg.cho_solve((factor, True), left_over)
        return answer

    def solve_all(_):
        return solve_dense(gram, scale, diagonal, right)

    def solve_gathered(size):
        def branch(_):
            (places,) = jnp.nonzero(active, size=size, fill_value=examples)
            fill = {"mode": "fill", "fill_value": 0}
            sub = gram.at[places].get(**fill).at[:, places].get(**fill)
            answer = solve_dense(
                sub,
                scale.at[places].get(**fill),
                diagonal.at[places].get(mode="fill", fill_value=1),
                right.at[places].get(**fill),
            )
            return jnp.zeros_like(right).at[places].set(answer, mode="drop")

        return branch

    if len(options) == 1:
        answer = solve_all(None)
    else:
        branches = [solve_gathered(size) for size in options[:-1]] + [solve_all]
        index = jnp.sum(count > jnp.array(options[:-1]))
        answer = jax.lax.switch(index, branches, None)
    return jnp.where(active[:, None], answer, 0.0)
