"""Large problems of low rank have the same solutions as dense ones."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxprs import largest_array

import jaxsvm as jsvm
from jaxsvm import losses
from jaxsvm.gram import DenseGram, LowRankGram
from jaxsvm.solvers import Options, Problem, Start, _large, solve

N, RANK = 420, 12
RNG = np.random.default_rng(5)
FACTOR = RNG.normal(size=(N, RANK)) * 2.0 ** -np.arange(RANK)
SCORE = FACTOR @ RNG.normal(size=RANK) + 0.4 * RNG.normal(size=N)
EXTRA = 0.3 * RNG.uniform(size=N)
WEIGHTS = RNG.choice([0.0, 1.0, 3.0], N, p=[0.1, 0.7, 0.2])

LOSSES = {
    "hinge": losses.Hinge(2.0),
    "squared hinge": losses.SquaredHinge(3.0),
    "epsilon insensitive": losses.EpsilonInsensitive(2.0, 0.2),
    "soft insensitive": losses.SoftInsensitive(2.0, 0.2, 0.3),
    "laplacian": losses.Laplacian(1.0),
    "least squares": losses.LeastSquares(2.0),
    "logistic": losses.Logistic(1.5),
}


@pytest.fixture(autouse=True)
def small_problems_count_as_large(monkeypatch):
    monkeypatch.setattr(_large, "_SMALL", 40)


@eqx.filter_jit
def solved(gram, y, weights, loss, has_offset):
    problem = Problem(gram, y, weights, loss, has_offset)
    start = Start(jnp.zeros(N), jnp.zeros(()))
    return solve(problem, start, Options(), warm=False)


@pytest.mark.parametrize("variant", ["plain", "corrected", "offset"])
@pytest.mark.parametrize("name", LOSSES)
def test_the_solution_is_that_of_the_dense_matrix(name, variant):
    loss, has_offset = LOSSES[name], variant == "offset"
    y = jnp.asarray(np.where(SCORE > 0, 1.0, -1.0) if loss.is_classifier else SCORE)
    extra = jnp.asarray(EXTRA) if variant == "corrected" else None
    gram, weights = LowRankGram(jnp.asarray(FACTOR), extra), jnp.asarray(WEIGHTS)
    large = solved(gram, y, weights, loss, has_offset)
    dense = solved(DenseGram(gram.dense()), y, weights, loss, has_offset)
    assert jsvm.RESULTS(int(large.result)).is_success
    assert jsvm.RESULTS(int(dense.result)).is_success
    latent = gram @ large.dual + large.offset
    np.testing.assert_allclose(latent, gram @ dense.dual + dense.offset, atol=1e-8)


def test_examples_in_a_regular_order_are_no_problem():
    """Every 17th example has the same label, so the subset has no example of the other class."""
    y = np.where(np.arange(N) % 17 == 0, 1.0, np.where(SCORE > 0, 1.0, -1.0))
    gram = LowRankGram(jnp.asarray(FACTOR))
    arguments = (jnp.asarray(y), jnp.ones(N), losses.Hinge(2.0), False)
    large, dense = solved(gram, *arguments), solved(DenseGram(gram.dense()), *arguments)
    assert int(large.result) == jsvm.RESULTS.successful
    np.testing.assert_allclose(gram @ large.dual, gram @ dense.dual, atol=1e-8)


def test_a_nonfinite_matrix_is_not_a_success():
    gram = LowRankGram(jnp.asarray(FACTOR).at[3, 2].set(jnp.nan))
    y = jnp.asarray(np.where(SCORE > 0, 1.0, -1.0))
    assert int(solved(gram, y, jnp.ones(N), losses.Hinge(2.0), False).result) != 0


def test_no_array_has_two_axes_of_examples():
    """The programs for value and gradient, with more examples than the small problem of their start."""
    x = jnp.asarray(RNG.normal(size=(N, 2)))
    y = jnp.asarray(np.where(SCORE > 0, 1.0, -1.0))

    def objective(model, x):
        fitted = jsvm.fit(model, x, y, approximation=jsvm.Nystrom(rank=9, landmarks=9), throw=False)
        return fitted.stats.objective + jnp.sum(fitted.latent**2)

    model = jsvm.KernelMachine(jsvm.kernels.RBF(1.0), losses.Hinge(1.0))
    assert largest_array(jax.grad(objective, argnums=(0, 1)), model, x) <= 2 * 9 * N
