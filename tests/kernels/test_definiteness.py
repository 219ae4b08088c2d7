"""Kernels that users define are factorized once; options of a fit are checked."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm import kernels, losses

X = np.random.default_rng(0).normal(size=(40, 2))
Y = np.where(X[:, 0] > 0, 1.0, -1.0)


def cubic(a, b):
    """Symmetric, one at zero, below one elsewhere, yet not positive semi-definite."""
    squared = jnp.sum((a - b) ** 2)
    positive = squared > 0
    return jnp.exp(-0.02 * jnp.where(positive, jnp.where(positive, squared, 1.0) ** 1.5, 0.0))


class Cubic(kernels.AbstractKernel):
    """The same as a user-defined class."""

    def matrix(self, x1, x2, same):
        return jax.vmap(lambda a: jax.vmap(lambda b: cubic(a, b))(x2))(x1)

    def diagonal(self, x):
        return jnp.ones(x.shape[0], x.dtype)


@pytest.mark.parametrize(
    "kernel",
    [kernels.Custom(cubic), Cubic(), kernels.Constant(1e-3) + 2.0 * Cubic()],
    ids=["function", "class", "inside"],
)
def test_an_indefinite_kernel_is_reported_with_its_eigenvalues(kernel):
    # with a much larger penalty the solver would fail by itself
    model = jsvm.KernelMachine(kernel, losses.Hinge(1.0))
    fitted = jsvm.fit(model, X, Y, throw=False)
    assert int(fitted.result) == jsvm.RESULTS.factorization_failed
    values = np.linalg.eigvalsh(np.asarray(kernel.gram(X)))
    assert values[0] < -1e-3  # the kernel is as bad as it claims
    with pytest.raises(jsvm.FitError) as error:
        jsvm.fit(model, X, Y)
    low, high = re.search(r"go from (\S+) to (\S+), and", str(error.value)).groups()
    np.testing.assert_allclose([float(low), float(high)], values[[0, -1]], rtol=0.01)


KEY = jax.random.key(0)
CHAINS = {"key": KEY, "chains": 2, "draws": 40}
USES = {
    "sample": lambda m: jsvm.sample(m, X, Y, **CHAINS).diagnostics.problems,
    "a low rank": lambda m: (
        jsvm.sample(m, X, Y, approximation=jsvm.Nystrom(20), **CHAINS).diagnostics.problems
    ),
    "gradient": lambda m: jsvm.evidence_gradient(m, X, Y, **CHAINS).diagnostics.problems,
    "ascent": lambda m: jsvm.evidence_ascent(m, X, Y, max_steps=1, **CHAINS).problems,
    "value": lambda m: jsvm.log_evidence(m, X, Y, key=KEY).problems,
}


@pytest.mark.parametrize("use", USES)
def test_an_indefinite_kernel_is_a_problem_of_chains(use):
    model = jsvm.KernelMachine(kernels.Custom(cubic), losses.Logistic(1.0))
    with pytest.warns(jsvm.sampling.SamplingWarning, match="not positive semi-definite"):
        problems = USES[use](model)
    assert any("not positive semi-definite" in problem for problem in problems)


def test_an_indefinite_kernel_is_a_problem_of_a_low_rank():
    model = jsvm.KernelMachine(kernels.Custom(cubic), losses.Hinge(1.0))
    with pytest.warns(jsvm.approximations.ApproximationWarning, match="not positive semi-definite"):
        fitted = jsvm.fit(model, X, Y, approximation=jsvm.Nystrom(20))
    dense = np.asarray(fitted.gram().dense())
    added = np.sum(np.maximum(np.diag(dense) - 1, 0)) / len(Y)
    assert float(fitted.stats.lost_variance) == pytest.approx(-added, rel=1e-9)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: jnp.sum(a * b),  # of rank two
        lambda a, b: jnp.exp(-jnp.sum((a - b) ** 2) / 2e6),  # nearly constant
        lambda a, b: jnp.exp(-jnp.sum((a - b) ** 2)),
    ],
    ids=["linear", "smooth", "rbf"],
)
def test_a_singular_kernel_is_a_kernel(function, dtype):
    x, y = jnp.asarray(X, dtype), jnp.asarray(Y, dtype)
    model = jsvm.KernelMachine(kernels.Custom(function), losses.Hinge(1.0))
    assert int(jsvm.fit(model, x, y).result) == jsvm.RESULTS.successful
    assert bool(kernels.is_covariance(model.kernel.gram(x)))
    for approximation in (jsvm.Exact(), jsvm.Nystrom(10), jsvm.Nystrom(30)):
        subspace = approximation.subspace(model, x, KEY)
        assert float(subspace.whiten(model.kernel, x).error) >= 0


def test_kernels_of_the_library_are_not_factorized():
    composed = kernels.RBF(2.0) * kernels.Linear() + kernels.Transform(kernels.RBF(), jnp.tanh)
    assert not kernels.is_user_defined(composed)
    assert kernels.is_user_defined(kernels.Subspace(composed + Cubic(), [0]))


@pytest.mark.parametrize(
    "options, name",
    [
        ({"max_iterations": -3}, "max_iterations"),
        ({"max_iterations": 0}, "max_iterations"),
        ({"max_iterations": 1.5}, "max_iterations"),
        ({"tolerance": np.nan}, "tolerance"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"tolerance": np.inf}, "tolerance"),
        ({"class_weight": {-1: 1.0, 1: np.nan}}, "class_weight"),
        ({"class_weight": {-1: np.inf, 1: 1.0}}, "class_weight"),
        ({"class_weight": {-1: -1.0, 1: 1.0}}, "class_weight"),
    ],
)
def test_impossible_options_are_refused(options, name):
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        jsvm.fit(jsvm.KernelMachine(kernels.RBF(), losses.Hinge()), X, Y, **options)


def test_a_traced_class_weight_must_be_a_positive_number():
    model = jsvm.KernelMachine(kernels.RBF(), losses.Hinge())

    def code(weight):
        weights = {-1: 1.0, 1: weight}
        return jsvm.fit(model, X, Y, class_weight=weights, throw=False).result

    codes = jax.vmap(code)(jnp.array([1.0, jnp.nan, -1.0, 0.0]))
    R = jsvm.RESULTS
    assert codes.tolist() == [R.successful, R.nonfinite, R.invalid_data, R.invalid_data]
