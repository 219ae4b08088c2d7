"""Joint draws of function and hyperparameters against quadrature, closed forms and simulations."""

import itertools
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from jax.flatten_util import ravel_pytree
from scripts import module_of

import jaxsvm as jsvm
from jaxsvm import kernels, losses, priors
from jaxsvm.approximations import ApproximationWarning, LandmarkSubspace, smoothed
from jaxsvm.sampling import HMC, NUTS, SGLD, SamplingWarning, set_up
from jaxsvm.sampling._joint import _start, _target
from jaxsvm.sampling._joint_chains import rounds
from jaxsvm.sampling._joint_target import log_joint, place, position_of

KEY = jax.random.key(7)
SHORT = {"key": KEY, "warmup": 250, "draws": 1000, "keep_draws": True, "progress": False}
RNG = np.random.default_rng(4)
X = RNG.normal(size=(25, 1))
T = np.sin(1.5 * X[:, 0]) + 0.3 * RNG.normal(size=25)


def assert_mean(found, values, weights, effective):
    """The mean of draws is that of weighted values, within four standard errors."""
    weights = weights / weights.sum()
    mean = np.sum(weights * values)
    deviation = np.sqrt(np.sum(weights * (values - mean) ** 2))
    assert effective > 100
    assert abs(np.mean(found) - mean) < 4 * deviation / np.sqrt(effective)


def soft(r, C, epsilon, beta):
    """[CKO04, eq. 13]."""
    size = np.abs(r)
    bent = C * (size - (1 - beta) * epsilon) ** 2 / (4 * beta * epsilon)
    linear = C * (size - epsilon)
    outside = np.where(size <= (1 + beta) * epsilon, bent, linear)
    return np.where(size <= (1 - beta) * epsilon, 0.0, outside)


def test_one_example_of_a_noise_model_against_quadrature():
    """C and epsilon of the soft insensitive loss, whose normalizer depends on both."""
    loss = jsvm.freeze(losses.SoftInsensitive(2.0, 0.3, 0.4), "beta")
    model = jsvm.KernelMachine(jsvm.freeze(kernels.RBF(1.0, 0.8), "variance", "lengthscale"), loss)
    prior = {"loss.C": priors.LogNormal(2.0, 0.7), "loss.epsilon": priors.LogNormal(0.3, 0.9)}
    found = jsvm.sample_jointly(model, [[0.5]], [1.6], prior=prior, **SHORT)
    assert found.diagnostics.problems == []
    logs = [
        np.linspace(np.log(m) - 5 * s, np.log(m) + 5 * s, 41) for m, s in ((2, 0.7), (0.3, 0.9))
    ]
    f = np.linspace(-5, 5, 1001) * np.sqrt(0.8)
    density, at_two = np.zeros((41, 41)), np.zeros((41, 41))
    for (i, log_C), (j, log_e) in itertools.product(enumerate(logs[0]), enumerate(logs[1])):
        C, e = np.exp(log_C), np.exp(log_e)
        half = scipy.integrate.quad(
            lambda r, C=C, e=e: np.exp(-soft(r, C, e, 0.4)),
            0,
            e + 60 / C,
            points=[0.6 * e, 1.4 * e],
        )
        joint = np.exp(-soft(1.6 - f, C, e, 0.4)) / (2 * half[0])
        joint *= scipy.stats.norm(0, np.sqrt(0.8)).pdf(f)
        p = scipy.stats.norm(np.log(2), 0.7).pdf(log_C) * scipy.stats.norm(np.log(0.3), 0.9).pdf(
            log_e
        )
        density[i, j] = p * joint.sum()
        at_two[i, j] = p * (joint * f).sum()
    effective = found.diagnostics.ess_bulk
    for number, name in enumerate(("loss.C", "loss.epsilon")):
        grid = logs[number][:, None] if number == 0 else logs[number][None, :]
        draws = np.log(np.asarray(found.parameters[name]))
        assert_mean(draws, grid, density, float(effective[name]))
        assert_mean(draws**2, grid**2, density, float(effective[name]) / 4)
    mean, deviation = found.latent([[0.5]])
    worst = min(float(found.diagnostics.function.ess_bulk), *map(float, effective.values()))
    expected = at_two.sum() / density.sum()
    assert abs(float(mean[0]) - expected) < 4 * float(deviation[0]) / np.sqrt(worst)


