"""Fits, criteria and searches whose kernel matrix is of low rank."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm import criteria, losses
from jaxsvm._fit import fit_gram
from jaxsvm.approximations import ApproximationWarning, Representation, represent
from jaxsvm.gram import DenseGram, LowRankGram

N = 90
RNG = np.random.default_rng(8)
X = RNG.normal(size=(N, 3))
SCORE = np.sin(2 * X[:, 0]) + X[:, 1] + 0.4 * RNG.normal(size=N)
Y = np.where(SCORE > 0, 1.0, -1.0)
KERNEL = jsvm.kernels.RBF(jnp.array([1.5, 2.0, 2.5]), 1.3)
HINGE = jsvm.KernelMachine(KERNEL, losses.SquaredHinge(2.0))
LOW = jsvm.Nystrom(rank=25, landmarks=30, choice="randomly pivoted")
quiet = pytest.mark.filterwarnings("ignore::jaxsvm.approximations.ApproximationWarning")


@pytest.fixture(scope="module")
def representation() -> Representation:
    return represent(LOW, HINGE, jnp.asarray(X))


@quiet
@pytest.mark.parametrize("corrected", [False, True])
def test_a_fit_is_that_of_the_matrix_of_low_rank(representation, corrected):
    approximation = jsvm.Corrected(LOW) if corrected else representation
    fitted = jsvm.fit(HINGE, X, Y, approximation=approximation)
    gram = fitted.gram()
    assert isinstance(gram, LowRankGram)
    dense = DenseGram(gram.dense())
    expected = fit_gram(HINGE, dense, fitted.x, fitted.y, fitted.weights)
    np.testing.assert_allclose(fitted.dual, expected.dual, atol=1e-9)
    np.testing.assert_allclose(fitted.latent, expected.latent, atol=1e-9)
    if corrected:
        np.testing.assert_allclose(gram.diagonal(), KERNEL.diagonal(X), rtol=1e-12)
        # the diagonal belongs to the examples, not to new points at the same place
        own = np.asarray(gram.extra * fitted.dual)
        np.testing.assert_allclose(fitted.decision(X), fitted.latent - own, atol=1e-9)
    else:
        np.testing.assert_allclose(fitted.decision(X), fitted.latent, atol=1e-9)


def test_a_high_rank_is_the_exact_machine():
    points = RNG.normal(size=(20, 3))
    exact = jsvm.fit(HINGE, X, Y)
    errors = []
    for rank in (60, 90):
        fitted = jsvm.fit(HINGE, X, Y, approximation=jsvm.Nystrom(rank=rank, choice="pivoted"))
        errors.append(np.max(np.abs(fitted.decision(points) - exact.decision(points))))
        assert float(fitted.stats.lost_variance) < 0.01
    assert errors[1] < 1e-6 and errors[1] < errors[0] < 0.1
    assert exact.expansion is None and float(exact.stats.lost_variance) == 0


@quiet
def test_the_lost_share_is_reported():
    with pytest.warns(ApproximationWarning, match=r"loses \d+\.\d% of the prior's variance"):
        fitted = jsvm.fit(HINGE, X, Y, approximation=jsvm.Nystrom(rank=3, landmarks=5))
    total = np.trace(np.asarray(KERNEL.gram(X)))
    lost = 1 - np.trace(np.asarray(fitted.gram().dense())) / total
    assert float(fitted.stats.lost_variance) == pytest.approx(lost, rel=1e-9)
    assert lost > 0.01


@quiet
def test_predictions_are_differentiable(representation):
    points = jnp.asarray(RNG.normal(size=(5, 3)))

    @jax.jit
    def total(log_scale, C):
        kernel = jsvm.kernels.RBF(jnp.exp(log_scale), 1.3)
        model = jsvm.KernelMachine(kernel, losses.SquaredHinge(C))
        fitted = jsvm.fit(model, X, Y, approximation=representation)
        return jnp.sum(jnp.sin(fitted.decision(points)))

    at, step = (jnp.log(jnp.array([1.5, 2.0, 2.5])), jnp.array(2.0)), 1e-5
    slopes = jax.jit(jax.grad(total, argnums=(0, 1)))(*at)
    for a in range(3):
        move = step * jnp.eye(3)[a]
        slope = (total(at[0] + move, at[1]) - total(at[0] - move, at[1])) / (2 * step)
        assert float(slopes[0][a]) == pytest.approx(float(slope), rel=1e-5, abs=1e-8)
    slope = (total(at[0], at[1] + step) - total(at[0], at[1] - step)) / (2 * step)
    assert float(slopes[1]) == pytest.approx(float(slope), rel=1e-5)


CRITERIA = {
    "PRESS": (losses.LeastSquares(1.0), criteria.PRESS()),
    "span": (losses.SquaredHinge(2.0), criteria.Span()),
    "laplace": (losses.Hinge(2.0), criteria.LaplaceEvidence()),
    "linear response": (losses.Hinge(2.0), criteria.LinearResponse("smooth")),
    "radius-margin": (losses.SquaredHinge(2.0), criteria.RadiusMargin()),
    "cross-validation": (losses.SquaredHinge(2.0), criteria.CrossValidation(3, "smooth")),
}


@quiet
@pytest.mark.parametrize("name", CRITERIA)
def test_criteria_have_values_and_gradients(name, representation):
    """The value of the dense criterion on the same matrix, and a gradient that agrees with differences."""
    loss, criterion = CRITERIA[name]
    model = jsvm.KernelMachine(KERNEL, loss)

    @jax.jit
    def value_at(log_variance):
        kernel = eqx.tree_at(lambda kernel: kernel.log_variance, KERNEL, log_variance)
        moved = jsvm.KernelMachine(kernel, loss)
        return criterion(moved, X, Y, approximation=representation)

    at, step = KERNEL.log_variance, 1e-5
    value, slope = jax.value_and_grad(value_at)(at)
    difference = (value_at(at + step) - value_at(at - step)) / (2 * step)
    assert float(slope) == pytest.approx(float(difference), rel=1e-4, abs=1e-8)

    factor = representation.matrix(KERNEL, jnp.asarray(X)).gram.factor
    linear = jsvm.KernelMachine(jsvm.kernels.Linear(1.0), loss)
    assert float(value) == pytest.approx(float(criterion(linear, factor, Y)), rel=1e-7)
    assert float(value) != pytest.approx(float(criterion(model, X, Y)), rel=1e-7)


@quiet
def test_a_search_keeps_its_landmarks():
    machine = jsvm.KernelMachine(KERNEL, losses.LeastSquares(1.0))
    options = {"max_steps": 6, "progress": False, "test": (X[:30], Y[:30])}
    with pytest.warns(UserWarning, match=r"end of the search .* the low rank loses"):
        best = jsvm.select(machine, X, Y, criteria.PRESS(), approximation=LOW, **options)
    assert len(best.problems) == 1
    assert best.value < best.history.value[0, 0]
    chosen = represent(LOW, machine, jnp.asarray(X)).kept
    np.testing.assert_array_equal(best.representation.kept.landmarks, chosen.landmarks)
    fitted = best.fit()
    np.testing.assert_array_equal(fitted.representation.kept.landmarks, chosen.landmarks)
    error = np.mean(np.asarray(fitted.predict(X[:30])) != Y[:30])
    assert float(best.history.test_error[0, int(best.history.end[0])]) == pytest.approx(error)
    again = best.along(criteria.PRESS())
    np.testing.assert_allclose(again, best.history.value[0, : len(again)], rtol=1e-9)


@quiet
def test_a_fit_of_low_rank_can_be_saved(tmp_path, representation):
    fitted = jsvm.fit(HINGE, X, Y, approximation=representation)
    jsvm.save(tmp_path / "fit.jaxsvm", fitted)
    loaded = jsvm.load(tmp_path / "fit.jaxsvm")
    np.testing.assert_array_equal(loaded.decision(X), fitted.decision(X))
    np.testing.assert_array_equal(loaded.gram().dense(), fitted.gram().dense())
    posterior = jsvm.laplace(fitted)
    jsvm.save(tmp_path / "posterior.jaxsvm", posterior)
    loaded = jsvm.load(tmp_path / "posterior.jaxsvm")
    np.testing.assert_array_equal(loaded.deviation(X), posterior.deviation(X))


def test_wrong_approximations_are_refused():
    with pytest.raises(TypeError, match=r"`approximation` must be `jaxsvm.Exact\(\)`"):
        jsvm.fit(HINGE, X, Y, approximation=100)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="only a low rank can be corrected"):
        jsvm.Corrected(jsvm.Exact())
    with pytest.raises(ValueError, match="pass the low rank itself"):
        jsvm.sample(HINGE, X, Y, key=jax.random.key(0), approximation=jsvm.Corrected(LOW))


@quiet
@pytest.mark.parametrize("loss", [losses.SquaredHinge(2.0), losses.Logistic(1.0)])
def test_error_bars_are_those_of_the_matrix_of_low_rank(representation, loss):
    """By plain inverses: prior covariance minus what the curvatures take away, in the span of V."""
    points = jnp.asarray(RNG.normal(size=(7, 3)))
    fitted = jsvm.fit(jsvm.KernelMachine(KERNEL, loss), X, Y, approximation=representation)
    posterior = jsvm.laplace(fitted)
    factor = np.asarray(fitted.gram().factor)
    features = np.asarray(fitted.expansion.basis.features(KERNEL, points)[0])
    curvature = np.asarray(posterior.curvature)
    inner = np.linalg.inv(np.eye(factor.shape[1]) + factor.T @ (curvature[:, None] * factor))
    prior = np.asarray(KERNEL.gram(points))
    expected = prior - features @ features.T + features @ inner @ features.T
    np.testing.assert_allclose(posterior.covariance(points), expected, atol=1e-9)
    np.testing.assert_allclose(posterior.deviation(points), np.sqrt(np.diag(expected)), rtol=1e-8)


def test_an_automatic_rank_may_lose_its_tolerance_without_a_warning():
    low = jsvm.Nystrom("auto", tolerance=0.2)
    model = jsvm.KernelMachine(jsvm.kernels.RBF(0.8), losses.SquaredHinge(2.0))
    fitted = jsvm.fit(model, X, Y, approximation=low)
    assert 0.01 < fitted.stats.lost_variance < 0.2
    for approximation in (low, jsvm.Corrected(low)):
        assert represent(approximation, model, jnp.asarray(X)).tolerance == 0.2
    assert represent(jsvm.Nystrom(3), model, jnp.asarray(X)).tolerance == 0.01
