"""Solvers, criteria and Gaussian processes use only the interface, so a low-rank matrix works too.

Every criterion and loss of the grid has the same value and gradient for a `LowRankGram` and a `DenseGram`
with the same entries.
"""

import equinox as eqx
import grid
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm import criteria, gp, losses
from jaxsvm._fit import fit_gram
from jaxsvm.approximations import Represented
from jaxsvm.gram import AbstractGram, DenseGram, LowRankGram

N, RANK = 30, 6
RNG = np.random.default_rng(2)
X = jnp.asarray(RNG.normal(size=(N, 2)))
FACTOR = jnp.asarray(RNG.normal(size=(N, RANK)))
EXTRA = jnp.full(N, 0.4)
WEIGHTS = jnp.ones(N).at[4].set(2.0).at[7].set(0.0)
LABELS = jnp.asarray(np.where(RNG.uniform(size=N) < 0.5, -1.0, 1.0))
TARGETS = jnp.asarray(RNG.normal(size=N))


def targets(loss):
    return LABELS if loss.is_classifier else TARGETS


def both(function, extra):
    """Value, rest and gradient of `function(gram)`, for the low-rank and the dense matrix."""

    def run(is_dense):
        def of_factor(factor):
            gram = LowRankGram(factor, extra)
            return function(DenseGram(gram.dense()) if is_dense else gram)

        return eqx.filter_jit(jax.value_and_grad(of_factor, has_aux=True))(FACTOR)

    return run(False), run(True)


def check_same(low, dense):
    (value, _), gradient = low
    (expected, _), slopes = dense
    np.testing.assert_allclose(value, expected, rtol=1e-8)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-7)


# ---------------------------------------------------------------------------- fits


@pytest.mark.parametrize("has_offset", [False, True])
@pytest.mark.parametrize("name", grid.LOSSES)
def test_the_same_fit(name, has_offset):
    loss = grid.LOSSES[name]
    model = jsvm.KernelMachine(jsvm.kernels.RBF(1.0), loss, offset=has_offset)

    def score(gram):
        fitted = fit_gram(model, gram, X, targets(loss), WEIGHTS)
        return jnp.sum(jnp.sin(fitted.latent)), fitted

    low, dense = both(score, EXTRA)
    check_same(low, dense)
    fitted, reference = low[0][1], dense[0][1]
    assert jsvm.RESULTS(int(fitted.result)).is_success and fitted.result == reference.result
    np.testing.assert_allclose(fitted.latent, reference.latent, atol=1e-8)
    np.testing.assert_array_equal(fitted.group, reference.group)


# ---------------------------------------------------------------------------- criteria

MORE = {
    "span, offset": (criteria.Span(), losses.SquaredHinge()),
    "linear response, offset": (criteria.LinearResponse(score="smooth"), losses.Hinge()),
    "PRESS, offset": (criteria.PRESS(), losses.LeastSquares()),
    "mean field, log": (gp.NaiveMeanField("log"), losses.Probit(0.3)),
    "mean field, flips": (gp.NaiveMeanField("log"), losses.FlipNoise(0.05, 0.3)),
    "gp laplace, log": (gp.LaplaceLeaveOneOut("log"), losses.Logistic(1.5)),
    "radius, hinge": (criteria.RadiusMargin(), losses.Hinge()),
    "EP, log": (gp.ExpectationPropagationLeaveOneOut("log"), losses.Probit(0.3)),
}
# a piecewise constant score has no gradient to compare; `MORE` has smooth ones
CONSTANT = {
    "support vectors",
    "jaakkola haussler",
    "mean field",
    "gp laplace, left out",
    "EP, left out",
}
SINGULAR = [
    "laplace, hinge",
    "span",
    "linear response",
    "linear response, offset",
    "PRESS, offset",
    "radius",
    "radius, hinge",
    "EP",
]


class Given(eqx.Module):
    """A representation with a given matrix in place of that of the kernel."""

    gram: AbstractGram

    def matrix(self, kernel, x):
        return Represented(self.gram, None, jnp.zeros(()))


@pytest.mark.parametrize(
    "name, extra",
    [(name, EXTRA) for name in (*grid.CRITERIA, *MORE)] + [(name, None) for name in SINGULAR],
    ids=lambda part: part if isinstance(part, str) else "singular" if part is None else "",
)
def test_the_same_criterion(name, extra):
    criterion, loss = (grid.CRITERIA | MORE)[name]
    model = jsvm.KernelMachine(jsvm.kernels.RBF(1.0), loss, offset="offset" in name)
    criterion.check(model, X, targets(loss))
    seen = []

    def score(gram):
        seen.append(type(gram))
        data = criteria.Data(X, targets(loss), WEIGHTS, representation=Given(gram))
        evaluation = criterion.evaluate(model, data)
        return evaluation.value, evaluation.result

    low, dense = both(score, extra)
    assert seen == [LowRankGram, DenseGram]
    check_same(low, dense)
    (value, result), gradient = low
    assert result == dense[0][1] and jsvm.RESULTS(int(result)).is_success
    assert np.isfinite(value) and np.any(gradient) == (name not in CONSTANT)