@pytest.mark.parametrize("kind", ["logistic", "hinge"])
def test_two_examples_against_quadrature(kind):
    """Lengthscale and amplitude, or lengthscale and C; and the probability of a label in between."""
    x, new = np.array([[0.0], [1.0]]), np.array([[0.4]])
    if kind == "logistic":
        loss, name, start = jsvm.freeze(losses.Logistic(1.5), "C"), "kernel.variance", 2.0
        kernel = kernels.RBF(1.0, 2.0)
    else:
        loss, name, start = losses.Normalized(losses.Hinge(1.0)), "loss.base.C", 1.0
        kernel = jsvm.freeze(kernels.RBF(1.0, 2.0), "variance")
    model = jsvm.KernelMachine(kernel, loss)
    prior = {
        "kernel.lengthscale": priors.LogNormal(1.0, 0.8),
        name: priors.LogNormal(start, 0.8),
    }
    found = jsvm.sample_jointly(model, x, [1.0, -1.0], prior=prior, **SHORT)
    assert found.diagnostics.problems == []

    def loss_of(z, C):
        return np.logaddexp(0, -1.5 * z) if kind == "logistic" else C * np.maximum(1 - z, 0)

    def likelihood(f, C):
        both = np.exp(-loss_of(f, C)) + np.exp(-loss_of(-f, C))
        return np.exp(-loss_of(f, C)) / both

    nodes, shares = np.polynomial.hermite_e.hermegauss(61)
    shares = shares / shares.sum()
    grid = np.linspace(-4, 4, 33) * 0.8
    density, positive = np.zeros((33, 33)), np.zeros((33, 33))
    z1, z2 = np.meshgrid(nodes, nodes, indexing="ij")
    s = shares[:, None] * shares[None, :]
    for (i, a), (j, b) in itertools.product(enumerate(grid), enumerate(grid)):
        length, second = np.exp(a), start * np.exp(b)
        variance, C = (second, None) if kind == "logistic" else (2.0, second)
        k = variance * np.exp(-((x - x.T) ** 2) / (2 * length**2))
        root = np.linalg.cholesky(k + 1e-12 * np.eye(2))
        f1, f2 = root[0, 0] * z1, root[1, 0] * z1 + root[1, 1] * z2
        joint = s * likelihood(f1, C) * likelihood(-f2, C)
        cross = variance * np.exp(-((new - x.T) ** 2) / (2 * length**2))[0]
        solved = np.linalg.solve(k + 1e-12 * np.eye(2), cross)
        mean = solved[0] * f1 + solved[1] * f2
        spread = np.sqrt(max(variance - cross @ solved, 0))
        p = shares @ likelihood(mean.ravel()[None] + spread * nodes[:, None], C)
        weight = np.exp(-(grid[i] ** 2 + grid[j] ** 2) / (2 * 0.8**2))
        density[i, j] = weight * joint.sum()
        positive[i, j] = weight * (joint.ravel() @ p)
    effective = {key: float(value) for key, value in found.diagnostics.ess_bulk.items()}
    lengths = np.log(np.asarray(found.parameters["kernel.lengthscale"]))
    assert_mean(lengths, grid[:, None], density, effective["kernel.lengthscale"])
    others = np.log(np.asarray(found.parameters[name]))
    assert_mean(others, np.log(start) + grid[None, :], density, effective[name])
    # the probability is between zero and one, so its deviation over draws is at most one half
    worst = min(float(found.diagnostics.function.ess_bulk), *effective.values())
    expected = positive.sum() / density.sum()
    assert abs(float(found.probability(new, "average")[0]) - expected) < 4 * 0.4 / np.sqrt(worst)


@pytest.fixture(scope="module")
def regression():
    model = jsvm.KernelMachine(
        jsvm.freeze(kernels.RBF(1.0, 1.0), "variance"), losses.Quadratic(0.1)
    )
    prior = {
        "kernel.lengthscale": priors.LogNormal(1.0, 1.0),
        "loss.noise_variance": priors.LogNormal(0.1, 1.0),
    }
    return jsvm.sample_jointly(model, X, T, prior=prior, **SHORT)


