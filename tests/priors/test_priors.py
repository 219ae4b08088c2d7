"""Priors of models: densities of unconstrained leaves, units of the data, and searches with them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from grid import CRITERIA, check_gradient

import jaxsvm as jsvm
from jaxsvm import criteria, evidence, kernels, losses, priors
from jaxsvm.criteria import Data, Regularized

RNG = np.random.default_rng(5)
X = RNG.normal(size=(40, 3)) * [1.0, 2.0, 0.5]
Y = np.where(X[:, 0] + 0.3 * RNG.normal(size=40) > 0, 1.0, -1.0)
TARGETS = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=40)
DATA = Data(jnp.asarray(X), jnp.asarray(Y), jnp.ones(40))
ARD = jsvm.KernelMachine(
    kernels.RBF(np.array([1.0, 2.0, 3.0]), 4.0) + kernels.Constant(0.3), losses.Hinge(1.4)
)
REGRESSION = jsvm.KernelMachine(
    kernels.RBF(1.3, 2.0) + kernels.Constant(0.3), losses.SoftInsensitive(1.5, 0.2, 0.3)
)


def prepared(prior, model, x=X, y=Y):
    return prior.prepare(model, jnp.asarray(x), jnp.asarray(y), jnp.ones(len(y)))


def log_density(prior, model):
    return float(prior.log_density(model))


# a field of each kind: a logarithm, the logit of a share, and that of half a share
@pytest.mark.parametrize(
    ("loss", "field", "end"),
    [
        (losses.Hinge(1.0), "C", np.inf),
        (losses.SoftInsensitive(1.0, 0.1, 0.3), "beta", 1.0),
        (losses.FlipNoise(0.1), "flip_rate", 0.5),
    ],
)
def test_densities_are_those_of_the_leaves(loss, field, end):
    """The mass over all leaves is the distribution's mass over all possible values."""
    model = jsvm.KernelMachine(kernels.RBF(), loss)
    prior = prepared(priors.Independent({f"loss.{field}": priors.LogNormal(0.2, 0.7)}), model)

    @jax.jit
    def density(leaf):
        moved = jax.tree.map(lambda _: leaf, model)  # the others have no prior
        return jnp.exp(prior.log_density(moved))

    mass, _ = scipy.integrate.quad(lambda leaf: float(density(leaf)), -30, 30, points=[-2, 0, 2])
    expected = scipy.stats.lognorm(0.7, scale=0.2).cdf(end)
    np.testing.assert_allclose(mass, expected, rtol=1e-6)


def test_names():
    """A name stands for all hyperparameters below it; frozen ones and those without a prior do not count."""
    prior = priors.Independent({"kernel.left": priors.LogNormal(2.0, 1.0)})
    frozen = jsvm.freeze(ARD, "kernel.left.variance")
    expected = {
        name: np.sum(scipy.stats.norm(np.log(2.0), 1.0).logpdf(np.log(values)))
        for name, values in jsvm.parameters(ARD).items()
    }
    every = expected["kernel.left.lengthscale"] + expected["kernel.left.variance"]
    np.testing.assert_allclose(log_density(prepared(prior, ARD), ARD), every, rtol=1e-12)
    np.testing.assert_allclose(
        log_density(prepared(prior, frozen), jsvm.unfreeze(frozen)),
        expected["kernel.left.lengthscale"],
        rtol=1e-12,
    )
    assert priors.unnamed(prepared(prior, ARD), ARD) == ("kernel.right.variance", "loss.C")
    assert priors.unnamed(prepared(priors.Default(), ARD), ARD) == ()


