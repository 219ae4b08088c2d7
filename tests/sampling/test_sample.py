"""Draws from the posterior: moments, calibration, diagnostics, and what can go wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxsvm as jsvm
from jaxsvm.approximations import LandmarkSubspace
from jaxsvm.runtime import filter_jit
from jaxsvm.sampling import HMC, MCLMC, NUTS, SamplingWarning, paper_setting, sample
from jaxsvm.sampling._chains import Traces, draw, start_chains, warm_up
from jaxsvm.sampling._diagnostics import diagnose, ess_bulk, ess_tail, rhat, split_rhat
from jaxsvm.sampling._target import Target

X = jnp.array([[0.0], [0.7], [1.1]])
Y = jnp.array([1.0, -1.0, 1.0])
KERNEL = jsvm.kernels.RBF(0.8, 2.0) + jsvm.kernels.Constant(0.3)
HINGE = jsvm.KernelMachine(KERNEL, jsvm.losses.Hinge(1.5))
NEW = jnp.array([[0.4], [-1.0]])


def quadrature(model):
    """Mean, standard deviation and probabilities of the latent function at `NEW`, on a grid."""
    gram = np.asarray(model.kernel.gram(X))
    root = np.linalg.cholesky(gram)
    line = np.linspace(-7, 7, 111)
    b = np.stack(np.meshgrid(line, line, line, indexing="ij")).reshape(3, -1)
    latent = root @ b
    losses = 1.5 * np.maximum(1 - np.asarray(Y)[:, None] * latent, 0).sum(axis=0)
    mass = np.exp(-losses - (b**2).sum(axis=0) / 2)
    mass /= mass.sum()
    weights = np.linalg.solve(gram, np.asarray(model.kernel.cross(X, NEW)))
    means = weights.T @ latent
    variance = 2.3 - np.sum(np.asarray(model.kernel.cross(X, NEW)) * weights, axis=0)
    mean = means @ mass
    total = (means**2) @ mass - mean**2 + variance
    nodes, shares = np.polynomial.hermite_e.hermegauss(60)
    shares = shares / shares.sum()
    plus, minus, average = (np.zeros(2) for _ in range(3))
    for node, share in zip(nodes, shares, strict=True):
        f = means + np.sqrt(variance)[:, None] * node
        up, down = (np.exp(-1.5 * np.maximum(1 - s * f, 0)) for s in (1, -1))
        plus += share * (up @ mass)
        minus += share * (down @ mass)
        average += share * ((up / (up + down)) @ mass)
    return mean, np.sqrt(total), plus / (plus + minus), average


def name_of(method):
    return type(method).__name__


@pytest.mark.parametrize("method", [HMC(), NUTS(max_doublings=4), MCLMC()], ids=name_of)
def test_moments_and_probabilities_against_quadrature(method):
    posterior = sample(HINGE, X, Y, key=jax.random.key(0), method=method, draws=1000)
    assert not posterior.diagnostics.problems
    mean, deviation, normalized, average = quadrature(HINGE)
    found, spread = posterior.latent(NEW)
    features, _ = posterior.whitening.basis.features(KERNEL, NEW)
    of_chains = np.asarray(posterior.means @ features.T)  # (chains, points)
    error = of_chains.std(axis=0, ddof=1) / np.sqrt(len(of_chains))
    assert np.all(np.abs(found - mean) < 4 * error)
    assert np.all(error < 0.03 * deviation)
    # 800 kept draws of which most are independent: a standard deviation to some per cent
    np.testing.assert_allclose(spread, deviation, rtol=0.1)
    np.testing.assert_allclose(posterior.probability(NEW), normalized, atol=0.03)
    np.testing.assert_allclose(posterior.probability(NEW, "average"), average, atol=0.03)
    signs = np.where(np.asarray(posterior.probability(NEW)) > 0.5, 1, -1)
    np.testing.assert_array_equal(posterior.predict(NEW), signs)


@pytest.mark.parametrize("method", [HMC(), MCLMC()], ids=name_of)
def test_simulation_based_calibration(method):
    """Data drawn from the model itself: the truth has any rank among draws with the same probability."""
    x = jnp.linspace(-2, 2, 6)[:, None]
    loss = jsvm.losses.Probit(0.5)
    factor = LandmarkSubspace(None, 6).whiten(KERNEL, x).factor
    kept, simulations = 15, 400

    def simulate(key):
        truth_key, label_key, warm_key, draw_key = jax.random.split(key, 4)
        truth = jax.random.normal(truth_key, (6,))
        y = loss.sample_labels(factor @ truth, key=label_key)
        target = Target(loss, factor, y, jnp.ones(6))
        chains = warm_up(target, method, start_chains(target, method, 1), warm_key, 90)
        # far enough from each other to be as good as independent
        b = draw(target, method, chains, draw_key, kept * 10, kept)[3][:, 0]
        quantities = jnp.concatenate([b @ factor.T, jnp.sum(b**2, axis=1)[:, None]], axis=1)
        true = jnp.concatenate([factor @ truth, jnp.sum(truth**2)[None]])
        return jnp.sum(quantities < true[None, :], axis=0)

    ranks = jax.jit(jax.vmap(simulate))(jax.random.split(jax.random.key(7), simulations))
    for quantity in np.asarray(ranks).T:
        counts = np.bincount(quantity, minlength=kept + 1)
        assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.filterwarnings("ignore::jaxsvm.sampling.SamplingWarning")  # too few draws to judge
def test_the_length_of_a_trajectory_follows_the_step_size():
    """A quarter of a period, 1.57, of `MCLMC`; 2 steps at least, and as many as asked for otherwise."""
    options = {"key": jax.random.key(0), "warmup": 0, "draws": 20}
    for size, steps in ((0.4, 4), (0.1, 16), (1e-4, 64)):
        drawn = sample(HINGE, X, Y, **options, method=MCLMC(step_size=size))
        np.testing.assert_array_equal(drawn.traces.steps, steps)
    drawn = sample(HINGE, X, Y, **options, method=MCLMC(5, step_size=0.1))
    np.testing.assert_array_equal(drawn.traces.steps, 5)
    adapted = sample(HINGE, X, Y, **{**options, "warmup": 100}, method=MCLMC())
    assert np.all(np.asarray(adapted.traces.steps) >= 2)


def test_runs_are_repeatable_and_keep_what_is_asked_for():
    options = {"key": jax.random.key(2), "chains": 4, "warmup": 60, "draws": 200}
    first = sample(HINGE, X, Y, **options, keep_draws=True)
    again = sample(HINGE, X, Y, **options, progress=True, keep_draws=True)
    np.testing.assert_array_equal(first.b, again.b)
    assert first.b.shape == (4, 200, 3)
    np.testing.assert_allclose(jnp.mean(first.b, axis=1), first.means, atol=1e-12)
    fewer = sample(HINGE, X, Y, **options)
    assert fewer.b.shape == (4, 100, 3)
    np.testing.assert_array_equal(fewer.b, first.b[:, 1::2])
    pytest.importorskip("arviz")
    data = first.to_arviz()
    latent = np.asarray(first.b @ first.whitening.factor.T)
    np.testing.assert_allclose(np.asarray(data.posterior["latent"]), latent)
    assert data.sample_stats["energy"].shape == (4, 200)


@pytest.mark.parametrize("draws", [200, 1040])
def test_kept_draws_stand_beside_their_own_statistics(draws):
    """Also if the interval does not divide the length of the pieces: five of 52 draws."""
    pytest.importorskip("arviz")
    posterior = sample(HINGE, X, Y, key=jax.random.key(2), chains=4, warmup=60, draws=draws)
    data = posterior.to_arviz()
    latent = np.asarray(data.posterior["latent"])
    losses = 1.5 * np.maximum(1 - np.asarray(Y) * latent, 0).sum(axis=2)
    penalty = (np.asarray(data.posterior["b"]) ** 2).sum(axis=2) / 2
    np.testing.assert_allclose(data.sample_stats["lp"], -losses - penalty, rtol=1e-10)


def test_the_papers_setting():
    assert {k: paper_setting()[k] for k in ("chains", "warmup", "draws")} == {
        "chains": 1, "warmup": 20_000, "draws": 20_000
    }  # fmt: skip
    setting = {**paper_setting(), "warmup": 200, "draws": 4000}
    posterior = sample(HINGE, X, Y, key=jax.random.key(0), **setting)
    assert float(posterior.diagnostics.step_size) == pytest.approx(0.05)
    mean, deviation, _, _ = quadrature(HINGE)
    error = deviation / np.sqrt(float(posterior.diagnostics.ess_bulk))
    assert np.all(np.abs(posterior.latent(NEW)[0] - mean) < 4 * error)


def test_single_precision(dtype):
    if dtype == "float64":
        pytest.skip("all others are")
    x, y = np.asarray(X, np.float32), np.asarray(Y, np.float32)
    kernel = jsvm.kernels.RBF(0.8, 2.0) + jsvm.kernels.Constant(0.3)
    model = jsvm.KernelMachine(kernel, jsvm.losses.Hinge(1.5))
    posterior = sample(model, x, y, key=jax.random.key(0), draws=1000)
    assert posterior.b.dtype == jnp.float32 and not posterior.diagnostics.problems
    found = np.asarray(posterior.latent(np.asarray(NEW, np.float32))[0])
    with jax.enable_x64(True):
        mean, deviation, _, _ = quadrature(HINGE)
    error = deviation / np.sqrt(float(posterior.diagnostics.ess_bulk))
    assert np.all(np.abs(found - mean) < 4 * error)


@pytest.fixture(scope="module")
def walled():
    """An example of weight zero is absent, and may even lie behind the wall."""
    model = jsvm.KernelMachine(KERNEL, jsvm.losses.Trigonometric())
    return sample(model, X, Y, key=jax.random.key(0), draws=1000, weights=[1.0, 1.0, 0.0])


def test_no_draw_crosses_an_infinite_wall(walled):
    posterior = walled
    margins = Y[None, None, :] * (posterior.b @ posterior.whitening.factor.T)
    assert float(jnp.min(margins[..., :2])) > -1
    assert float(jnp.min(margins[..., 2])) < -1
    assert float(jnp.mean(posterior.diagnostics.acceptance)) > 0.6


def test_a_chain_that_stands_still_is_named(walled):
    """It starts so far out that its energy overflows; the others continue. Only the diagnostics show it."""
    target = Target(walled.model.loss, walled.whitening.factor, Y, walled.weights)
    chains = walled.chains._replace(b=walled.chains.b.at[3].set(1e200))
    after, _, traces, _ = filter_jit(draw)(target, HMC(), chains, jax.random.key(1), 50, 5)
    np.testing.assert_allclose(after.b[3], 1e200, rtol=1e-10)
    problems = diagnose(traces, jnp.exp(after.log_step), 0.0).problems
    assert "chains [3] do not move, 7 do" in problems[0]
    assert any("do not agree" in problem for problem in problems)


def test_problems_are_reported():
    with pytest.warns(SamplingWarning, match="no chain moves") as caught:
        sample(HINGE, X, Y, key=jax.random.key(0), method=HMC(step_size=300.0), draws=50)
    assert "400 of 400 trajectories diverged" in str(caught[0].message)
    rng = np.random.default_rng(0)
    good = rng.normal(size=(200, 8))
    fine = Traces(
        good, rng.normal(size=(200, 8)), rng.normal(size=(200, 8, 2)), rng.normal(size=(200, 8)),
        np.full((200, 8), 0.8), np.zeros((200, 8), bool), np.full((200, 8), 5),
    )  # fmt: skip
    assert diagnose(fine, 0.1, 0.0).problems == []
    loss, acceptance = good.copy(), np.full((200, 8), 0.8)
    loss[:, 3], acceptance[:, 3] = 5.0, 0.0
    stuck = diagnose(fine._replace(loss=loss, acceptance=acceptance), 0.1, 0.0)
    assert "chains [3] do not move, 7 do" in stuck.problems[0]
    wild = diagnose(fine._replace(divergent=np.ones((200, 8), bool)), 0.1, 0.0)
    assert "1600 of 1600 trajectories diverged" in wild.problems[0]
    assert "PROBLEM" in str(wild) and "R-hat" in str(wild)


@pytest.mark.parametrize("method", [HMC(), NUTS(max_doublings=3), MCLMC()], ids=name_of)
def test_a_low_rank_is_reported(method):
    x = jnp.linspace(-3, 3, 12)[:, None]
    y = jnp.where(jnp.sin(3 * x[:, 0]) > 0, 1.0, -1.0)
    options = {"key": jax.random.key(0), "method": method, "draws": 200}
    with pytest.warns(SamplingWarning, match="the low rank loses") as caught:
        low = sample(HINGE, x, y, **options, approximation=jsvm.Nystrom(1))
    lost = float(low.diagnostics.whitening_error)
    assert lost > 0.5 and f"loses {lost:.1%} of the prior's variance" in str(caught[0].message)
    assert any("low rank" in problem for problem in low.diagnostics.problems)
    coarse = sample(HINGE, x, y, **options, approximation=jsvm.Nystrom(1, tolerance=0.99))
    np.testing.assert_array_equal(coarse.b, low.b)
    assert not any("low rank" in problem for problem in coarse.diagnostics.problems)
    enough = sample(HINGE, x, y, **options, approximation=jsvm.Nystrom(11))
    assert 0 < float(enough.diagnostics.whitening_error) < 0.01
    assert not enough.diagnostics.problems


def test_few_draws_cannot_be_judged():
    for draws in (1, 7):
        with pytest.warns(SamplingWarning, match=f"{draws} draws of each chain are too few"):
            posterior = sample(HINGE, X, Y, key=jax.random.key(0), draws=draws)
        assert len(posterior.diagnostics.problems) == 1


@pytest.mark.parametrize("size", [1e-8, 1e-300], ids=["tiny", "none at all"])
@pytest.mark.parametrize("chains", [1, 4])
def test_steps_that_lead_nowhere_are_reported_without_a_warm_up(size, chains):
    with pytest.warns(SamplingWarning, match="hardly move .*raise the step size"):
        sample(
            HINGE, X, Y, key=jax.random.key(0), method=HMC(step_size=size), warmup=0, draws=50,
            chains=chains,
        )  # fmt: skip


def test_diagnostics_against_arviz():
    arviz = pytest.importorskip("arviz")
    rng = np.random.default_rng(1)
    for memory in (0.9, -0.5):
        draws = rng.normal(size=(4, 300))
        for place in range(1, 300):
            draws[:, place] += memory * draws[:, place - 1]
        assert rhat(draws) == pytest.approx(float(arviz.rhat(draws)), rel=1e-10)
        assert ess_bulk(draws) == pytest.approx(float(arviz.ess(draws)), rel=1e-8)
        tail = float(arviz.ess(draws, method="tail", prob=(0.05, 0.95)))
        assert ess_tail(draws) == pytest.approx(tail, rel=1e-8)
        plain = float(arviz.rhat(draws, method="split"))
        assert float(split_rhat(draws)) == pytest.approx(plain, rel=1e-10)
        assert float(split_rhat(jnp.asarray(draws))) == pytest.approx(plain, rel=1e-10)


def test_bad_input_is_refused():
    key = jax.random.key(0)
    offset = jsvm.KernelMachine(KERNEL, jsvm.losses.Hinge(), offset=True)
    with pytest.raises(ValueError, match="free, unpenalized offset"):
        sample(offset, X, Y, key=key)
    with pytest.raises(ValueError, match="`draws` must be a positive integer"):
        sample(HINGE, X, Y, key=key, draws=0)
    with pytest.raises(TypeError, match="`method` must be"):
        sample(HINGE, X, Y, key=key, method="hmc")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="`step_size` must be positive"):
        HMC(step_size=0.0)
    for kind in (HMC, MCLMC):
        with pytest.raises(ValueError, match="`integration_steps` must be a positive integer"):
            kind(integration_steps=0)
    with pytest.raises(ValueError, match="landmarks are more than"):
        sample(HINGE, X, Y, key=key, approximation=jsvm.Nystrom(landmarks=4))
    with pytest.raises(
        TypeError,
        match=r"`jaxsvm.Exact\(\)`, `jaxsvm.Nystrom\(.*` or `jaxsvm.RandomFourier\(.*, not 20",
    ):
        sample(HINGE, X, Y, key=key, approximation=20)  # pyright: ignore[reportArgumentType]