def test_gaussian_process_regression_against_its_marginal_likelihood(regression):
    lengths = np.exp(np.linspace(-2.5, 2.5, 81))
    noises = 0.1 * np.exp(np.linspace(-2.5, 3.5, 81))
    logs, means = np.zeros((81, 81)), np.zeros((81, 81))
    for (i, length), (j, noise) in itertools.product(enumerate(lengths), enumerate(noises)):
        k = np.exp(-((X - X.T) ** 2) / (2 * length**2))
        solved = np.linalg.solve(k + noise * np.eye(25), T)
        logs[i, j] = -T @ solved / 2 - np.linalg.slogdet(k + noise * np.eye(25))[1] / 2
        logs[i, j] -= (np.log(length) ** 2 + np.log(noise / 0.1) ** 2) / 2
        means[i, j] = np.exp(-((0.3 - X[:, 0]) ** 2) / (2 * length**2)) @ solved
    density = np.exp(logs - logs.max())
    assert regression.diagnostics.problems == []
    effective = {k: float(v) for k, v in regression.diagnostics.ess_bulk.items()}
    assert min(effective.values()) > 400  # of 4000
    for name, grid in (
        ("kernel.lengthscale", np.log(lengths)[:, None]),
        ("loss.noise_variance", np.log(noises)[None, :]),
    ):
        draws = np.log(np.asarray(regression.parameters[name]))
        assert_mean(draws, grid, density, effective[name])
        assert_mean(draws**2, grid**2, density, effective[name] / 4)
    mean, deviation = regression.latent([[0.3]])
    error = float(deviation[0]) / np.sqrt(float(regression.diagnostics.function.ess_bulk))
    assert abs(float(mean[0]) - np.sum(density * means) / density.sum()) < 4 * error


def test_labels_against_the_sampled_evidence():
    """One hyperparameter of 30 labels, whose density is the prior times the evidence."""
    x, y = jsvm.datasets.noisy_xor(30, key=jax.random.key(0), inputs=2)
    model = jsvm.freeze(
        jsvm.KernelMachine(kernels.RBF(1.0, 3.0), losses.Hinge(1.0)), "kernel.lengthscale", "loss"
    )
    prior = {"kernel.variance": priors.LogNormal(3.0, 1.0)}
    found = jsvm.sample_jointly(model, x, y, prior=prior, **SHORT)
    logs, errors = np.linspace(-3, 3, 9), []
    values = []
    for number, log in enumerate(logs):
        moved = jsvm.replace(model, {"kernel.variance": 3 * np.exp(log)})
        estimate = jsvm.log_evidence(
            moved, x, y, key=jax.random.key(number), method="bridge", progress=False
        )
        values.append(float(estimate.value))
        errors.append(float(estimate.standard_error))
    fine = np.linspace(-3, 3, 301)
    smooth = np.polyval(np.polyfit(logs, values, 4), fine)
    density = np.exp(smooth - smooth.max() - fine**2 / 2)
    density /= density.sum()
    mean = density @ fine
    deviation = np.sqrt(density @ (fine - mean) ** 2)
    draws = np.log(np.asarray(found.parameters["kernel.variance"]) / 3)
    effective = float(found.diagnostics.ess_bulk["kernel.variance"])
    assert effective > 300 and max(errors) < 0.06
    # an error of the log evidence of this size everywhere moves the mean by less than its product
    # with the deviation
    error = deviation * np.hypot(1 / np.sqrt(effective), np.mean(errors))
    assert abs(draws.mean() - mean) < 4 * error


def test_ranks_of_true_values_are_uniform():
    """A few simulations of `examples/benchmarks/joint_calibration.py`."""
    module = module_of("benchmarks/joint_calibration.py")
    module.PLAN["draws"] = 132
    found = [module.simulate("soft insensitive", number)["ranks"] for number in range(8)]
    for name in found[0]:
        shares = [(ranks[name] + 0.5) / (module.RANKS + 1) for ranks in found]
        assert abs(np.mean(shares) - 0.5) < 4 * np.sqrt(1 / 12 / 8), name


# ---------------------------------------------------------------------------- the density


def case(loss, approximation=None, **options):
    y = T if not loss.is_classifier else np.where(T > 0, 1.0, -1.0)
    model = jsvm.KernelMachine(kernels.RBF(jnp.array([0.9]), 1.3) + kernels.Constant(0.4), loss)
    model = jsvm.freeze(model, "kernel.right")
    method = HMC(2)
    setup, (key,) = set_up(
        model, X, y, None, approximation=approximation or jsvm.Exact(), method=method, key=KEY, keys=1
    )  # fmt: skip
    target = _target(model, setup, None)
    return model, setup, target, _start(target, method, 3, key)