def test_around():
    model = jsvm.freeze(ARD, "kernel.right")
    prior = prepared(priors.Around(0.5), model)
    moved = jsvm.replace(jsvm.unfreeze(model), {"loss.C": 2.8, "kernel.right.variance": 7.0})
    expected = 4 * scipy.stats.norm(0, 0.5).logpdf(0) + scipy.stats.norm(0, 0.5).logpdf(np.log(2))
    np.testing.assert_allclose(log_density(prior, moved), expected, rtol=1e-12)
    given = prepared(priors.Around(0.5, center=moved), model)
    np.testing.assert_allclose(log_density(given, ARD), expected, rtol=1e-12)
    with pytest.raises(ValueError, match=r"`center` has no `kernel.left.lengthscale`"):
        prepared(priors.Around(center=jsvm.KernelMachine(kernels.RBF(), losses.Hinge())), ARD)


def in_other_units(model, inputs, targets):
    """The same machine for inputs and targets that are so many times as large."""
    values = jsvm.parameters(model)
    factors = {
        "kernel.left.lengthscale": inputs,
        "kernel.left.variance": targets**2,
        "kernel.right.variance": targets**2,
        "loss.C": 1 / targets,
        "loss.epsilon": targets,
        "loss.beta": 1.0,
    }
    return jsvm.replace(model, {name: factors[name] * values[name] for name in values})


def test_default_is_in_units_of_the_data():
    """Data in other units give the density of the machine in other units, with the same fit."""
    prior = prepared(priors.Default(), REGRESSION, X, TARGETS)
    other = prepared(priors.Default(), REGRESSION, 7 * X, 3 * TARGETS)
    moved = in_other_units(REGRESSION, 7.0, 3.0)
    # beta has no unit, and its prior is around where the search begins
    np.testing.assert_allclose(
        log_density(other, moved), log_density(prior, REGRESSION), rtol=1e-12
    )
    fits = jsvm.fit(REGRESSION, X, TARGETS), jsvm.fit(moved, 7 * X, 3 * TARGETS)
    np.testing.assert_allclose(fits[1].latent, 3 * fits[0].latent, rtol=1e-6)


def test_default_numbers():
    """The units written out by hand."""
    spreads = X.std(axis=0)
    distance = np.sqrt(np.sum(spreads**2))
    found = prepared(priors.Default(), ARD).distributions
    np.testing.assert_allclose(found["kernel.left.lengthscale"].scale, spreads * np.sqrt(3))
    np.testing.assert_allclose(found["kernel.left.variance"].median, 4.0)
    np.testing.assert_allclose(found["loss.C"].median, 1.0)
    found = prepared(priors.Default(), REGRESSION, X, TARGETS).distributions
    np.testing.assert_allclose(found["kernel.left.lengthscale"].median, distance)
    np.testing.assert_allclose(found["kernel.left.variance"].median, 4 * TARGETS.var())
    np.testing.assert_allclose(found["loss.C"].median, 10 / TARGETS.std())
    np.testing.assert_allclose(found["loss.epsilon"].median, 0.1 * TARGETS.std())
    np.testing.assert_allclose(found["loss.beta"].median, 0.3)


@pytest.mark.parametrize(
    ("kernel", "name", "expected"),
    [
        (kernels.Subspace(kernels.RBF(), [0, 2]), "kernel.lengthscale", [0, 2]),
        (kernels.ARD(kernels.Matern32(9.0), np.ones(3)), "kernel.lengthscale", "one"),
        (kernels.Transform(kernels.RBF(9.0), jnp.tanh), "kernel.lengthscale", 9.0),
        (kernels.Linear(), "variance", "linear"),
    ],
)
def test_default_of_composed_kernels(kernel, name, expected):
    model = jsvm.KernelMachine(kernel, losses.Hinge())
    found = prepared(priors.Default(), model).distributions[f"kernel.{name}"]
    spreads = X.std(axis=0)
    if expected == "one":  # the inputs are already divided by their lengthscales
        expected = 1.0
    elif expected == "linear":
        expected = 4 / np.sum(spreads**2)
    elif isinstance(expected, list):
        expected = np.sqrt(np.sum(spreads[expected] ** 2))
    np.testing.assert_allclose(found.median, expected)


