"""Draws of hyperparameters against quadrature of their density, and reports of bad ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import jaxsvm as jsvm
from jaxsvm import kernels, losses
from jaxsvm.criteria import Data, LaplaceEvidence
from jaxsvm.posteriors import laplace
from jaxsvm.sampling._diagnostics import SamplingWarning
from jaxsvm.sampling._hyperparameters import sample_hyperparameters
from jaxsvm.sampling._hyperposterior import HyperDiagnostics

RNG = np.random.default_rng(3)
X = RNG.normal(size=(24, 2))
Y = np.where(X[:, 0] + 0.7 * RNG.normal(size=24) > 0, 1.0, -1.0)
NEW = RNG.normal(size=(8, 2))
KEY = jax.random.key(0)
MODEL = jsvm.freeze(
    jsvm.KernelMachine(kernels.RBF(1.0, 1.9) + kernels.Constant(0.3), losses.Hinge(1.4)),
    "kernel.left.variance",
    "kernel.right",
    "loss",
)
NAME = "kernel.left.lengthscale"
OPTIONS = {"key": KEY, "start": "model", "warmup": 60, "draws": 120, "integration_steps": 3}
BOUNDS = {NAME: (0.3, 3.0)}
# an example of each class at the same place
NOTHING = np.zeros((2, 1)), np.array([1.0, -1.0])
SIMPLE = jsvm.KernelMachine(
    jsvm.freeze(kernels.RBF(1.5), "variance"), jsvm.freeze(losses.LeastSquares(2.0), "C")
)


def prior(model):
    """A log-normal lengthscale, as a density of its logarithm."""
    return -(jnp.sum(jnp.log(model.kernel.left.lengthscale) - 0.2) ** 2) / (2 * 0.8**2)


@pytest.fixture(scope="module")
def posterior():
    return sample_hyperparameters(MODEL, X, Y, prior=prior, bounds=BOUNDS, **OPTIONS)


@pytest.fixture(scope="module")
def log_density():
    """The density of 302 log lengthscales, one by one."""
    evidence = LaplaceEvidence()

    def value(place):
        moved = jsvm.replace(jsvm.unfreeze(MODEL), {NAME: jnp.exp(place)})
        return evidence.evaluate(
            moved, Data(jnp.asarray(X), jnp.asarray(Y), jnp.ones(len(Y)))
        ).value

    values = jax.jit(jax.vmap(value))
    return lambda places: scipy.stats.norm(0.2, 0.8).logpdf(places) - values(jnp.asarray(places))


def test_draws_have_the_density(posterior, log_density):
    logs = np.log(np.asarray(posterior.parameters[NAME]))
    assert logs.shape == (4, 120)
    places = np.linspace(np.log(0.3), np.log(3.0), 302)
    log_weights = np.asarray(log_density(places))
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    effective = float(posterior.diagnostics.ess_bulk[NAME])
    assert effective > 80
    mean = weights @ places
    deviation = np.sqrt(weights @ (places - mean) ** 2)
    assert abs(logs.mean() - mean) < 4 * deviation / np.sqrt(effective)
    # the number of draws below each quartile
    for level in (0.25, 0.5, 0.75):
        quantile = np.interp(level, np.cumsum(weights), places)
        error = np.sqrt(level * (1 - level) / effective)
        assert abs(np.mean(logs < quantile) - level) < 4 * error
    # the log density of the draws themselves, up to a constant
    found = np.asarray(posterior.log_posterior).ravel()[:302]
    expected = np.asarray(log_density(logs.ravel()[:302]))
    np.testing.assert_allclose(found - found[0], expected - expected[0], atol=1e-7)


def test_diagnostics(posterior):
    found = posterior.diagnostics
    assert found.problems == []
    assert found.acceptance.shape == (4,) and bool(jnp.all(found.acceptance > 0.5))
    assert bool(jnp.all(found.step_size > 0)) and int(found.failures.sum()) == 0
    # the leaf itself: one rounding error parts the two middle draws, which are as far from their median
    draws = np.asarray(posterior.models.kernel.left.log_lengthscale)
    factors = []
    for values in (draws, np.abs(draws - np.median(draws))):
        ranks = scipy.stats.rankdata(values).reshape(8, 60)
        halves = scipy.stats.norm.ppf((ranks - 3 / 8) / (480 + 1 / 4))
        within = halves.var(axis=1, ddof=1).mean()
        between = 60 * halves.mean(axis=1).var(ddof=1)
        factors.append(np.sqrt((59 / 60 * within + between / 60) / within))
    np.testing.assert_allclose(found.rhat[NAME], max(factors), rtol=1e-9)
    assert list(posterior.parameters) == [NAME]
    inside = (np.exp(draws) > 0.3) & (np.exp(draws) < 3.0)
    assert inside.all()


def test_predictions_are_averages_over_draws(posterior):
    models = [
        jax.tree.map(lambda leaf, i=chain: leaf[i, 60], posterior.models) for chain in range(4)
    ]
    chosen = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf[:, 60:61], leaf.shape), posterior.models
    )
    same = type(posterior)(
        chosen, posterior.log_posterior, posterior.diagnostics, posterior.evidence, posterior.x,
        posterior.y, posterior.weights,
    )  # fmt: skip
    fits = [jsvm.fit(model, X, Y) for model in models]
    decision = np.mean([fit.decision(NEW) for fit in fits], axis=0)
    same = same.using(4)
    np.testing.assert_allclose(same.decision(NEW), decision, rtol=1e-8)
    probability = np.mean([laplace(fit).probability(NEW) for fit in fits], axis=0)
    np.testing.assert_allclose(same.probability(NEW), probability, rtol=1e-8)
    labels = np.where(probability > 0.5, 1, -1)
    np.testing.assert_array_equal(same.predict(NEW), labels)


def test_the_same_key_gives_the_same_draws(posterior):
    again = sample_hyperparameters(MODEL, X, Y, prior=prior, bounds=BOUNDS, **OPTIONS)
    for name, values in posterior.parameters.items():
        np.testing.assert_array_equal(again.parameters[name], values)


def test_the_default_prior_and_start():
    """The data hold no information, so the draws are those of the prior."""
    found = sample_hyperparameters(SIMPLE, *NOTHING, key=KEY, warmup=100, draws=250)
    logs = np.log(np.asarray(found.parameters["kernel.lengthscale"]))
    error = 2 / np.sqrt(float(found.diagnostics.ess_bulk["kernel.lengthscale"]))
    assert abs(logs.mean() - np.log(1.5)) < 4 * error
    assert 1.6 < logs.std() < 2.4


def test_a_fit_that_fails_is_refused():
    """A prior that is NaN is treated like a fit that failed."""

    def broken(model):
        return jnp.where(model.kernel.lengthscale < 1.0, 0.0, jnp.nan)

    def sample(lengthscale):
        moved = jsvm.replace(SIMPLE, {"kernel.lengthscale": lengthscale})
        options = {"key": KEY, "start": "model", "warmup": 40, "draws": 40}
        return sample_hyperparameters(moved, *NOTHING, prior=broken, **options)

    with pytest.warns(SamplingWarning, match="rejected because a fit failed: set `bounds`"):
        found = sample(0.8)
    assert int(found.diagnostics.failures.sum()) > 3
    assert float(found.parameters["kernel.lengthscale"].max()) < 1
    with pytest.raises(jsvm.FitError, match="no chain can start here"):
        sample(5.0)


@pytest.mark.usefixtures("wrong_arrays")
def test_problems_in_words():
    few = jnp.array([1, 1])
    still = HyperDiagnostics(
        *np.full((5, 2), 0.9), {"a": np.array(1.0), "b": np.array([1.0, np.nan])},
        {"a": np.array(200.0), "b": np.array([200.0, np.nan])}, 200,
    )  # fmt: skip
    assert (
        "do not agree about `b`" in still.problems[0]
        and "effective draws of `b`" in still.problems[1]
    )
    bad = HyperDiagnostics(
        jnp.array([0.3, 0.9]), 9 * few, 0 * few, 40 * few, jnp.ones(2),
        {"a": jnp.ones(3), "b": jnp.array(1.4)}, {"a": jnp.full(3, 90.0), "b": jnp.array(7.0)}, 100,
    )  # fmt: skip
    words = bad.problems
    assert len(words) == 5
    assert "do not agree about `b` (R-hat 1.40)" in words[0]
    assert "only 7 effective draws of `b`" in words[1]
    assert "accepted only 30%" in words[2] and "9% of the transitions diverged" in words[3]
    assert "40% of the transitions left the bounds" in words[4]


def test_bad_input(posterior):
    def sample(model=MODEL, **changes):
        return sample_hyperparameters(model, X, Y, **{**OPTIONS, **changes})

    with pytest.raises(TypeError, match="must be a KernelMachine"):
        sample(3)
    with pytest.raises(ValueError, match="all hyperparameters are frozen"):
        sample(jsvm.freeze(MODEL, "kernel"))
    with pytest.raises(TypeError, match=r"`prior` must be one of `jaxsvm.priors`"):
        sample(prior=2.0)
    with pytest.raises(ValueError, match="`warmup` must be an integer of at least 20, but is 3"):
        sample(warmup=3)
    with pytest.raises(ValueError, match="`start` must be one of \\('select', 'model'\\)"):
        sample(start="best")
    with pytest.raises(ValueError, match="outside its bounds"):
        sample(bounds={NAME: (2.0, 3.0)})
    with pytest.raises(ValueError, match="free, unpenalized offset"):
        sample(jsvm.KernelMachine(MODEL.kernel, losses.Hinge(), offset=True))
    with pytest.raises(ValueError, match="`draws` must be an integer from 1 to 480"):
        posterior.using(0)
    with pytest.raises(ValueError, match="fitted on 2 inputs"):
        posterior.decision(NEW[:, :1])
    with pytest.raises(ValueError, match="`rule` must be"):
        posterior.probability(NEW, "mean")