@pytest.mark.parametrize(
    ("loss", "low"),
    [
        (losses.Logistic(1.2), None),
        (losses.Normalized(losses.Hinge(0.7)), jsvm.RandomFourier(9)),
        (losses.SoftInsensitive(3.0, 0.1), jsvm.Nystrom(6, 12)),
    ],
    ids=["logistic", "hinge", "soft"],
)
def test_the_density_is_that_of_hyperparameters_and_white_coordinates(loss, low):
    """The density of (g, c) is that of (h, b) times the determinant of the Jacobian."""
    model, setup, target, begun = case(loss, low)
    scaling = begun.scaling
    growth = jnp.linspace(0.2, -0.3, len(scaling.center))
    scaling = scaling._replace(measurements=scaling.measurements._replace(growth=growth))
    q = begun.state.position[0] + 0.3 * jax.random.normal(KEY, begun.state.position[0].shape)

    def both(q):
        here = place(target, scaling, q)
        return jnp.concatenate([here.h, here.b])

    volume = np.linalg.slogdet(np.asarray(jax.jacfwd(both)(q)))[1]
    here = jax.jit(place)(target, scaling, q)
    moved = jsvm.unfreeze(ravel_pytree(model)[1](here.h))
    factor = target.subspace.whiten(moved.kernel, setup.x).factor
    latent = np.asarray(factor @ here.b)
    b = np.asarray(here.b)
    expected = volume + float(jnp.sum(moved.loss.log_likelihood(setup.y, jnp.asarray(latent))))
    expected += scipy.stats.norm.logpdf(b).sum() + float(target.prior.log_density(moved))
    constant = len(b) * np.log(2 * np.pi) / 2 - np.linalg.slogdet(np.asarray(scaling.root))[1]
    np.testing.assert_allclose(here.log_density, expected + constant, rtol=1e-8)
    np.testing.assert_allclose(position_of(target, scaling, here.h, here.b), q, atol=1e-6)
    assert rounds(100, HMC()) == [10, 15, 25, 30, 20] and rounds(100, HMC(rescale=False)) == [100]


def test_the_gradient_of_the_density():
    *_, target, begun = case(losses.Logistic(1.2), jsvm.Nystrom(6, 12))
    q = begun.state.position[1]
    gradient = jax.jit(jax.grad(log_joint, argnums=2))(target, begun.scaling, q)
    value = jax.jit(log_joint)
    step = 1e-5
    differences = [
        (value(target, begun.scaling, q + step * e) - value(target, begun.scaling, q - step * e))
        / (2 * step)
        for e in jnp.eye(len(q))
    ]
    np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-6)


def test_smooth_coordinates():
    """`V b` is differentiable, even with equal examples, and `V V'` is the matrix of the landmarks."""
    x = jnp.asarray(np.concatenate([X[:12], X[:3]]))
    kernel = kernels.RBF(jnp.array([0.9]), 1.3) + kernels.White(0.2)
    gram = np.asarray(kernel.matrix(x, x, same=True))
    whole = smoothed(LandmarkSubspace(None, 15), kernel, x)
    whitening = whole.whiten(kernel, x)
    np.testing.assert_allclose(whitening.factor @ whitening.factor.T, gram, atol=1e-6)
    assert 0 < float(whitening.error) < 1e-6
    chosen = jnp.array([0, 3, 5, 7, 9, 11])
    for rank in (6, 4):
        subspace = smoothed(LandmarkSubspace(chosen, rank), kernel, x)
        found = subspace.whiten(kernel, x)
        old = LandmarkSubspace(chosen, rank).whiten(kernel, x)
        np.testing.assert_allclose(
            found.factor @ found.factor.T, old.factor @ old.factor.T, atol=1e-6
        )
        np.testing.assert_allclose(found.error, old.error, atol=1e-6)
        numbers = jnp.array([5, 14, 2])
        rows = subspace.rows(kernel, subspace.shared(kernel, x), x[numbers], numbers)
        np.testing.assert_allclose(rows, found.factor[numbers], atol=1e-9)
        new = jnp.linspace(-1, 1, 4)[:, None]
        for one, other in zip(
            found.basis.joint_features(kernel, new),
            old.basis.joint_features(kernel, new),
            strict=True,
        ):
            if one.shape == (4, 4):  # features differ by a rotation
                np.testing.assert_allclose(one, other, atol=1e-5)
    b = jnp.asarray(RNG.normal(size=15))

    def values(log_length):
        moved = jsvm.replace(kernel, {"left.lengthscale": jnp.exp(log_length)[None]})
        return whole.whiten(moved, x).factor @ b

    step, here = 1e-4, jnp.log(0.9)
    slopes = jax.jacfwd(values)(here)
    differences = (values(here + step) - values(here - step)) / (2 * step)
    np.testing.assert_allclose(slopes, differences, atol=1e-5)


