"""Randomly pivoted Cholesky against its definition, one pivot after the other, and its error bound."""

from collections import Counter
from itertools import permutations
from math import log

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxprs import largest_array

import jaxsvm as jsvm
from jaxsvm.approximations import Nystrom, choose_landmarks

X = np.random.default_rng(0).normal(size=(60, 2))
CLUSTERS = np.concatenate([X[:30] * 0.05, X[30:] + 3.0])  # pivots of the cluster exclude each other
SMOOTH = jsvm.kernels.RBF(1.5, 2.0) + jsvm.kernels.Constant(0.1)


def machine(kernel):
    return jsvm.KernelMachine(kernel, jsvm.losses.Hinge())


def chosen(kernel, x, count, key):
    return choose_landmarks(machine(kernel), jnp.asarray(x), count, "randomly pivoted", key)


def residual_of(gram, pivots):
    """The diagonal of `K - K_nm K_mm^-1 K_mn`."""
    columns = gram[:, pivots]
    return np.diag(gram) - np.sum(
        columns * np.linalg.solve(gram[np.ix_(pivots, pivots)], columns.T).T, 1
    )


def one_by_one(gram, count, generator):
    """The definition: draw a pivot in proportion to the residual diagonal, eliminate it, and so on."""
    residual, pivots = gram.copy(), []
    for _ in range(count):
        weights = np.maximum(np.diag(residual), 0.0)
        pivot = generator.choice(len(gram), p=weights / weights.sum())
        pivots.append(pivot)
        residual = residual - np.outer(residual[:, pivot], residual[pivot]) / residual[pivot, pivot]
    return pivots


@pytest.mark.parametrize(
    "points, kernel, count",
    [
        (X, SMOOTH, 8),
        (CLUSTERS, SMOOTH, 8),
        (CLUSTERS, jsvm.kernels.Matern12(1.0), 45),  # two blocks
        (X, jsvm.kernels.RBF(2.0) + jsvm.kernels.White(0.05), 12),
    ],
    ids=["smooth", "clusters", "two blocks", "white noise"],
)
def test_errors_have_the_distribution_of_the_definition(points, kernel, count):
    gram = np.asarray(kernel.gram(points))
    keys = jax.random.split(jax.random.key(1), 400)
    blocks = np.asarray(jax.vmap(lambda key: chosen(kernel, points, count, key))(keys))
    assert all(len(set(row)) == count for row in blocks.tolist())
    generator = np.random.default_rng(2)
    ours = np.array([residual_of(gram, row).sum() for row in blocks])
    theirs = np.array(
        [residual_of(gram, one_by_one(gram, count, generator)).sum() for _ in range(400)]
    )
    for power in (1, 2):
        difference = np.mean(ours**power) - np.mean(theirs**power)
        deviation = np.sqrt((np.var(ours**power) + np.var(theirs**power)) / 400)
        assert abs(difference) < 4 * deviation


def test_sets_of_pivots_have_their_probabilities():
    """All pairs of five examples, two of them close: counted, and by the formula."""
    points = np.array([[0.0], [0.1], [1.0], [1.5], [4.0]])
    kernel = jsvm.kernels.Linear(0.2) + jsvm.kernels.RBF(1.0)
    gram = np.asarray(kernel.gram(points))
    probability = Counter()
    for pair in permutations(range(5), 2):
        first = gram[pair[0], pair[0]] / np.trace(gram)
        left = np.maximum(residual_of(gram, list(pair[:1])), 0.0)
        probability[frozenset(pair)] += first * left[pair[1]] / left.sum()
    draws = 4000
    keys = jax.random.split(jax.random.key(3), draws)
    pairs = np.asarray(jax.vmap(lambda key: chosen(kernel, points, 2, key))(keys))
    counts = Counter(frozenset(pair) for pair in pairs.tolist())
    assert sum(probability.values()) == pytest.approx(1.0)
    for pair, p in probability.items():
        assert abs(counts[pair] - draws * p) < 4 * np.sqrt(draws * p * (1 - p)) + 1


