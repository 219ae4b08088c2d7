"""The log evidence against quadrature, the exact Gaussian case, its own gradient, and itself.

Random keys are fixed, so every test gives the same numbers each time. A bound of three standard errors is
one that one of some hundred honest estimates misses; no key was chosen after looking.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_losses
import scipy.stats
from reference import rbf

import jaxsvm as jsvm
from jaxsvm import kernels, losses
from jaxsvm.approximations import check_lost_variance
from jaxsvm.evidence import Bridge, TemperedSMC, Thermodynamic, evidence_gradient, log_evidence
from jaxsvm.evidence._tempered import _log_mean
from jaxsvm.evidence._thermodynamic import ThermodynamicDiagnostics, _integrals, _problems
from jaxsvm.sampling import MCLMC, NUTS, SamplingWarning

# options are static: tests that share them, a loss and shapes share a program as well
SHORT = Thermodynamic(temperatures=12, chains=32, warmup=20, draws=30)
LONG = Thermodynamic(temperatures=12, chains=32, warmup=20, draws=480)
PARTICLES = TemperedSMC(particles=100, runs=32, max_temperatures=5)
MANY_PARTICLES = TemperedSMC(particles=200, runs=8)

_rng = np.random.default_rng(1)
X = _rng.normal(size=(50, 2))
LABELS = np.where(X[:, 0] + 0.5 * _rng.normal(size=50) > 0, 1.0, -1.0)
LABELS[:3] = 1.0, -1.0, 1.0
TARGETS = np.sin(2 * X[:, 0]) + 0.3 * _rng.normal(size=50)
LENGTHSCALE, VARIANCE = 1.2, 2.0
# loss, targets, the loss once more, and among how many examples the first ones have a weight
CASES = {
    "hinge": (
        lambda: losses.Hinge(1.5),
        LABELS,
        lambda y, f: reference_losses.hinge(y, f, 1.5),
        50,
    ),
    "squared hinge": (
        lambda: losses.SquaredHinge(1.5),
        LABELS,
        lambda y, f: reference_losses.squared_hinge(y, f, 1.5),
        3,
    ),
    "soft insensitive": (
        lambda: losses.SoftInsensitive(1.7, 0.4, 0.3),
        TARGETS,
        lambda y, f: reference_losses.soft_insensitive(y, f, 1.7, 0.4, 0.3),
        3,
    ),
    "trigonometric": (losses.Trigonometric, LABELS, reference_losses.trigonometric, 3),
}


SINGLE = ("squared hinge", "trigonometric")  # in single precision, JAX's default


def machine(loss, lengthscale=LENGTHSCALE, variance=VARIANCE):
    return jsvm.KernelMachine(kernels.RBF(lengthscale, variance), loss)


def with_weights(case, examples, method, **options):
    """The evidence of the first examples; one without weight is absent, so one program serves for all."""
    make_loss, y, _, count = CASES[case]
    weights = 1.0 * (np.arange(count) < examples)
    data = X[:count], y[:count]
    options = {"key": jax.random.key(examples), "weights": weights, "method": method} | options
    with jax.enable_x64(case not in SINGLE):
        z = log_evidence(machine(make_loss()), *data, **options)
    assert z.value.dtype == (jnp.float32 if case in SINGLE else jnp.float64)
    return z


def by_quadrature(case, examples):
    """`ln int df N(f; 0, K) prod_i Q(y_i | f_i)` by the trapezoid rule on a grid of latent values."""
    _, y, loss, _ = CASES[case]
    grid = np.linspace(-6, 6, 161) * np.sqrt(VARIANCE)
    gram = rbf(X[:examples], LENGTHSCALE, VARIANCE, 0.0)
    precision = np.linalg.inv(gram)
    axes = np.meshgrid(*[grid] * examples, indexing="ij", sparse=True)
    exponent = np.zeros([len(grid)] * examples)
    for i in range(examples):
        values = np.array([loss(y[i], f) for f in grid])
        exponent = exponent - values.reshape(axes[i].shape)
        for j in range(examples):
            exponent = exponent - precision[i, j] * axes[i] * axes[j] / 2
    total = np.exp(exponent).sum() * (grid[1] - grid[0]) ** examples
    log_gauss = -np.linalg.slogdet(2 * np.pi * gram)[1] / 2
    return log_gauss + np.log(total) - examples * np.log(_inverse_normalizer(case, loss))


def _inverse_normalizer(case, loss):
    if case == "soft insensitive":
        return reference_losses.soft_insensitive_normalizer(1.7, 0.4, 0.3)
    return reference_losses.inverse_kappa(loss)


def deviation(z, exact):
    """In standard errors."""
    return abs(float(z.value) - exact) / float(z.standard_error)


@pytest.mark.parametrize("examples", [1, 2, 3])
@pytest.mark.parametrize("case", ["hinge", "squared hinge", "soft insensitive"])
def test_quadrature(case, examples):
    z = with_weights(case, examples, SHORT)
    assert float(z.standard_error) < 0.06
    assert deviation(z, by_quadrature(case, examples)) < 3


@pytest.mark.parametrize("examples", [1, 2, 3])
def test_quadrature_with_a_wall(examples):
    z = with_weights("trigonometric", examples, PARTICLES)
    assert float(z.standard_error) < 0.05
    assert deviation(z, by_quadrature("trigonometric", examples)) < 3
    assert bool(z.diagnostics.wall)
    with pytest.raises(ValueError, match=r'not finite.*"smc"'):
        with_weights("trigonometric", examples, SHORT)


def test_gaussian_process():
    x, y = X[:20], TARGETS[:20]
    model = machine(losses.Quadratic(0.1))
    covariance = rbf(x, LENGTHSCALE, VARIANCE, 0.0) + 0.1 * np.eye(20)
    exact = scipy.stats.multivariate_normal(np.zeros(20), covariance).logpdf(y)
    z = log_evidence(model, x, y, key=jax.random.key(0), method=SHORT)
    assert float(z.standard_error) < 0.3
    assert deviation(z, exact) < 3
    np.testing.assert_allclose(-jsvm.criteria.LaplaceEvidence()(model, x, y), exact, rtol=1e-9)


def fifty(log_c=0.0, log_lengthscale=0.0, log_variance=0.0):
    loss = losses.Hinge(1.5 * np.exp(log_c))
    scales = LENGTHSCALE * np.exp(log_lengthscale), VARIANCE * np.exp(log_variance)
    return machine(loss, *scales), X, LABELS


def test_both_methods_agree():
    integral = log_evidence(*fifty(), key=jax.random.key(0), method=SHORT)
    particles = log_evidence(*fifty(), key=jax.random.key(1), method=MANY_PARTICLES)
    error = np.hypot(float(integral.standard_error), float(particles.standard_error))
    assert error < 0.2
    assert abs(float(integral.value - particles.value)) < 3 * error
    assert not bool(particles.diagnostics.wall)
    # where the paths end, and what they have in common there
    constant = 50 * float(fifty()[0].loss.log_normalizer())
    means = []
    for z in (integral, particles):
        np.testing.assert_allclose(z.path.log_partition[:, -1] + constant, z.estimates, rtol=1e-10)
        np.testing.assert_array_equal(z.path.temperature[:, -1], 1)
        ends = np.asarray(z.path.mean_loss[:, -1])
        means.append((ends.mean(), ends.std(ddof=1) / len(ends) ** 0.5))
    assert abs(means[0][0] - means[1][0]) < 3 * np.hypot(means[0][1], means[1][1])


@pytest.mark.parametrize(("method", "most"), [(SHORT, 0.16), (LONG, 0.07)])
@pytest.mark.parametrize("name", ["log_c", "log_lengthscale", "log_variance"])
def test_differences_are_integrals_of_the_gradient(name, method, most):
    """`ln Z(+d) - ln Z(-d) = int dlambda d ln Z / dlambda` by Simpson's rule, for a d that is not small."""
    width = 0.4
    shares = width / 3 * np.array([1, 4, 1])
    values, variances = [], []
    for place, shift in enumerate((-width, 0.0, width)):
        found = evidence_gradient(
            *fifty(**{name: shift}), key=jax.random.key(place), warmup=60, draws=2400
        )
        values.append(float(_entry(found.gradient, name)))
        variances.append(float(_entry(found.standard_error, name)) ** 2)
    ends = [
        log_evidence(*fifty(**{name: shift}), key=jax.random.key(9 + place), method=method)
        for place, shift in enumerate((-width, width))
    ]
    difference = float(ends[1].value - ends[0].value)
    error = np.sqrt(
        shares**2 @ np.array(variances) + sum(float(z.standard_error) ** 2 for z in ends)
    )
    assert error < most
    assert abs(difference - shares @ np.array(values)) < 3 * error