# ---------------------------------------------------------------------------- what users see


def test_frozen_hyperparameters_stay(regression):
    assert list(regression.parameters) == ["kernel.lengthscale", "loss.noise_variance"]
    assert jsvm.frozen(regression.models) == ("kernel.variance",)
    assert float(jsvm.unfreeze(regression.models).kernel.variance) == pytest.approx(1.0)
    assert set(regression.diagnostics.rhat) == set(regression.parameters)
    for name, values in regression.parameters.items():
        assert values.shape == (4, 1000), name
    assert "hyperparameters: R-hat" in str(regression.diagnostics)


def test_predictions_are_averages_over_draws(regression):
    """Two draws, written out: the conditional mean and variance at new points."""
    few = type(regression)(
        **{field: getattr(regression, field) for field in regression.__dataclass_fields__}
        | {"b": regression.b[:2, 10:11], "draw_numbers": jnp.array([10])}
        | {"log_posterior": regression.log_posterior[:2]}
        | {"models": jax.tree.map(lambda leaf: leaf[:2], regression.models)}
    )
    eps = np.finfo(float).eps
    jitter = np.sqrt(eps) + 25 * eps
    new, means, variances, noises = np.array([[0.2], [3.0]]), [], [], []
    for chain in range(2):
        length = float(regression.parameters["kernel.lengthscale"][chain, 10])
        noises.append(float(regression.parameters["loss.noise_variance"][chain, 10]))
        k = np.exp(-((X - X.T) ** 2) / (2 * length**2)) + jitter * np.eye(25)
        cross = np.exp(-((new - X.T) ** 2) / (2 * length**2))
        root = np.linalg.cholesky(k)
        means.append(np.linalg.solve(root, cross.T).T @ np.asarray(regression.b[chain, 10]))
        variances.append(1 - np.sum(np.linalg.solve(root, cross.T) ** 2, axis=0))
    mean, deviation = few.latent(new)
    np.testing.assert_allclose(mean, np.mean(means, axis=0), atol=1e-4)
    total = np.mean(variances, axis=0) + np.var(means, axis=0)
    np.testing.assert_allclose(deviation**2, total, atol=1e-4)
    np.testing.assert_allclose(few.decision(new), mean, atol=1e-12)
    np.testing.assert_allclose(few.target(new)[1] ** 2, total + np.mean(noises), atol=1e-4)
    together = few.joint(new)
    np.testing.assert_allclose(together.means[:, 0], means, atol=1e-4)
    diagonals = jnp.diagonal(together.covariances, axis1=1, axis2=2)
    np.testing.assert_allclose(diagonals, variances, atol=1e-4)
    low, high = regression.interval(X, 0.9)
    assert 0.75 < np.mean((low < T) & (high > T)) <= 1.0
    assert regression.sample(new, 5, key=KEY).shape == (5, 2)
    assert np.isfinite(regression.log_density(X, T)).all()


def test_files(regression, tmp_path):
    jsvm.save(tmp_path / "joint.jsvm", regression)
    again = jsvm.load(tmp_path / "joint.jsvm")
    np.testing.assert_array_equal(again.decision(X), regression.decision(X))
    assert again.diagnostics.problems == []


def test_arviz(regression, monkeypatch):
    """What ArviZ is given, whether it is installed or not."""
    stub = types.SimpleNamespace(__version__="1.0", from_dict=lambda groups: groups)
    monkeypatch.setitem(sys.modules, "arviz", stub)
    data = regression.to_arviz()
    assert data["posterior"]["latent"].shape == (4, 1000, 25)
    found = data["posterior"]["loss.noise_variance"]
    np.testing.assert_array_equal(found, regression.parameters["loss.noise_variance"])
    mean = data["posterior"]["latent"].mean(axis=(0, 1))
    np.testing.assert_allclose(mean, regression.decision(X), atol=1e-5)
    assert {values.shape for values in data["sample_stats"].values()} == {(4, 1000)}


