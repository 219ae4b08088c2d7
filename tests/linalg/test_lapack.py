"""Factorizations one matrix at a time: the same answers and derivatives, and no call for a whole batch."""

import re

import grid
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm import kernels, linalg, losses

RANDOM = np.random.default_rng(0)
ROOTS = RANDOM.normal(size=(3, 5, 8))
MATRICES = jnp.asarray(ROOTS @ ROOTS.transpose(0, 2, 1))
VECTORS = jnp.asarray(RANDOM.normal(size=(3, 5)))


def calls_for_batches(function, *arguments) -> list[str]:
    """LAPACK calls of the lowered program whose matrices have a leading axis."""
    text = jax.jit(function).lower(*arguments).as_text()
    calls = re.findall(r"@lapack_\w+[^\n]*", text)
    assert calls, "no LAPACK call at all: what is looked for has another name"
    return [call for call in calls if re.search(r"tensor<\d+x\d+x\d+xf\d+>", call)]


def symmetric(matrix):
    return (matrix + matrix.T) / 2


def ours(matrix, vector):
    matrix = symmetric(matrix)
    factor = linalg.cholesky(matrix)
    slanted = matrix + jnp.outer(vector, jnp.arange(5.0))  # not symmetric
    values, vectors = linalg.eigh(matrix)
    return (
        jnp.sum(jnp.sin(linalg.solve_by_factor(factor, vector)))
        + jnp.sum(jnp.cos(linalg.solve_triangular(factor, slanted, transposed=True)))
        + jnp.sum(jnp.cos(linalg.solve(slanted, vector)))
        + jnp.sum(jnp.sin(linalg.inverse(slanted)))
        + linalg.log_determinant(matrix)
        + vector @ jnp.sin(values)
        + vector @ (vectors**2) @ vector
    )


def theirs(matrix, vector):
    matrix = symmetric(matrix)
    factor = jnp.linalg.cholesky(matrix)
    slanted = matrix + jnp.outer(vector, jnp.arange(5.0))
    values, vectors = jnp.linalg.eigh(matrix)
    return (
        jnp.sum(jnp.sin(jnp.linalg.solve(matrix, vector)))
        + jnp.sum(jnp.cos(jax.scipy.linalg.solve_triangular(factor.T, slanted, lower=False)))
        + jnp.sum(jnp.cos(jnp.linalg.solve(slanted, vector)))
        + jnp.sum(jnp.sin(jnp.linalg.inv(slanted)))
        + jnp.linalg.slogdet(matrix)[1]
        + vector @ jnp.sin(values)
        + vector @ (vectors**2) @ vector
    )


ORDERS = {
    "reverse": lambda f: jax.value_and_grad(f, (0, 1)),
    "forward": lambda f: jax.jacfwd(f, (0, 1)),
    "reverse twice": lambda f: jax.jacrev(jax.grad(f, 1), 0),
}
# how a function of one matrix and one vector is batched, and which of both belong to each answer
BATCHES = {
    "both": (jax.vmap, [(i, i) for i in range(3)]),
    "all pairs": (
        lambda f: jax.vmap(jax.vmap(f, (None, 0)), (0, None)),
        [[(i, j) for j in range(3)] for i in range(3)],
    ),
}


@pytest.mark.parametrize("order", ORDERS)
def test_the_same_as_the_functions_of_jax(order):
    single = jax.jit(ORDERS[order](theirs))  # never in a batch, which might not return

    def expected(places):
        if isinstance(places, tuple):
            return single(MATRICES[places[0]], VECTORS[places[1]])
        return jax.tree.map(lambda *parts: np.stack(parts), *(expected(place) for place in places))

    for name, (batch, places) in BATCHES.items():
        function = batch(ORDERS[order](ours))
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9),
            jax.jit(function)(MATRICES, VECTORS),
            expected(places),
        )
        assert not calls_for_batches(function, MATRICES, VECTORS), name


def test_calls_for_batches_are_detected():
    assert len(calls_for_batches(jax.vmap(jnp.linalg.cholesky), MATRICES)) == 1


def test_what_is_shared_is_made_once():
    """Many right-hand sides of one matrix: one factorization, outside of any loop."""

    def many(matrix, vectors):
        return jax.vmap(lambda v: linalg.solve_by_factor(linalg.cholesky(matrix), v))(vectors)

    text = jax.jit(many).lower(MATRICES[0], VECTORS).as_text()
    assert "stablehlo.while" not in text
    np.testing.assert_allclose(
        many(MATRICES[0], VECTORS), np.linalg.solve(MATRICES[0], VECTORS.T).T, rtol=1e-10
    )


X = jnp.asarray(RANDOM.normal(size=(72, 2)))
LABELS = jnp.sign(X[:, 0] + X[:, 1] ** 2 - 1)
TARGETS = jnp.sin(X[:, 0])


@pytest.mark.parametrize("name", grid.CRITERIA)
def test_batches_of_criteria_and_their_gradients(name):
    """Three or more such calls at once would deadlock on a machine with two cores."""
    criterion, loss = grid.CRITERIA[name]
    model = jsvm.KernelMachine(kernels.RBF(lengthscale=jnp.ones(2)), loss)
    models = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + 0.1]), model)
    y = LABELS if loss.is_classifier else TARGETS

    def batch(models, x, y):
        return jax.vmap(jax.value_and_grad(lambda m: criterion(m, x, y, throw=False)))(models)

    assert not calls_for_batches(batch, models, X, y)


def test_a_batch_of_posteriors():
    model = jsvm.KernelMachine(kernels.RBF(), losses.Hinge())
    models = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + 0.1]), model)

    def batch(models, x, y):
        return jax.vmap(lambda m: jsvm.laplace(jsvm.fit(m, x, y, throw=False)).latent(x))(models)

    assert not calls_for_batches(batch, models, X, LABELS)