def _entry(model, name):
    return model.loss.log_C if name == "log_c" else getattr(model.kernel, name)


def test_full_rank_is_exact():
    exact = with_weights("soft insensitive", 3, SHORT)
    assert float(exact.value) == float(
        with_weights("soft insensitive", 3, SHORT, approximation=jsvm.Nystrom(3)).value
    )


def test_long_run_in_other_coordinates():
    """Landmarks in another order turn the coordinates; sixteen times the draws quarter the standard error.

    The ratio of the two squared standard errors, each a variance over 32 independent chains, is 16 times one
    of Fisher's F with (31, 31) degrees of freedom if the chains' estimates are about Gaussian: for all but
    one key of a thousand within this interval, 4.7 to 54. Neither 1 nor 256 is in it.
    """
    short = with_weights("soft insensitive", 3, SHORT)
    long = with_weights(
        "soft insensitive", 3, LONG, approximation=jsvm.Nystrom(landmarks=[2, 0, 1])
    )
    ratio = float(short.standard_error / long.standard_error) ** 2
    low, high = scipy.stats.f(31, 31).interval(0.999)
    assert 16 * low < ratio < 16 * high
    assert abs(float(short.value - long.value)) < 3 * float(short.standard_error)
    assert deviation(long, by_quadrature("soft insensitive", 3)) < 3


