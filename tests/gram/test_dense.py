"""The operations of a Gram matrix against plain NumPy, and their derivatives, in both precisions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsvm import kernels
from jaxsvm.gram import AbstractGram, DenseGram, exact_gram
from jaxsvm.linalg import SolveOptions

N = 70  # more than 64, so that reduced systems have several sizes
RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(N, N)) / np.sqrt(N)
K = ROOT @ ROOT.T + 0.3 * np.eye(N)
FREE = RNG.uniform(size=N) < 0.2
POSITIVE = RNG.uniform(0.5, 1.5, size=N)
VECTOR = RNG.normal(size=N)
OTHER = RNG.normal(size=N)
SPARSE = np.where(FREE, VECTOR, 0.0)
TOLERANCE = {"float64": 1e-11, "float32": 2e-4}


@pytest.fixture
def gram(dtype) -> AbstractGram:
    return DenseGram(jnp.asarray(K, dtype))


@pytest.fixture
def close(dtype):
    def check(found, expected):
        assert found.dtype == dtype
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE[dtype] * scale)

    return check


@pytest.fixture
def array(dtype):
    return lambda values: jnp.asarray(values, dtype)


def bordered_inverse(matrix, border):
    """The n x n block of the inverse of the bordered matrix."""
    if border is None:
        return np.linalg.inv(matrix)
    whole = np.block([[matrix, border[:, None]], [border[None, :], np.zeros((1, 1))]])
    return np.linalg.inv(whole)[:N, :N]


def literal_squared_span(matrix, place, free, has_offset):
    """Minimize `l' matrix l` over the free entries of l, with `l_place = 1`, by a bordered system."""
    others = np.flatnonzero(free & (np.arange(N) != place))
    vector = np.zeros(N)
    vector[place] = 1.0
    system, right = matrix[np.ix_(others, others)], -matrix[others, place]
    if has_offset:
        ones = np.ones((len(others), 1))
        system = np.block([[system, ones], [ones.T, np.zeros((1, 1))]])
        right = np.append(right, -1.0)
    vector[others] = np.linalg.solve(system, right)[: len(others)]
    return vector @ matrix @ vector


def test_entries_and_products(gram, array, close):
    close(gram.diagonal(), np.diag(K))
    close(gram.row(jnp.asarray(5)), K[5])
    close(gram.dense(), K)
    close(gram.product(array(VECTOR)), K @ VECTOR)
    close(gram @ array(VECTOR), K @ VECTOR)
    close(gram.sparse_product(array(SPARSE)), K @ SPARSE)
    close(gram.sparse_product(array(np.zeros(N))) + 1, np.ones(N))
    close(gram.squared_product(array(SPARSE**2)), K**2 @ SPARSE**2)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.4, 1.0])
def test_reduced_systems(gram, array, close, share):
    part = np.random.default_rng(1).uniform(size=N) < share
    scale = np.where(part, POSITIVE, 0.0)
    matrix = np.diag(1 + POSITIVE) + scale[:, None] * K * scale
    rights = [np.where(part, right, 0.0) for right in (VECTOR, OTHER)]
    found = gram.reduced_solve(array(scale), array(1 + POSITIVE), *map(array, rights))
    for answer, right in zip(found, rights, strict=True):
        close(answer + 1, np.linalg.solve(matrix, right) + 1)
    options = SolveOptions(1e-3, refinements=6, coarse=True)
    refined = gram.reduced_solve(
        array(scale), array(1 + POSITIVE), array(rights[0]), options=options
    )
    close(refined[0] + 1, np.linalg.solve(matrix, rights[0]) + 1)


def test_an_indefinite_system_is_nan(gram, array):
    ones = array(np.ones(N))
    (answer,) = gram.reduced_solve(ones, -100 * ones, ones)
    assert np.isnan(answer).all()


def test_general_systems_and_determinants(gram, array, close):
    scale = 0.5 * OTHER
    expected = np.linalg.solve(np.diag(POSITIVE) + scale[:, None] * K, VECTOR)
    close(gram.general_solve(array(POSITIVE), array(scale), array(VECTOR)), expected)
    curvature = np.where(FREE, POSITIVE, 0.0)
    expected = np.linalg.slogdet(np.eye(N) + curvature[:, None] * K)[1]
    close(gram.log_determinant(array(curvature)), expected)
    close(gram.log_determinant(array(curvature), definite=False), expected)
    some = np.where(FREE, -0.1, POSITIVE)
    sign, expected = np.linalg.slogdet(np.eye(N) + some[:, None] * K)
    assert sign > 0
    close(gram.log_determinant(array(some), definite=False), expected)


@pytest.mark.parametrize("has_border", [False, True])
def test_inverse_diagonals(gram, array, close, has_border):
    border = POSITIVE if has_border else None
    matrix = POSITIVE[:, None] * K * POSITIVE + np.diag(1 + VECTOR**2)
    found = gram.inverse_diagonal(
        array(POSITIVE), array(1 + VECTOR**2), None if border is None else array(border)
    )
    close(found, np.diag(bordered_inverse(matrix, border)))
    inverse = bordered_inverse(K + np.diag(POSITIVE), np.ones(N) if has_border else None)
    answer, pivots = gram.solve_and_inverse_diagonal(array(POSITIVE), array(VECTOR), has_border)
    close(answer, inverse @ VECTOR)
    close(pivots, np.diag(inverse))


@pytest.mark.parametrize("has_offset", [False, True])
def test_squared_spans(gram, array, close, has_offset):
    diagonal = np.where(FREE, 0.1, 0.0)
    matrix = K + np.diag(diagonal)
    expected = [literal_squared_span(matrix, i, FREE, has_offset) for i in range(N)]
    close(gram.squared_spans(array(diagonal), jnp.asarray(FREE), has_offset), np.array(expected))


@pytest.mark.parametrize("definite", [True, False])
def test_posteriors(gram, array, close, definite):
    """Measurements of all examples, some without information; then some of negative precision."""
    precision = np.where(FREE, 0.0 if definite else -0.1, POSITIVE)
    covariance = np.linalg.inv(np.linalg.inv(K) + np.diag(precision))
    assert np.linalg.eigvalsh(covariance).min() > 0
    mean, variance = gram.posterior_marginals(array(VECTOR), array(precision), definite)
    close(mean, covariance @ VECTOR)
    close(variance, np.diag(covariance))
    expected = np.diag(precision) - precision[:, None] * covariance * precision
    close(gram.response(array(precision), definite), expected)
    close(gram.response_diagonal(array(precision), definite), np.diag(expected))
    close(gram.coefficients(array(VECTOR)), VECTOR)


def test_checks(gram, array):
    assert gram.is_finite() and gram.is_covariance()
    assert not DenseGram(gram.dense().at[3, 4].set(jnp.nan)).is_finite()
    assert not DenseGram(gram.dense() - 10 * jnp.eye(N, dtype=gram.dtype)).is_covariance()
    assert not DenseGram(gram.dense().at[3, 4].add(1.0)).is_covariance()


def test_exact_gram(array, close):
    x = RNG.normal(size=(N, 2))
    kernel = jax.tree.map(array, kernels.RBF(1.5, 2.0))
    squares = ((x[:, None] - x[None]) ** 2).sum(-1)
    close(exact_gram(kernel, array(x)).dense(), 2 * np.exp(-squares / (2 * 1.5**2)))


CHANGE = 0.1 * K * np.outer(OTHER, OTHER)
OPERATIONS = {
    "product": lambda g: g @ jnp.asarray(VECTOR),
    "general solve": lambda g: g.general_solve(POSITIVE, 0.5 * jnp.asarray(OTHER), VECTOR),
    "log determinant": lambda g: g.log_determinant(jnp.where(FREE, POSITIVE, 0.0)),
    "general log determinant": lambda g: g.log_determinant(
        jnp.where(FREE, -0.1, POSITIVE), definite=False
    ),
    "inverse diagonal": lambda g: g.inverse_diagonal(
        jnp.asarray(POSITIVE), jnp.asarray(1 + VECTOR**2), jnp.asarray(POSITIVE)
    ),
    "solve and inverse diagonal": lambda g: jnp.concatenate(
        g.solve_and_inverse_diagonal(jnp.asarray(POSITIVE), jnp.asarray(VECTOR), True)
    ),
    "posterior marginals": lambda g: jnp.concatenate(
        g.posterior_marginals(jnp.asarray(VECTOR), jnp.where(FREE, 0.0, POSITIVE))
    ),
    "general posterior marginals": lambda g: jnp.concatenate(
        g.posterior_marginals(jnp.asarray(VECTOR), jnp.where(FREE, -0.1, POSITIVE), definite=False)
    ),
    "response": lambda g: g.response(jnp.where(FREE, 0.0, POSITIVE)),
    "general response": lambda g: g.response(jnp.where(FREE, -0.1, POSITIVE), definite=False),
    "squared spans": lambda g: g.squared_spans(jnp.where(FREE, 0.1, 0.0), jnp.asarray(FREE), True),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_derivatives(name):
    """Forward, in reverse, and of a batch of matrices, against differences."""

    def at(step):
        return OPERATIONS[name](DenseGram(jnp.asarray(K) + step * jnp.asarray(CHANGE)))

    def total(step):
        return jnp.sum(jnp.sin(at(step)))

    run = jax.jit(at)
    expected = (run(1e-5) - run(-1e-5)) / 2e-5
    found = jax.jit(jax.jacfwd(at))(0.0)
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7 * scale)
    reverse = jax.jit(jax.grad(total))(0.0)
    np.testing.assert_allclose(reverse, jnp.sum(jnp.cos(run(0.0)) * found), rtol=1e-10)
    steps = jnp.array([0.0, 0.5])
    np.testing.assert_allclose(
        jax.jit(jax.vmap(at))(steps), jnp.stack([run(step) for step in steps]), rtol=1e-10
    )
