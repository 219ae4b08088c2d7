"""The interface of all predictors, against posteriors written out in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_posteriors as reference
import scipy.special

import jaxsvm as jsvm
from jaxsvm import gp, kernels, losses
from jaxsvm.approximations import LandmarkSubspace
from jaxsvm.criteria import LaplaceEvidence
from jaxsvm.posteriors import AbstractPosterior
from jaxsvm.sampling import Chains, Diagnostics, HyperDiagnostics, Traces

RNG = np.random.default_rng(3)
X = RNG.normal(size=(20, 2))
Y = np.where(X[:, 0] + 0.7 * RNG.normal(size=20) > 0, 1.0, -1.0)
T = np.sin(2 * X[:, 0]) + 0.2 * RNG.normal(size=20)
NEW = RNG.normal(size=(4, 2))
TARGETS = np.array([0.4, -1.0, 0.1, 2.5])
B = RNG.normal(size=(2, 6, 8))
LENGTHSCALES = [np.array([0.8, 1.7]), np.array([1.3, 0.9])]
SHARES = [0.3, 0.7]
KEY = jax.random.key(5)


def hinge(z):
    return -1.4 * np.maximum(1 - z, 0)


def soft(r, C=3.0, epsilon=0.2, beta=0.4):
    size = np.abs(r)
    bent = C * (size - (1 - beta) * epsilon) ** 2 / (4 * beta * epsilon)
    value = np.where(size <= (1 - beta) * epsilon, 0.0, bent)
    return -np.where(size > (1 + beta) * epsilon, C * (size - epsilon), value)


LOSSES = {
    "labels": (losses.Hinge, (1.4,), hinge),
    "targets": (losses.SoftInsensitive, (3.0, 0.2, 0.4), soft),
}


def machine(loss, lengthscale=LENGTHSCALES[0]):
    kernel = kernels.RBF(jnp.asarray(lengthscale), reference.VARIANCE)
    return jsvm.KernelMachine(kernel + kernels.Constant(reference.CONSTANT), loss)


def fits(kind):
    """Two fits of different lengthscales."""
    family, values, _ = LOSSES[kind]
    y = Y if kind == "labels" else T
    return [jsvm.fit(machine(family(*values), length), X, y) for length in LENGTHSCALES]


def sampled(fit):
    """Invented draws: only the predictions from them matter."""
    whitening = jax.jit(LandmarkSubspace.whiten)(LandmarkSubspace(None, 8), fit.model.kernel, fit.x)
    b = jnp.asarray(B)
    means = jnp.mean(b, axis=1)
    trace, one = jnp.zeros((6, 2)), jnp.ones(())
    traces = Traces(trace, trace, trace[:, :, None], trace, trace, trace > 0, trace)
    diagnostics = Diagnostics(jnp.ones(2), jnp.zeros(2, int), *(7 * [one]), draws=6)
    chains = Chains(b[:, -1], fit.dual, one)
    return jsvm.Posterior(
        fit.model, fit.x, fit.y, fit.weights, whitening, b, means, traces, diagnostics, chains,
        jnp.arange(6),
    )  # fmt: skip


def drawn_hyperparameters(some):
    """Two draws of each of two chains, of which one chain has one machine and the other another."""
    models = jax.tree.map(
        lambda *leaves: jnp.stack([jnp.stack([leaf, leaf]) for leaf in leaves]),
        *(fit.model for fit in some),
    )
    none, counts = jnp.zeros(2), jnp.zeros(2, int)
    diagnostics = HyperDiagnostics(none, counts, counts, counts, none, {}, {}, 2)
    first = some[0]
    return jsvm.HyperPosterior(
        models, jnp.zeros((2, 2)), diagnostics, LaplaceEvidence(), first.x, first.y, first.weights
    )


def make(kind):
    """All posteriors of labels or of targets, by name."""
    some = fits(kind)
    ensemble = jsvm.Ensemble(tuple(some), jnp.asarray(SHARES))
    found = {
        "laplace": jsvm.laplace(some[0]),
        "mixture": jsvm.laplace(ensemble),
        "samples": sampled(some[0]),
        "hyperparameters": drawn_hyperparameters(some),
    }
    if kind == "labels":
        found["gp.laplace"] = gp.laplace(machine(losses.Probit(0.5)), X, Y)
        found["mean field"] = gp.mean_field(machine(losses.Logistic()), X, Y)
        found["expectation propagation"] = gp.expectation_propagation(
            machine(losses.Probit(0.5)), X, Y
        )
    return found


def around(kind, posterior, share, lengthscale):
    curvature, log_likelihood = posterior.curvature, LOSSES[kind][2]
    return reference.gaussian(
        share, X, NEW, posterior.fit.dual, curvature, log_likelihood, lengthscale
    )


def probit(z):
    return scipy.special.log_ndtr(z / np.sqrt(0.5))


def written_out(kind, name, posterior):
    """The machines of a posterior, from its duals, curvatures, sites or draws."""
    if name == "laplace":
        return [around(kind, posterior, 1.0, LENGTHSCALES[0])]
    if name == "mixture":
        parts = zip(posterior.members, SHARES, LENGTHSCALES, strict=True)
        return [around(kind, *part) for part in parts]
    if name == "hyperparameters":
        both = [jsvm.laplace(fit) for fit in fits(kind)]
        parts = zip(both, [0.5, 0.5], LENGTHSCALES, strict=True)
        return [around(kind, *part) for part in parts]
    if name == "samples":
        basis = posterior.whitening.basis
        return [reference.drawn(X, NEW, basis.points, basis.projection, B, LOSSES[kind][2])]
    if name == "gp.laplace":
        z = Y * np.asarray(posterior.mean) / np.sqrt(0.5)
        hazard = np.exp(-(z**2) / 2 - scipy.special.log_ndtr(z)) / np.sqrt(2 * np.pi)
        precision, log_likelihood = hazard * (hazard + z) / 0.5, probit
        dual = Y * hazard / np.sqrt(0.5)  # minus the slopes of the loss
    elif name == "mean field":
        inverse = np.linalg.inv(np.asarray(posterior.response))
        precision = 1 / np.diag(inverse - reference.kernel(X, X))
        dual, log_likelihood = posterior.dual, lambda z: -np.logaddexp(0, -z)
    else:
        precision, log_likelihood = np.asarray(posterior.sites.precision), probit
        noisy = reference.kernel(X, X) + np.diag(1 / precision)
        dual = np.linalg.solve(noisy, np.asarray(posterior.sites.shift) / precision)
    return [reference.gaussian(1.0, X, NEW, dual, precision, log_likelihood)]


CASES = [("labels", name) for name in (
    "laplace", "mixture", "samples", "hyperparameters", "gp.laplace", "mean field",
    "expectation propagation",
)]  # fmt: skip
CASES += [("targets", name) for name in ("laplace", "mixture", "samples", "hyperparameters")]
OF_TARGETS = [name for kind, name in CASES if kind == "targets"]
OF_LABELS = [name for kind, name in CASES if kind == "labels"]


@pytest.fixture(scope="module")
def known():
    return {kind: make(kind) for kind in LOSSES}


@pytest.fixture(scope="module")
def literal(known):
    return {(k, name): written_out(k, name, known[k][name]) for k, name in CASES}


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_mean_and_deviation(known, literal, kind, name):
    posterior = known[kind][name]
    assert isinstance(posterior, AbstractPosterior)
    mean, covariance = reference.moments(literal[kind, name])
    found, deviation = posterior.latent(NEW)
    np.testing.assert_allclose(found, mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(deviation**2, np.diag(covariance), rtol=1e-6)
    np.testing.assert_allclose(posterior.decision(NEW), found, rtol=1e-12, atol=1e-12)
    together = posterior.joint(NEW)
    assert together.means.shape[0] == len(together.covariances) == len(together.shares)
    expected = posterior.predict(NEW)
    if kind == "targets":
        np.testing.assert_array_equal(expected, posterior.decision(NEW))
    else:
        likely = [reference.probability(literal[kind, name], i) > 0.5 for i in range(4)]
        np.testing.assert_array_equal(expected, np.where(likely, 1.0, -1.0))
    np.testing.assert_array_equal(posterior.examples.x, X)
    np.testing.assert_array_equal(posterior.examples.y, Y if kind == "labels" else T)
    np.testing.assert_array_equal(posterior.examples.weights, np.ones(20))
    assert posterior.loss.is_classifier == (kind == "labels")


@pytest.mark.parametrize("name", OF_LABELS)
def test_probabilities_of_labels(known, literal, name):
    posterior, machines = known["labels"][name], literal["labels", name]
    for rule in ("normalized", "average"):
        expected = [reference.probability(machines, i, rule) for i in range(4)]
        np.testing.assert_allclose(posterior.probability(NEW, rule), expected, atol=2e-6)
    normalized = posterior.probability(NEW)
    yes = np.exp(posterior.log_density(NEW, np.ones(4)))
    no = np.exp(posterior.log_density(NEW, -np.ones(4)))
    np.testing.assert_allclose(yes, normalized, rtol=1e-12)
    np.testing.assert_allclose(yes + no, 1.0, rtol=1e-12)


@pytest.mark.parametrize("name", OF_TARGETS)
def test_distribution_of_targets(known, literal, name):
    posterior, machines = known["targets"][name], literal["targets", name]
    both = [reference.predictive(machines, i, TARGETS[i]) for i in range(4)]
    density, below = np.array(both).T
    np.testing.assert_allclose(np.exp(posterior.log_density(NEW, TARGETS)), density, rtol=1e-5)
    np.testing.assert_allclose(posterior.cumulative(NEW, TARGETS), below, atol=2e-6)
    mean, covariance = reference.moments(machines)
    found, deviation = posterior.target(NEW)
    np.testing.assert_allclose(found, mean, rtol=1e-7, atol=1e-9)
    total = np.diag(covariance) + reference.noise(soft)[3]
    np.testing.assert_allclose(deviation**2, total, rtol=1e-6)
    for level in (0.5, 0.95):
        low, high = posterior.interval(NEW, level)
        np.testing.assert_allclose(posterior.cumulative(NEW, low), (1 - level) / 2, atol=1e-9)
        np.testing.assert_allclose(posterior.cumulative(NEW, high), (1 + level) / 2, atol=1e-9)
        under = reference.predictive(machines, 1, float(low[1]))[1]
        np.testing.assert_allclose(under, (1 - level) / 2, atol=2e-6)
    # the density has a mass of one
    grid = np.linspace(-12, 12, 1201)
    logs = posterior.log_density(np.tile(NEW[:1], (1201, 1)), grid)
    np.testing.assert_allclose(np.trapezoid(np.exp(logs), grid), 1.0, atol=1e-4)


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_draws_have_the_moments_of_the_posterior(known, literal, kind, name):
    mean, covariance = reference.moments(literal[kind, name])
    count = 6000
    draws = np.asarray(known[kind][name].sample(NEW, count, key=KEY))
    assert draws.shape == (count, 4) and len(np.unique(draws[:, 0])) == count
    error = np.sqrt(np.diag(covariance) / count)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 4.5 * error)
    around = draws - mean
    products = around[:, :, None] * around[:, None, :]
    errors = products.std(axis=0) / np.sqrt(count)
    assert np.all(np.abs(products.mean(axis=0) - covariance) < 4.5 * errors)
    # points near each other vary together, and the same point does not vary with itself
    twice = np.asarray(known[kind][name].sample(NEW[[0, 0]], 50, key=KEY))
    np.testing.assert_allclose(twice[:, 0], twice[:, 1], atol=1e-5)


def asked(kind, posterior):
    """All methods, as functions of the points alone."""
    y = np.ones(4) if kind == "labels" else TARGETS
    methods = {
        "decision": posterior.decision,
        "predict": posterior.predict,
        "latent": posterior.latent,
        "log_density": lambda x: posterior.log_density(x, y),
    }
    if kind == "labels":
        return methods | {"probability": posterior.probability}
    more = {
        "target": posterior.target,
        "interval": posterior.interval,
        "cumulative": lambda x: posterior.cumulative(x, y),
    }
    return methods | more


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_point_that_is_not_a_number_stays_alone(known, kind, name):
    posterior = known[kind][name]
    methods = asked(kind, posterior)
    if name == "hyperparameters":  # each method compiles its own fits
        methods = {method: methods[method] for method in ("latent", "log_density")}
    run = jax.jit(lambda x: {name: method(x) for name, method in methods.items()})
    broken = NEW.copy()
    broken[2, 1] = np.nan
    rest = np.array([0, 1, 3])
    for clean, spoilt in zip(jax.tree.leaves(run(NEW)), jax.tree.leaves(run(broken)), strict=True):
        assert clean.shape == spoilt.shape == (4,)
        np.testing.assert_allclose(spoilt[rest], clean[rest], rtol=1e-12, atol=1e-14)
        assert np.isnan(spoilt[2]) and np.isfinite(clean).all()
    draws = np.asarray(jax.jit(lambda x: posterior.sample(x, 3, key=KEY))(broken))
    assert np.isnan(draws[:, 2]).all() and np.isfinite(draws[:, rest]).all()
    with pytest.raises(ValueError, match="holds 1 NaN"):
        posterior.decision(broken)


def test_single_precision(known):
    with jax.enable_x64(False):
        single = {kind: make(kind) for kind in LOSSES}
        for kind, name in CASES:
            if (kind, name) == ("targets", "hyperparameters"):
                continue  # as those of labels
            wanted = asked(kind, known[kind][name])
            for method, run in asked(kind, single[kind][name]).items():
                with jax.enable_x64(True):
                    expected = jax.tree.leaves(wanted[method](NEW))
                for found, exact in zip(jax.tree.leaves(run(NEW)), expected, strict=True):
                    assert found.dtype == jnp.float32, (kind, name, method)
                    np.testing.assert_allclose(found, exact, atol=5e-3, err_msg=f"{name} {method}")
            assert single[kind][name].sample(NEW, 2, key=KEY).dtype == jnp.float32


def test_point_estimates_say_what_has_error_bars():
    some = fits("labels")
    ensemble = jsvm.Ensemble(tuple(some), jnp.asarray(SHARES))
    values = np.stack([reference.kernel(NEW, X, length) @ fit.dual for fit, length in zip(
        some, LENGTHSCALES, strict=True
    )])  # fmt: skip
    np.testing.assert_allclose(some[0].decision(NEW), values[0], rtol=1e-9)
    mean = np.array(SHARES) @ values
    spread = np.sqrt(np.array(SHARES) @ (values - mean) ** 2)
    np.testing.assert_allclose(ensemble.decision(NEW), mean, rtol=1e-9)
    np.testing.assert_allclose(ensemble.latent(NEW), (mean, spread), rtol=1e-8)
    for one, expected in ((some[0], values[0]), (ensemble, mean)):
        np.testing.assert_array_equal(one.predict(NEW), np.where(expected > 0, 1.0, -1.0))
        assert not isinstance(one, AbstractPosterior) and one.loss.is_classifier
        np.testing.assert_array_equal(one.examples.x, X)
        calls = {
            "probability": lambda one=one: one.probability(NEW),
            "target": lambda one=one: one.target(NEW),
            "interval": lambda one=one: one.interval(NEW, 0.9),
            "cumulative": lambda one=one: one.cumulative(NEW, TARGETS),
            "log_density": lambda one=one: one.log_density(NEW, TARGETS),
            "sample": lambda one=one: one.sample(NEW, 3, key=KEY),
        }
        for method, call in calls.items():
            words = (
                rf"`{method}` needs a posterior.*`jaxsvm.laplace\({type(one).__name__.lower()}\)`"
            )
            with pytest.raises(TypeError, match=words):
                call()


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_errors_are_the_same_for_all(known, kind, name):
    posterior = known[kind][name]
    with pytest.raises(ValueError, match="fitted on 2 inputs, but `x` has 1"):
        posterior.sample(NEW[:, :1], 2, key=KEY)
    with pytest.raises(ValueError, match="`draws` must be a positive integer, but is 0"):
        posterior.sample(NEW, 0, key=KEY)
    with pytest.raises(ValueError, match="`x` has 4 rows, but `y` has 3 entries"):
        posterior.log_density(NEW, np.ones(3))
    if kind == "targets":
        with pytest.raises(ValueError, match="SoftInsensitive is a regression loss"):
            posterior.probability(NEW)
        with pytest.raises(ValueError, match="`level` must be between zero and one"):
            posterior.interval(NEW, 1.0)
        return
    for ask in (posterior.target, posterior.interval, lambda x: posterior.cumulative(x, TARGETS)):
        with pytest.raises(ValueError, match=r"not a noise model.*for labels use `probability`"):
            ask(NEW)
    with pytest.raises(ValueError, match='`rule` must be "normalized" or "average"'):
        posterior.probability(NEW, "mean")
    with pytest.raises(ValueError, match="use `2 \\* y - 1`"):
        posterior.log_density(NEW, np.array([0.0, 1.0, 1.0, 0.0]))


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_posteriors_come_back_from_files(known, kind, name, tmp_path):
    path = tmp_path / "posterior.jaxsvm"
    jsvm.save(path, known[kind][name])
    back = jsvm.load(path)
    assert type(back) is type(known[kind][name])
    for one, other in zip(back.latent(NEW), known[kind][name].latent(NEW), strict=True):
        np.testing.assert_array_equal(one, other)
