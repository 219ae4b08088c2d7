"""Recursive inverses and determinants, against LAPACK."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import lapack

from jaxsvm.linalg import inverse_and_log_determinant

invert = jax.jit(inverse_and_log_determinant)


def smooth_kernel(size: int, noise: float) -> np.ndarray:
    """A Gram matrix of points in the unit square, with eigenvalues down to the noise."""
    x = np.random.default_rng(size).uniform(size=(size, 2))
    return np.exp(-np.sum((x[:, None] - x[None]) ** 2, axis=2) / 0.5) + noise * np.eye(size)


def refined(matrix: np.ndarray) -> np.ndarray:
    """The inverse by Newton's iteration in extended precision."""
    wide, inverse = matrix.astype(np.longdouble), np.linalg.inv(matrix).astype(np.longdouble)
    for _ in range(5):
        inverse = inverse @ (2 * np.eye(len(matrix)) - wide @ inverse)
    return inverse.astype(float)


@pytest.mark.parametrize("noise", [1e-1, 1e-5, 1e-9])
def test_as_accurate_as_lapack(noise):
    size = 331  # four leaves, of which the last is smaller
    matrix = smooth_kernel(size, noise)
    factor, _ = lapack.dpotrf(np.asfortranarray(matrix), lower=1)
    theirs = np.diag(lapack.dpotri(factor, lower=1)[0])
    inverse, log_determinant = invert(jnp.asarray(matrix))
    exact = np.diag(refined(matrix))
    error = np.max(np.abs(np.diag(inverse) / exact - 1))
    assert error < 5 * np.max(np.abs(theirs / exact - 1)) + 1e-14
    expected = 2 * np.sum(np.log(np.diag(factor)))
    rounding = 1e-15 * size / noise  # relative to the smallest eigenvalues, all of which count
    assert abs(log_determinant - expected) < 1e-12 * abs(expected) + rounding


@pytest.mark.parametrize("size", [1, 24, 25, 96, 97, 192, 193, 331])
def test_all_sizes(size):
    matrix = smooth_kernel(size, 0.1)
    inverse, log_determinant = invert(jnp.asarray(matrix))
    np.testing.assert_allclose(inverse @ matrix, np.eye(size), atol=1e-11)
    np.testing.assert_allclose(log_determinant, np.linalg.slogdet(matrix)[1], rtol=1e-12)


def test_leaves_grow_with_the_matrix():
    """A program does not grow with the matrix: sixteen leaves at most."""
    counts = [
        str(jax.make_jaxpr(inverse_and_log_determinant)(jnp.eye(size))).count("= cholesky")
        for size in (96, 97, 1536, 5000)
    ]
    assert counts == [1, 2, 16, 16]


@pytest.mark.parametrize("place", [3, 150])
def test_indefinite_matrices_give_nan_and_spoil_no_other(place):
    bad = np.eye(200)
    bad[place, place] = -1.0
    good = smooth_kernel(200, 0.1)
    inverses, values = jax.jit(jax.vmap(inverse_and_log_determinant))(jnp.stack([bad, good]))
    assert np.isnan(values[0]) and np.isnan(inverses[0]).any()
    np.testing.assert_allclose(inverses[1] @ good, np.eye(200), atol=1e-11)
