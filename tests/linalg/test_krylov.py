"""Systems that are solved by products, against factorizations of the same matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsvm import linalg

RNG = np.random.default_rng(4)
N = 90
MATRIX = np.eye(N) + 0.5 * RNG.normal(size=(N, N)) / np.sqrt(N)  # not symmetric
RIGHT = RNG.normal(size=N)


def operator(matrix):
    return lambda vector: jax.tree.map(lambda part: matrix @ part, vector)


def solve(matrix, right):
    return linalg.solve_by_products(operator, matrix, right)


def test_answers_of_any_size():
    run = jax.jit(solve)
    expected = np.linalg.solve(MATRIX, RIGHT)
    for size in (1.0, 1e-30, 1e30):
        np.testing.assert_allclose(
            run(MATRIX, size * RIGHT), size * expected, rtol=1e-10, atol=1e-12 * size
        )
    np.testing.assert_array_equal(run(MATRIX, 0 * RIGHT), 0)


def test_a_right_hand_side_of_several_arrays():
    found = jax.jit(solve)(MATRIX, (RIGHT, {"other": RIGHT**2}))
    expected = (np.linalg.solve(MATRIX, RIGHT), {"other": np.linalg.solve(MATRIX, RIGHT**2)})
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_derivatives_and_batches():
    """First derivatives in both modes and second ones, with respect to the matrix and the vector."""
    rights = jnp.asarray(RNG.normal(size=(2, N)))
    way = jnp.asarray(RNG.normal(size=(N, N)))

    def derivatives(solve, right):
        def total(step, right):
            return jnp.sum(jnp.sin(solve(MATRIX + 0.01 * step * way, right * (1 + step))))

        both = jax.value_and_grad(total, argnums=(0, 1))
        return jax.jvp(lambda step: both(step, right), (0.1,), (1.0,))

    by_products = jax.jit(jax.vmap(lambda right: derivatives(solve, right)))(rights)
    by_factors = jax.jit(jax.vmap(lambda right: derivatives(linalg.solve, right)))(rights)
    for one, other in zip(jax.tree.leaves(by_products), jax.tree.leaves(by_factors), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_more_directions_than_are_stored():
    """Eigenvalues far apart."""
    spread = np.diag(np.linspace(1, 30, N)) @ MATRIX
    found = jax.jit(solve)(spread, RIGHT)
    np.testing.assert_allclose(found, np.linalg.solve(spread, RIGHT), rtol=1e-8, atol=1e-10)


def test_failures_are_nan():
    singular = MATRIX.copy()
    singular[3] = 0.0
    assert np.isnan(jax.jit(solve)(singular, RIGHT)).all()
    assert np.isnan(jax.jit(solve)(MATRIX, np.where(np.arange(N) == 2, np.nan, RIGHT))).all()


def test_single_precision():
    with jax.enable_x64(False):
        found = jax.jit(solve)(MATRIX.astype("float32"), RIGHT.astype("float32"))
        assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, np.linalg.solve(MATRIX, RIGHT), atol=1e-3)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_short_vectors(size):
    matrix = MATRIX[:size, :size]
    found = jax.jit(solve)(matrix, RIGHT[:size])
    np.testing.assert_allclose(found, np.linalg.solve(matrix, RIGHT[:size]), rtol=1e-10)