def test_weights_and_constant_inputs():
    """An example of weight zero has no influence, whatever its values; a constant input has unit one."""
    x = np.vstack([np.column_stack([X[:, :2], np.ones(40)]), np.full((1, 3), 1e6)])
    weights = np.r_[np.ones(40), 0.0]
    found = priors.Default().prepare(ARD, jnp.asarray(x), jnp.ones(41), jnp.asarray(weights))
    scale = found.distributions["kernel.left.lengthscale"].scale
    np.testing.assert_allclose(scale, np.sqrt(3) * np.r_[X[:, :2].std(axis=0), 1.0])


def test_draws():
    prior = prepared(priors.Default(), ARD)
    keys = jax.random.split(jax.random.key(0), 2000)
    drawn = jsvm.parameters(jax.vmap(lambda key: prior.draw(ARD, key))(keys))
    lengthscales = np.asarray(drawn["kernel.left.lengthscale"])
    scale = X.std(axis=0) * np.sqrt(3)
    for index in range(3):
        test = scipy.stats.kstest(
            lengthscales[:, index], scipy.stats.halfcauchy(scale=scale[index]).cdf
        )
        assert test.pvalue > 1e-3
    amplitudes = np.asarray(drawn["kernel.left.variance"])
    test = scipy.stats.kstest(np.log(amplitudes), scipy.stats.norm(np.log(4.0), 2.0).cdf)
    assert test.pvalue > 1e-3
    correlation = np.corrcoef(np.log(lengthscales[:, 0]), np.log(amplitudes))[0, 1]
    assert abs(correlation) < 4 / np.sqrt(2000)


def test_gradient():
    prior = prepared(priors.Default(), ARD)
    check_gradient(prior.log_density, ARD, twice=True)


@pytest.mark.parametrize("name", [name for name in CRITERIA if name != "PRESS with a prior"])
def test_value_of_each_criterion(name):
    """A total counts once, a mean n times, and the scale of squares is integrated out."""
    criterion, loss = CRITERIA[name]
    y = Y if loss.is_classifier else TARGETS
    model = jsvm.KernelMachine(kernels.RBF(1.5, 2.0), loss)
    data = DATA._replace(y=jnp.asarray(y))
    prior = {"kernel.lengthscale": priors.LogNormal(3.0, 0.5)}
    wrapped = Regularized(criterion, priors.as_prior(prior)).prepare(model, data, None)
    q = float(criterion(model, X, y))
    expected = {"total": q, "mean": 40 * q, "squares": 20 * np.log(max(q, 1e-300))}
    scale = criterion.traits.scale
    assert scale == ("squares" if name == "PRESS" else scale)
    assert (scale == "total") == (name.startswith("laplace") or name in ("gp laplace", "EP"))
    density = scipy.stats.norm(np.log(3.0), 0.5).logpdf(np.log(1.5))
    np.testing.assert_allclose(wrapped(model, X, y), expected[scale] - density, rtol=1e-9)


def test_search_with_a_prior():
    """The optimum is where the slopes of the evidence and the prior cancel."""
    prior = priors.Default(penalty=priors.LogNormal(1.0, 0.3))
    best = jsvm.select(ARD, X, Y, criteria.LaplaceEvidence(), prior=prior, max_steps=100)
    density = prepared(prior, ARD)

    def total(model):
        return criteria.LaplaceEvidence()(model, X, Y) - density.log_density(model)

    np.testing.assert_allclose(best.value, total(best.model), rtol=1e-9)
    slopes = jax.tree.leaves(jax.grad(total)(best.model))
    assert max(np.abs(slope).max() for slope in slopes) < 0.05 * abs(float(best.value))
    assert float(best.value) < float(total(ARD)) - 1


