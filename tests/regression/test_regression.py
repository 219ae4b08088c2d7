"""Bayesian support vector regression: the paper's gradients, adaptation, error bars, and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sklearn_kernels

import jaxsvm as jsvm
from jaxsvm import criteria, kernels, losses, regression
from jaxsvm.posteriors import AbstractMixture, Components, Examples, Joint, mixture, same_for_all

EXAMPLES = 60
NOISE = losses.SoftInsensitive(10.0, 0.1, 0.3)


def standardized_sinc(examples, seed):
    x, y = jsvm.datasets.sinc(examples, noise=NOISE, key=jax.random.key(seed))
    return x / (10 / np.sqrt(3)), y


X, Y = standardized_sinc(EXAMPLES, 0)
NEW = jnp.linspace(-2.0, 2.0, 7)[:, None]
MODEL = jsvm.KernelMachine(
    kernels.RBF(0.45, 0.16) + kernels.Constant(2.0), losses.SoftInsensitive(8.0, 0.09, 0.3)
)


@pytest.fixture(scope="module")
def fitted():
    return jsvm.fit(MODEL, X, Y)


def test_gradients_of_the_evidence_are_the_papers(fitted):
    """Chu, Keerthi and Ong, eqs. 38-40, as they stand there."""
    C, epsilon, beta, kappa, kappa_b = 8.0, 0.09, 0.3, 0.45**-2, 2.0
    alpha, x, n = np.asarray(fitted.dual), np.asarray(X)[:, 0], EXAMPLES
    smooth = 0.16 * np.exp(-kappa / 2 * (x[:, None] - x[None, :]) ** 2)
    delta = np.abs(np.asarray(Y) - (smooth + kappa_b) @ alpha)
    inside, outside = (1 - beta) * epsilon, (1 + beta) * epsilon
    curved, linear = (delta > inside) & (delta < outside), delta >= outside
    assert 5 < curved.sum() < 40 and linear.sum() > 5
    loss = np.where(curved, (delta - inside) ** 2 / (4 * beta * epsilon), 0.0)
    loss = np.where(linear, delta - epsilon, loss)
    root = np.sqrt(beta * epsilon * np.pi / C) * scipy.special.erf(np.sqrt(C * beta * epsilon))
    decay = 2 / C * np.exp(-C * beta * epsilon)
    Z = 2 * (1 - beta) * epsilon + 2 * root + decay
    some = (smooth + kappa_b)[np.ix_(curved, curved)]
    inverse = np.linalg.inv(2 * beta * epsilon / C * np.eye(curved.sum()) + some)
    in_C = C * loss.sum() + np.trace(inverse @ some) / 2 - n / Z * (root + decay)
    squares = (delta[curved] ** 2 - inside**2) / (4 * beta * epsilon)
    in_epsilon = -np.trace(inverse @ some) / 2 + n / Z * (root + 2 * (1 - beta) * epsilon)
    in_epsilon -= C * (squares.sum() + epsilon * linear.sum())

    def in_kernel(change):
        part = change[np.ix_(curved, curved)]
        return np.trace(inverse @ part) / 2 - alpha @ change @ alpha / 2

    in_kappa = in_kernel(-kappa / 2 * (x[:, None] - x[None, :]) ** 2 * smooth)
    in_offset = in_kernel(np.full((n, n), kappa_b))

    gradient = jax.grad(criteria.LaplaceEvidence())(MODEL, X, Y)
    ours = [
        gradient.loss.log_C,
        gradient.loss.log_epsilon,
        -gradient.kernel.left.log_lengthscale / 2,  # kappa = lengthscale^-2
        gradient.kernel.right.log_variance,
    ]
    np.testing.assert_allclose(ours, [in_C, in_epsilon, in_kappa, in_offset], rtol=1e-8)


def test_the_derivative_of_a_minimum_needs_no_system_but_has_all_orders(fitted):
    """The envelope theorem, and its own derivative, against differences of fits."""

    def objective(log_C):
        loss = losses.SoftInsensitive(jnp.exp(log_C), 0.09, 0.3)
        return jsvm.fit(jsvm.KernelMachine(MODEL.kernel, loss), X, Y).stats.objective

    point, step = jnp.log(8.0), 1e-4
    slope = jax.jit(jax.grad(objective))
    difference = (objective(point + step) - objective(point - step)) / (2 * step)
    np.testing.assert_allclose(slope(point), difference, rtol=1e-6)
    bend = (slope(point + step) - slope(point - step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(slope)(point), bend, rtol=1e-5)


LOSSES = [
    losses.SoftInsensitive(6.0, 0.2, 0.4),
    losses.EpsilonInsensitive(6.0, 0.2),
    losses.Huber(6.0, 0.2),
    losses.Laplacian(6.0),
    losses.Quadratic(0.09),
]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.usefixtures("wrong_arrays")  # a matrix of residuals
def test_cumulative_noise_against_quadrature(loss):
    ends = np.array([0.0, 0.05, 0.12, 0.2, 0.28, 0.4, 0.6, 0.9, 1.3])
    nodes, weights = np.polynomial.legendre.leggauss(24)
    t = ends[:-1, None] + np.diff(ends)[:, None] * (1 + nodes) / 2
    density = np.exp(loss.log_likelihood(jnp.asarray(t), jnp.zeros(t.shape)))
    masses = np.cumsum(density @ weights * np.diff(ends) / 2)
    found = loss.noise_cumulative(jnp.asarray(np.stack([ends[1:], -ends[1:]])))
    np.testing.assert_allclose(found, [0.5 + masses, 0.5 - masses], atol=1e-12)
    far = loss.noise_cumulative(jnp.array([0.0, 60.0]))
    np.testing.assert_allclose(far, [0.5, 1.0], atol=1e-12)


class Given(AbstractMixture):
    """A posterior whose latent values are given."""

    parts: Components

    @property
    def loss(self):
        return self.parts.losses

    @property
    def examples(self):
        return Examples(*jnp.zeros((3, 1)))

    def decision(self, x):
        return self.parts.mean

    def components(self, x):
        return self.parts

    def joint(self, x):
        _, means, _, shares, _, deviation = self.parts
        return Joint(means, jnp.diag(deviation**2)[None], shares)


def given_by(loss, means, deviations, shares):
    """One Gaussian, or value, of each machine."""
    spread = None if deviations is None else deviations[:, None]
    return Given(mixture(loss, means[:, None], spread, shares))


def literal_cumulative(loss, mean, deviation, t):
    """Of Gaussian plus noise, by a fine trapezoid rule over the Gaussian."""
    z = np.linspace(-9, 9, 200_001)
    inner = np.asarray(loss.noise_cumulative(jnp.asarray(t - mean - deviation * z)))
    return np.trapezoid(scipy.stats.norm.pdf(z) * inner, z)


@pytest.mark.parametrize("deviation", [0.003, 0.2, 30.0])
def test_intervals_and_densities_against_quadrature(deviation):
    loss = LOSSES[0]
    means, deviations = jnp.array([[0.7, -1.0]]), jnp.full((1, 2), deviation)
    given = given_by(same_for_all(loss, 1), means, deviations, jnp.ones(1))
    low, high = given.interval(None, 0.9)
    np.testing.assert_allclose(low + high, 2 * means[0], atol=1e-9)
    inside = [literal_cumulative(loss, 0.7, deviation, float(end[0])) for end in (low, high)]
    np.testing.assert_allclose(inside, [0.05, 0.95], atol=1e-8)

    _, total = given.target(None)
    np.testing.assert_allclose(total**2, deviation**2 + loss.noise_variance, rtol=1e-12)

    targets = np.array([0.9, 5.0])

    def integrand(t, point):  # over the noise: its density and the Gaussian that is left
        gap = (targets[point] - float(means[0, point]) - t) / deviation
        noise = loss.log_likelihood(jnp.asarray(t), jnp.zeros(t.shape))
        return np.exp(np.asarray(noise) + scipy.stats.norm.logpdf(gap)) / deviation

    found = given.log_density(jnp.zeros((2, 1)), targets)
    for point in (0, 1):
        center = targets[point] - float(means[0, point])
        t = np.concatenate(
            [np.linspace(-9, 9, 400_001), center + deviation * np.linspace(-9, 9, 400_001)]
        )
        t = np.unique(t)
        literal = np.log(np.trapezoid(integrand(t, point), t))
        np.testing.assert_allclose(found[point], literal, rtol=1e-6, atol=1e-7)


def test_draws_and_mixtures_have_the_intervals_of_their_own_distribution():
    means = jnp.asarray(np.random.default_rng(0).normal(size=(50, 2)))
    shares = jnp.full(50, 1 / 50)
    given = given_by(same_for_all(LOSSES[0], 50), means, None, shares)
    low, high = given.interval(None, 0.8)
    for point in (0, 1):
        ends = jnp.stack([low[point], high[point]])
        inside = jnp.mean(LOSSES[0].noise_cumulative(ends[None, :] - means[:, point, None]), axis=0)
        np.testing.assert_allclose(inside, [0.1, 0.9], atol=1e-10)
    # two members that disagree, each with its own noise
    both = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), LOSSES[0], losses.SoftInsensitive(2.0, 0.5, 0.4)
    )
    means, deviations = jnp.array([[0.0], [1.0]]), jnp.array([[0.1], [0.3]])
    given = given_by(both, means, deviations, jnp.array([0.25, 0.75]))
    low, high = given.interval(None, 0.95)
    for end, wanted in ((low, 0.025), (high, 0.975)):
        first = literal_cumulative(LOSSES[0], 0.0, 0.1, float(end[0]))
        second = literal_cumulative(losses.SoftInsensitive(2.0, 0.5, 0.4), 1.0, 0.3, float(end[0]))
        np.testing.assert_allclose(0.25 * first + 0.75 * second, wanted, atol=1e-8)


def test_the_quadratic_case_is_gaussian_process_regression():
    kernel = sklearn_kernels.ConstantKernel(0.16) * sklearn_kernels.RBF(
        0.45
    ) + sklearn_kernels.ConstantKernel(2.0)
    peer = GaussianProcessRegressor(kernel, alpha=0.03, optimizer=None).fit(X, Y)
    model = jsvm.KernelMachine(MODEL.kernel, losses.Quadratic(0.03))
    value = -criteria.LaplaceEvidence()(model, X, Y)
    np.testing.assert_allclose(value, peer.log_marginal_likelihood_value_, rtol=1e-8)
    posterior = jsvm.laplace(jsvm.fit(model, X, Y))
    mean, deviation = peer.predict(np.asarray(NEW), return_std=True)
    np.testing.assert_allclose(posterior.latent(NEW), (mean, deviation), rtol=1e-8, atol=1e-10)
    total = np.sqrt(deviation**2 + 0.03)
    np.testing.assert_allclose(posterior.target(NEW)[1], total, rtol=1e-8)
    low, high = posterior.interval(NEW, 0.95)
    reach = scipy.stats.norm.ppf(0.975) * total
    np.testing.assert_allclose((low, high), (mean - reach, mean + reach), rtol=1e-7)
    targets = mean + 0.1
    density = scipy.stats.norm.logpdf(targets, mean, total)
    np.testing.assert_allclose(posterior.log_density(NEW, targets), density, rtol=1e-7)


def test_error_bars_are_those_of_equation_44(fitted):
    posterior = jsvm.laplace(fitted)
    some = np.asarray(X)[np.asarray(fitted.free)]
    # the factorization is of the off-bound support vectors, in a block of 32
    assert posterior.posterior_covariance.factor.shape[0] == -(-len(some) // 32) * 32 < EXAMPLES
    gram = 0.16 * np.exp(-((some - some.T) ** 2) / (2 * 0.45**2)) + 2.0
    k = 0.16 * np.exp(-((some - np.asarray(NEW).T) ** 2) / (2 * 0.45**2)) + 2.0
    system = 2 * 0.3 * 0.09 / 8.0 * np.eye(len(some)) + gram
    variance = 2.16 - np.sum(k * np.linalg.solve(system, k), axis=0)
    np.testing.assert_allclose(posterior.latent(NEW)[1] ** 2, variance, rtol=1e-7)


@pytest.fixture(scope="module")
def adapted():
    x, y = standardized_sinc(150, 3)
    return regression.adapt(x, y, progress=False)


def test_adaptation_finds_the_noise_and_the_function(adapted):
    model = adapted.model
    assert len(adapted.values) == 4 and adapted.usable.all()
    assert float(adapted.value) == float(jnp.min(adapted.values))
    _, y = standardized_sinc(150, 3)
    assert set(jsvm.frozen(model)) == {"kernel.left.variance", "loss.beta"}
    np.testing.assert_allclose(model.kernel.left.variance, jnp.var(y), rtol=1e-12)
    np.testing.assert_allclose(model.loss.noise_variance, NOISE.noise_variance, rtol=0.35)
    # no worse than the truth's own noise, and the evidence than that of the true noise model
    truth = jsvm.replace(model, {"loss.C": 10.0, "loss.epsilon": 0.1})
    evidence = criteria.LaplaceEvidence()
    assert adapted.value <= evidence(truth, adapted.x, adapted.y)
    fit = adapted.fit()
    assert int(fit.free.sum() + fit.bound.sum()) == int(fit.support.sum()) < 150
    clean = jnp.sinc(10 / np.sqrt(3) * NEW[:, 0] / np.pi)
    mean, deviation = jsvm.laplace(fit).latent(NEW)
    assert float(jnp.max(jnp.abs(mean - clean) / deviation)) < 4


def test_a_committee_is_the_mixture_of_its_members(adapted):
    ensemble = adapted.ensemble("criterion")
    committee = jsvm.laplace(ensemble)
    shares = np.exp(float(adapted.value) - np.asarray(adapted.values))
    np.testing.assert_allclose(committee.shares, shares / shares.sum(), rtol=1e-6)
    mean, deviation = committee.latent(NEW)
    np.testing.assert_allclose(mean, ensemble.decision(NEW), atol=1e-12)
    np.testing.assert_allclose(mean, committee.predict(NEW), atol=1e-12)
    each = [member.latent(NEW) for member in committee.members]
    second = sum(
        share * (m**2 + d**2) for share, (m, d) in zip(committee.shares, each, strict=True)
    )
    np.testing.assert_allclose(deviation**2, second - mean**2, rtol=1e-6)
    low, high = committee.interval(NEW, 0.9)
    assert jnp.all((low < mean) & (mean < high))


def test_the_papers_choices():
    assert [regression.default_beta(n) for n in (50, 100, 1999, 2000, 4000)] == [
        0.8, 0.3, 0.3, 0.1, 0.05,
    ]  # fmt: skip
    x = np.random.default_rng(0).normal(size=(120, 3))
    y = 5 * x[:, 0]
    model = regression.machine(x, y, ard=True)
    scale = np.std(y)
    values = jsvm.parameters(model)
    np.testing.assert_allclose(values["loss.C"], 1 / scale)
    np.testing.assert_allclose(values["loss.epsilon"], 0.05 * scale)
    np.testing.assert_allclose(values["kernel.right.variance"], 100 * scale**2)
    np.testing.assert_allclose(values["kernel.left.lengthscale"], np.full(3, 2**0.5))
    starts = [jsvm.parameters(start) for start in regression.starts(model, 3)]
    np.testing.assert_allclose([s["loss.C"] * scale for s in starts], [1, 1, 10, 10])
    lengths = [float(s["kernel.left.lengthscale"][0]) ** 2 for s in starts]
    np.testing.assert_allclose(lengths, [2, 3, 2, 3])
    assert len(regression.starts(regression.machine(x, y, loss=losses.Quadratic()), 2)) == 1


def test_bad_input():
    x, y = np.asarray(X), np.asarray(Y)
    with pytest.raises(ValueError, match="NaN"):
        regression.adapt(x, np.where(np.arange(EXAMPLES) == 3, np.nan, y))
    with pytest.raises(ValueError, match="all targets are the same"):
        regression.adapt(x, np.full(EXAMPLES, 2.0))
    with pytest.raises(ValueError, match="all targets are the same"):
        regression.machine(x[:1], y[:1])
    with pytest.raises(ValueError, match="beta"):
        regression.machine(x, y, beta=1.5)
    with pytest.raises(ValueError, match="`beta` belongs to the default loss"):
        regression.machine(x, y, beta=0.5, loss=losses.Quadratic())
    with pytest.raises(TypeError, match="regression loss"):
        regression.machine(x, y, loss=losses.Hinge())
    with pytest.raises(ValueError, match="`restarts` must be from 1 to 4"):
        regression.adapt(x, y, restarts=5)
    given = given_by(same_for_all(losses.Hinge(), 1), jnp.zeros((1, 1)), None, jnp.ones(1))
    for ask in (given.target, given.interval):
        with pytest.raises(ValueError, match="not a noise model"):
            ask(x)


def test_odd_data_have_right_answers(fitted):
    with pytest.raises(ValueError, match="level"):
        jsvm.laplace(fitted).interval(NEW, 1.0)
    with pytest.raises(ValueError, match="fitted on 1 inputs"):
        jsvm.laplace(fitted).target(jnp.zeros((2, 3)))
    # an insensitive zone that holds all targets: nothing to learn, and the prior's own error bars
    wide = jsvm.KernelMachine(MODEL.kernel, losses.SoftInsensitive(8.0, 100.0, 0.3))
    idle = jsvm.fit(wide, X, Y)
    assert not idle.support.any()
    mean, deviation = jsvm.laplace(idle).latent(NEW)
    np.testing.assert_allclose(mean, 0.0)
    np.testing.assert_allclose(deviation**2, 2.16)
    # one example on its own, off the zone by more than the bound allows: its dual is at the bound
    one = jsvm.fit(MODEL, X[:1], jnp.array([50.0]))
    np.testing.assert_allclose(one.dual, [8.0])
    # each example twice is each with a weight of two
    twice = jsvm.fit(MODEL, jnp.concatenate([X, X]), jnp.concatenate([Y, Y]))
    weighted = jsvm.fit(MODEL, X, Y, weights=np.full(EXAMPLES, 2.0))
    np.testing.assert_allclose(twice.decision(NEW), weighted.decision(NEW), atol=1e-8)