@pytest.mark.parametrize(
    ("low", "method"),
    [(jsvm.Nystrom(8, 12), NUTS(3)), (jsvm.RandomFourier(10), HMC(3, rescale=False))],
    ids=["Nystrom", "waves"],
)
def test_low_rank_and_other_samplers(low, method):
    model = jsvm.KernelMachine(kernels.RBF(2.0), losses.Normalized(losses.Hinge(1.0)))
    y = np.where(T > 0, 1.0, -1.0)
    options = {"key": KEY, "warmup": 40, "draws": 30, "chains": 2, "progress": False}
    with pytest.warns(SamplingWarning):  # too few draws
        found = jsvm.sample_jointly(model, X, y, approximation=low, method=method, **options)
        again = jsvm.sample_jointly(model, X, y, approximation=low, method=method, **options)
    assert found.b.shape == (2, 30, low.rank if isinstance(low, jsvm.Nystrom) else 10)
    np.testing.assert_array_equal(found.b, again.b)
    assert found.probability(X).shape == (25,)
    assert np.isfinite(np.asarray(found.log_posterior)).all()


def test_single_precision():
    with jax.enable_x64(False):
        model = jsvm.KernelMachine(kernels.RBF(1.0), losses.SoftInsensitive(5.0, 0.1))
        found = jsvm.sample_jointly(model, X, T, key=KEY, warmup=200, draws=200, progress=False)
        assert found.b.dtype == np.float32 and found.log_posterior.dtype == np.float32
        assert float(jnp.mean(found.diagnostics.function.acceptance)) > 0.6
        assert int(jnp.sum(found.diagnostics.function.divergences)) < 8
        errors = np.asarray(found.decision(X)) - T
        assert np.mean(errors**2) < 0.15


def test_what_is_refused():
    model = jsvm.KernelMachine(kernels.RBF(1.0), losses.Logistic())
    y = np.where(T > 0, 1.0, -1.0)

    def sample(model=model, x=X, y=y, **options):
        return jsvm.sample_jointly(model, x, y, **({"key": KEY, "progress": False} | options))

    with pytest.raises(ValueError, match="NaN"):
        sample(x=np.where(X[:1] == X, np.nan, X))
    with pytest.raises(ValueError, match="infinite"):
        sample(
            model=jsvm.KernelMachine(kernels.RBF(1.0), losses.Huber()), y=np.where(T > 1, np.inf, T)
        )
    with pytest.raises(ValueError, match="landmarks"):
        sample(approximation=jsvm.Nystrom(8, 5))
    with pytest.raises(TypeError, match="approximation"):
        sample(approximation=8)
    with pytest.raises(TypeError, match="`prior`"):
        sample(prior=3.0)
    with pytest.raises(ValueError, match=r"`kernel.variance`, `loss.C` have none"):
        sample(prior={"kernel.lengthscale": priors.LogNormal()})
    with pytest.raises(ValueError, match="is positive, so its prior cannot be a Normal"):
        sample(prior={"kernel": priors.Normal(), "loss": priors.LogNormal()})
    with pytest.raises(ValueError, match="all hyperparameters are frozen"):
        sample(model=jsvm.freeze(model, "kernel", "loss"))
    with pytest.raises(ValueError, match="offset"):
        sample(model=jsvm.KernelMachine(kernels.RBF(1.0), losses.Logistic(), offset=True))
    with pytest.raises(TypeError, match="`method`"):
        sample(method=SGLD())
    with pytest.raises(ValueError, match="shorten_by_penalty"):
        sample(method=HMC(shorten_by_penalty=True))
    with pytest.raises(ValueError, match="`warmup`"):
        sample(warmup=5)
    with pytest.raises(jsvm.FitError, match="no chain can start"):
        sample(prior=lambda model: jnp.where(model.kernel.variance > 0, -jnp.inf, 0.0))


def test_a_low_rank_that_loses_much_is_reported():
    model = jsvm.KernelMachine(kernels.RBF(0.05), losses.Logistic())
    y = np.where(T > 0, 1.0, -1.0)
    options = {"key": KEY, "warmup": 20, "draws": 10, "chains": 2, "progress": False}
    with pytest.warns(SamplingWarning, match="the low rank loses"):
        jsvm.sample_jointly(model, X, y, approximation=jsvm.Nystrom(2, 2), **options)
    assert issubclass(ApproximationWarning, UserWarning)