def test_deterministic():
    for case, method in (("soft insensitive", SHORT), ("trigonometric", PARTICLES)):
        first, second = (with_weights(case, 3, method) for _ in range(2))
        assert float(first.value) == float(second.value)
        np.testing.assert_array_equal(first.estimates, second.estimates)


def test_unfinished_runs_say_so():
    with pytest.warns(SamplingWarning, match="given up after 5 temperatures"):
        z = with_weights("trigonometric", 3, PARTICLES, weights=np.full(3, 1e3))
    assert np.isnan(float(z.value)) and z.problems


def test_rule_is_exact_for_a_known_integrand():
    """`<L>_t = a / (t + b)` and its variance, as for a Gaussian; estimates of errors are not too small."""
    a, b = 30.0, 1e-3
    for count in (8, 16, 32):
        t = np.linspace(0, 1, count + 1) ** 5
        mean, deviation = a / (t + b), np.sqrt(a) / (t + b)
        # two draws that have this mean and variance
        loss = np.stack([mean - deviation, mean + deviation], axis=1)[:, :, None]
        exact = -a * np.log((1 + b) / b)
        error = abs(_integrals(5.0, loss)[-1, 0] - exact)
        coarse = abs(_integrals(5.0, loss[::2])[-1, 0] - exact)
        assert error < max(coarse / 4, 1e-9)
    assert error < 1e-6 * abs(exact)