def test_the_error_is_near_that_of_the_best_approximation():
    """`E tr(K - F F') <= (1 + e) sum_(i > r) l_i` for `r / e + r log(1 / (e tail))` pivots: their theorem."""
    kernel = jsvm.kernels.RBF(0.9)
    points = np.random.default_rng(4).uniform(-1, 1, size=(200, 2))
    gram = np.asarray(kernel.gram(points))
    values = np.linalg.eigvalsh(gram)[::-1]
    for best, slack in ((4, 1.0), (6, 0.5)):
        tail = values[best:].sum()
        count = int(np.ceil(best / slack + best * max(log(values.sum() / (slack * tail)), 0.0)))
        keys = jax.random.split(jax.random.key(5), 60)
        rows = np.asarray(jax.vmap(lambda key, c=count: chosen(kernel, points, c, key))(keys))
        errors = np.array([residual_of(gram, row).sum() for row in rows])
        assert np.mean(errors) + 2 * np.std(errors) / 60**0.5 <= (1 + slack) * tail
        assert np.all(errors >= values[count:].sum() - 1e-10)


def test_no_more_landmarks_than_the_kernel_has_directions(dtype):
    """Three inputs span a linear kernel: other examples fill up the number, and do no harm."""
    points = jnp.asarray(np.random.default_rng(6).normal(size=(50, 3)), dtype)
    kernel = jsvm.kernels.Linear(2.0)
    found = chosen(kernel, points, 9, jax.random.key(0))
    assert len(set(found.tolist())) == 9 and min(found.tolist()) >= 0
    subspace = Nystrom(landmarks=9, choice="randomly pivoted").subspace(machine(kernel), points)
    white = subspace.whiten(kernel, points)
    atol = 1e-10 if dtype == "float64" else 1e-3
    np.testing.assert_allclose(white.factor @ white.factor.T, kernel.gram(points), atol=atol)


def test_copies_are_not_chosen_twice(dtype):
    points = jnp.asarray(np.repeat(X[:10], 20, axis=0), dtype)
    found = chosen(jsvm.kernels.RBF(0.5), points, 10, jax.random.key(7))
    assert {place // 20 for place in found.tolist()} == set(range(10))
    more = chosen(jsvm.kernels.RBF(0.5), points, 40, jax.random.key(7))
    assert {place // 20 for place in more.tolist()} == set(range(10)) and len(
        set(more.tolist())
    ) == 40


def test_equal_variances_of_white_noise():
    found = chosen(jsvm.kernels.White(1.0), np.zeros((70, 1)), 60, jax.random.key(8))
    assert len(set(found.tolist())) == 60


@pytest.mark.parametrize("choice", ["random", "kmeans++", "pivoted", "randomly pivoted"])
def test_the_approximation_tends_to_the_kernel_matrix(choice, dtype):
    points = jnp.asarray(X, dtype)
    kernel = jsvm.kernels.Matern32(1.0, 2.0) + jsvm.kernels.Constant(0.3)
    gram = kernel.gram(points)
    errors = []
    for count in (5, 15, 30, 59):
        subspace = Nystrom(landmarks=count, choice=choice).subspace(machine(kernel), points)
        white = subspace.whiten(kernel, points)
        low_rank = white.factor @ white.factor.T
        errors.append(float(jnp.trace(gram - low_rank) / jnp.trace(gram - 0.3)))  # no offset
        assert errors[-1] == pytest.approx(float(white.error), abs=1e-5)
        assert float(jnp.max(jnp.linalg.eigvalsh(low_rank - gram))) < 1e-4  # it is never too large
    assert errors == sorted(errors, reverse=True) and errors[0] > 0.1 and errors[-1] < 0.002


def test_no_derivative_and_no_matrix_of_all_pairs():
    """Landmarks may be chosen inside a function that is differentiated."""

    def value(kernel, x):
        marks = choose_landmarks(machine(kernel), x, 40, "randomly pivoted", jax.random.key(0))
        return jnp.sum(kernel.cross(x, x[marks]))

    x = jnp.asarray(np.random.default_rng(9).normal(size=(500, 3)))
    gradient = jax.jit(jax.grad(value))(SMOOTH, x)
    marks = chosen(SMOOTH, x, 40, jax.random.key(0))
    expected = jax.grad(lambda kernel: jnp.sum(kernel.cross(x, x[marks])))(SMOOTH)
    for ours, theirs in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    for choice in ("kmeans++", "pivoted", "randomly pivoted"):
        arguments = (machine(SMOOTH), x, jax.random.key(0))
        largest = largest_array(
            lambda m, x, k, c=choice: choose_landmarks(m, x, 40, c, k), *arguments
        )
        assert largest <= 500 * 72  # a block of columns beyond those of the landmarks