def test_separable_data_have_an_optimum():
    """Without a prior the amplitude runs to its bound, with it it stays in the prior's range."""
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    model = jsvm.KernelMachine(kernels.RBF(2.0), losses.Hinge(1.0))
    options = {"bounds": {"kernel.variance": (1e-3, 1e7)}, "max_steps": 100, "throw": False}
    ends = [
        jsvm.parameters(
            jsvm.select(model, X, y, criteria.LaplaceEvidence(), prior=prior, **options).model
        )["kernel.variance"]
        for prior in (None, priors.Default())
    ]
    high = priors.Default().variance.quantile(0.999)
    assert ends[0] > 100 * high
    assert ends[1] < high


def test_sampled_evidence_with_a_prior():
    """The gradient is that of the sampled evidence with the same key, plus the prior's."""
    sampled = evidence.Sampled(chains=2, draws=20)
    wrapped = Regularized(sampled, priors.Default())
    key = jax.random.key(0)
    observed = []
    for objective in (sampled, wrapped):
        objective = objective.prepare(ARD, DATA, key)
        memory = objective.init(ARD, DATA, key)
        observed.append(objective.observe(ARD, DATA, memory, key))
    pull = jax.grad(prepared(priors.Default(), ARD).log_density)(ARD)
    for plain, with_prior, slope in zip(
        *[jax.tree.leaves(o.gradient) for o in observed], jax.tree.leaves(pull), strict=True
    ):
        np.testing.assert_allclose(with_prior, plain - slope, rtol=1e-9)
    assert np.isnan(observed[1].value)
    for error in zip(*[jax.tree.leaves(o.standard_error) for o in observed], strict=True):
        np.testing.assert_array_equal(*error)


def test_single_precision():
    with jax.enable_x64(False):
        prior = priors.Default().prepare(
            *jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), (ARD, X, Y, np.ones(40)))
        )
        model = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), ARD)
        value, slope = jax.value_and_grad(prior.log_density)(model)
        assert value.dtype == jnp.float32
        single = np.array([np.sum(leaf) for leaf in jax.tree.leaves(slope)])
    prior = prepared(priors.Default(), ARD)
    np.testing.assert_allclose(value, log_density(prior, ARD), rtol=1e-5)
    double = [np.sum(leaf) for leaf in jax.tree.leaves(jax.grad(prior.log_density)(ARD))]
    np.testing.assert_allclose(single, double, rtol=1e-4, atol=1e-5)


def test_bad_input():
    distribution = priors.LogNormal()
    with pytest.raises(TypeError, match=r"the prior of `loss.C` must be a distribution"):
        priors.Independent({"loss.C": 3.0})
    with pytest.raises(ValueError, match=r"no parameter `loss\.c`"):
        prepared(priors.Independent({"loss.c": distribution}), ARD)
    with pytest.raises(ValueError, match=r"`loss.C` has two priors"):
        prepared(priors.Independent({"loss.C": distribution, "loss": distribution}), ARD)
    with pytest.raises(ValueError, match=r"`loss.C` is positive, so its prior cannot be a Normal"):
        prepared(priors.Independent({"loss.C": priors.Normal()}), ARD)
    with pytest.raises(ValueError, match=r"`loss.C` may be as large as inf, .* ends at 2"):
        prepared(priors.Independent({"loss.C": priors.LogitNormal(end=2.0)}), ARD)
    with pytest.raises(ValueError, match=r"`loss.C` has shape \(\), but its prior .* \(2,\)"):
        prepared(priors.Independent({"loss.C": priors.LogNormal([1.0, 2.0])}), ARD)
    with pytest.raises(TypeError, match="`prior` must be one of"):
        jsvm.select(ARD, X, Y, criteria.LaplaceEvidence(), prior=3.0)
    with pytest.raises(RuntimeError, match="depends on the data"):
        priors.Default().log_density(ARD)
    with pytest.raises(RuntimeError, match="depends on where a search begins"):
        priors.Around().log_density(ARD)
    with pytest.raises(ValueError, match="`deviation` must be positive"):
        priors.Around(0.0)