def test_problems_in_words():
    def problems(**changes):
        good = {
            "acceptance": jnp.full(12, 0.8),
            "divergences": jnp.zeros(12, int),
            "step_size": jnp.full(12, 0.2),
            "rhat": jnp.full(12, 1.01),
            "discretization_error": jnp.asarray(0.01),
            "drift": jnp.asarray(0.1),
            "drift_error": jnp.asarray(0.1),
            "whitening_error": jnp.asarray(0.0),
        }
        return _problems(SHORT, ThermodynamicDiagnostics(**(good | changes)), 0.1, 0.01)

    assert problems() == []
    for words, changes in (
        ("diverged", {"divergences": jnp.zeros(12, int).at[3].set(100)}),
        ("accepted", {"acceptance": jnp.full(12, 0.8).at[7].set(0.1)}),
        ("accepted", {"acceptance": jnp.full(12, jnp.nan)}),
        ("do not agree", {"rhat": jnp.full(12, 1.01).at[0].set(1.3)}),
        ("do not agree", {"rhat": jnp.full(12, jnp.nan)}),
        ("have not settled", {"drift": jnp.asarray(-0.5)}),
        ("integration rule", {"discretization_error": jnp.asarray(0.2)}),
        ("low rank", {"whitening_error": jnp.asarray(0.2)}),
    ):
        (text,) = problems(**changes)
        assert words in text
    assert check_lost_variance(0.005) == []


@pytest.mark.parametrize(
    "method",
    [
        Thermodynamic(temperatures=4, chains=4, warmup=2, draws=8),
        TemperedSMC(particles=16, runs=2),
        Bridge(chains=4, warmup=2, draws=8),
    ],
    ids=lambda method: type(method).__name__,
)
def test_a_user_may_tolerate_lost_variance(method):
    model, x, y = fifty()
    found = {}
    for tolerance in (0.01, 0.9):
        low = jsvm.Nystrom(2, landmarks=list(range(5)), tolerance=tolerance)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SamplingWarning)  # of so few draws
            found[tolerance] = log_evidence(
                model, x, y, key=jax.random.key(0), method=method, approximation=low
            )
    reported, tolerated = (
        [text for text in found[t].problems if "low rank loses" in text] for t in (0.01, 0.9)
    )
    assert len(reported) == 1 and "more than 1%" in reported[0]
    assert tolerated == []
    np.testing.assert_array_equal(found[0.01].estimates, found[0.9].estimates)


def test_mean_of_runs():
    value, error = _log_mean(np.log([1.0, 2.0, 3.0]) - 1000)
    np.testing.assert_allclose([value, error], [np.log(2) - 1000, 1 / 2 / 3**0.5])


def test_bad_inputs():
    (model, x, y), key = fifty(), jax.random.key(0)
    offset = jsvm.KernelMachine(model.kernel, model.loss, offset=True)
    with pytest.raises(ValueError, match="offset"):
        log_evidence(offset, x, y, key=key)
    with pytest.raises(ValueError, match="thermodynamic"):
        log_evidence(model, x, y, key=key, method="laplace")
    with pytest.raises(ValueError, match="rank of 5"):
        log_evidence(model, x, y, key=key, approximation=jsvm.Nystrom(5, 2))
    with pytest.raises(ValueError, match="entries"):
        log_evidence(model, x, y[:2], key=key)
    for make, words in (
        (lambda: Thermodynamic(temperatures=7), "even"),
        (lambda: Thermodynamic(temperatures=2), "`temperatures`"),
        (lambda: Thermodynamic(chains=1), "`chains`"),
        (lambda: Thermodynamic(draws=2.5), "`draws`"),  # pyright: ignore
        (lambda: Thermodynamic(power=1.0), "`power`"),
        (lambda: TemperedSMC(runs=1), "`runs`"),
        (lambda: TemperedSMC(particles=True), "`particles`"),
        (lambda: TemperedSMC(target_ess=1.0), "`target_ess`"),
    ):
        with pytest.raises(ValueError, match=words):
            make()
    for make in (
        lambda: TemperedSMC(sampler=NUTS()),  # pyright: ignore
        lambda: Thermodynamic(sampler="hmc"),  # pyright: ignore
    ):
        with pytest.raises(TypeError, match="sampler"):
            make()
    assert MCLMC() == Thermodynamic().sampler
