"""Losses against the papers' formulas; normalizers by search and quadrature; duality; sampling."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_losses as reference
from jax.flatten_util import ravel_pytree
from reference_losses import CASES, CLASSES, CS, LABELS, NOISES, compiled, grid, loop, slopes
from scipy import special, stats

from jaxsvm import losses
from jaxsvm.losses import weighted_bound, weighted_compliance

EPS = np.finfo(float).eps
# the last one has kinks, but no form as a quadratic program
SMOOTH = ["logistic", "probit", "flip-noise", "trigonometric", "normalized"]
PIECEWISE = [name for name in CASES if name not in SMOOTH]
every_loss = pytest.mark.parametrize("name", CASES)
every_noise = pytest.mark.parametrize("name", NOISES)
every_piecewise = pytest.mark.parametrize("name", PIECEWISE)


# ---------------------------------------------------------------------------- values and derivatives


@every_loss
def test_value_matches_the_formula_and_compiles_once(name, dtype):
    y, f = (v.astype(dtype) for v in grid(name))
    eps = np.finfo(dtype).eps
    evaluate, _, traces = compiled(name, dtype)
    for scale in (1.0, 2):
        loss, formula, *_ = CASES[name](scale)
        found = evaluate(loss, y, f)
        wanted = loop(formula, y.astype(float), f.astype(float))
        finite = np.isfinite(wanted)
        np.testing.assert_array_equal(np.isfinite(found["value"]), finite)
        size = np.max(wanted[finite])
        value = np.asarray(found["value"])
        np.testing.assert_allclose(value[finite], wanted[finite], 16 * eps, 8 * eps * size)
        normalizer = (value + found["log_likelihood"])[finite]
        np.testing.assert_allclose(normalizer, found["log_normalizer"], 0, 4 * eps * size)
    assert len(traces) == 1


@every_loss
def test_derivatives_match_differences(name):
    y, f = grid(name)
    loss, formula, *_ = CASES[name](1.0)
    evaluate, usable, _ = compiled(name, "float64")
    found = evaluate(loss, y, f)
    near = {"rtol": 1e-9, "atol": 1e-10}
    derivative = np.asarray(found["derivative"])[usable]
    wanted = slopes(lambda f: loop(formula, y[usable], f), f[usable])
    np.testing.assert_allclose(derivative, wanted, **near)
    curvature = np.asarray(found["curvature"])[usable]
    wanted = slopes(lambda f: np.asarray(evaluate(loss, y, f)["derivative"])[usable], f)
    np.testing.assert_allclose(curvature, wanted, **near)
    assert not loss.is_convex or np.all(curvature >= 0)
    # automatic ones: in the latent value and in the parameters
    np.testing.assert_allclose(np.asarray(found["slope"])[usable], derivative, rtol=1e-12)
    leaves, structure = jax.tree.flatten(loss)
    assert jax.tree.structure(found["gradient"]) == structure
    for i, gradient in enumerate(jax.tree.leaves(found["gradient"])):

        def objective(leaf, i=i):
            moved = [*leaves[:i], jnp.asarray(leaf), *leaves[i + 1 :]]
            return np.asarray(evaluate(jax.tree.unflatten(structure, moved), y, f)["objective"])

        np.testing.assert_allclose(gradient, slopes(objective, np.asarray(leaves[i])), rtol=1e-8)


@pytest.mark.parametrize("name", CASES)
def test_automatic_second_derivatives(name):
    y, f = grid(name)
    evaluate, usable, _ = compiled(name, "float64")
    found = evaluate(CASES[name](1.0).loss, y, f)
    bend, curvature = (np.asarray(found[key])[usable] for key in ("bend", "curvature"))
    np.testing.assert_allclose(bend, curvature, rtol=1e-10, atol=1e-13)


@every_loss
def test_derivative_at_kinks_is_a_subgradient(name):
    y, f = grid(name)
    at = (reference.distance_to_kinks(name, y, f) < 1e-15) & (y * f != -1)
    loss = CASES[name](1.0).loss
    evaluate, *_ = compiled(name, "float64")
    below, derivative, above = (
        np.asarray(evaluate(loss, y, f + move)["derivative"])[at] for move in (-1e-9, 0, 1e-9)
    )
    assert len(derivative) >= 2 * len(CASES[name](1.0).kinks) - 2 * (name == "trigonometric")
    assert np.all(below <= derivative + 1e-15)
    assert np.all(derivative <= above + 1e-15)


@every_loss
def test_float32_agrees_with_float64(name):
    y, f = (v.astype(np.float32) for v in grid(name))
    double, usable, _ = compiled(name, "float64")
    wanted = double(CASES[name](1.0).loss, y.astype(float), f.astype(float))
    with jax.enable_x64(False):
        found = compiled(name, "float32")[0](CASES[name](1.0).loss, y, f)
    for key, value in found.items():
        assert value.dtype == np.float32
        a, b = (np.asarray(v)[usable] if v.ndim else v for v in (value, wanted[key]))
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=key)


# ---------------------------------------------------------------------------- far margins

Z = np.concatenate([np.linspace(-30, 30, 241), [-19.99, -20.01]])


def _hazard(z):
    return np.sqrt(2 / np.pi) / special.erfcx(-z / np.sqrt(2))


# JAX's log_ndtr ends its asymptotic series before 105 / z^8, which is 4e-9 where it begins, z = -20 (of
# a value of 200); an error of the logarithm is a relative one of the hazard h, which h + z magnifies
SERIES = 105 / 20**8
FLIP = 0.07 + 0.86 * special.ndtr(Z)
FLIP_SLOPE = 0.86 * stats.norm.pdf(Z) / FLIP
HAZARD = _hazard(Z)
S = 1.3  # the noise's standard deviation
# the loss with unit of f, value, slope and curvature in z, and their relative errors
FAR = {
    "logistic": (
        losses.Logistic(1.5),
        1.0,
        (
            -1.5 * special.log_expit(Z),
            1.5 * special.expit(-Z),
            1.5 * special.expit(Z) * special.expit(-Z),
        ),
        (64 * EPS, 64 * EPS, 64 * EPS),
    ),
    "probit": (
        losses.Probit(S**2),
        S,
        (-special.log_ndtr(Z), HAZARD, HAZARD * (HAZARD + Z)),
        (SERIES / 200, SERIES + 1e-12, (SERIES + 1e-12) * (1 + HAZARD**2)),
    ),
    "flip-noise": (
        losses.FlipNoise(0.07, S**2),
        S,
        (-np.log(FLIP), FLIP_SLOPE, FLIP_SLOPE * (FLIP_SLOPE + Z)),
        (64 * EPS, 1e-12, 1e-10),
    ),
}


@pytest.mark.parametrize("name", FAR)
def test_smooth_losses_far_from_the_margin(name):
    loss, unit, wanted, tolerances = FAR[name]
    for y in (1.0, -1.0):
        f, ones = y * unit * Z, np.full_like(Z, y)
        found = (
            loss.value(ones, f),
            -y * unit * loss.derivative(ones, f),
            unit**2 * loss.curvature(ones, f),
        )
        for value, exact, rtol in zip(found, wanted, tolerances, strict=True):
            assert np.all(np.abs(value - exact) <= rtol * np.abs(exact) + EPS)
    assert not loss.is_convex or np.all(found[2] > 0)


def test_probit_curvature_of_an_outlier(dtype):
    f = jnp.asarray([-30.0, -100.0, -1e3, -1e4, -1e5], dtype)
    curvature = losses.Probit(1.0).curvature(jnp.ones_like(f), f)
    z = np.asarray(f, float)
    # h (h + z) = 1 - 1/z^2 + 6/z^4 - 50/z^6 + ...
    np.testing.assert_allclose(curvature, 1 - z**-2 + 6 * z**-4 - 50 * z**-6, rtol=1e-5)


def test_trigonometric_wall():
    loss = losses.Trigonometric()
    z = np.array([-1.0, -1.001, -5.0, 1.0, 5.0])
    behind = z <= -1
    for y in (1.0, -1.0):
        f, ones = y * z, np.full_like(z, y)
        np.testing.assert_array_equal(loss.value(ones, f), np.where(behind, np.inf, 0))
        np.testing.assert_array_equal(loss.derivative(ones, f), np.where(behind, -y * np.inf, 0))
        for method in (loss.derivative, loss.curvature):
            assert np.all(np.isfinite(jax.vmap(jax.grad(method, 1))(ones, f)))
        np.testing.assert_array_equal(jax.vmap(jax.grad(loss.value, 1))(ones, f), 0 * z)
        np.testing.assert_array_equal(jax.vmap(jax.grad(loss.probability))(f), 0 * z)
    near = loss.derivative(np.ones(1), np.array([-1 + 1e-6]))
    np.testing.assert_allclose(near, -2e6, rtol=1e-6)


# ---------------------------------------------------------------------------- normalizers of labels


@pytest.mark.parametrize("name", CLASSES)
def test_kappa_bounds_the_sum_of_the_likelihoods(name):
    formula = getattr(reference, name.replace("-", "_"))
    for C, log_kappa in zip(CS, reference.log_kappa_of(name)(CS)[0], strict=True):
        inverse = reference.inverse_kappa(lambda y, f, C=C: formula(y, f, C))
        np.testing.assert_allclose(math.exp(-log_kappa), inverse, rtol=1e-10)
        if name == "hinge":
            np.testing.assert_allclose(math.exp(log_kappa), 1 / (1 + math.exp(-2 * C)), 8 * EPS)


@pytest.mark.parametrize("name", CLASSES)
def test_derivatives_of_kappa(name):
    off = CS != 1
    step = np.minimum(1e-3, np.abs(CS - 1) / 3)  # never over C = 1, where the second one jumps
    step[~off] = 1e-3
    values = reference.log_kappa_of(name)
    _, first, second = (np.asarray(v) for v in values(CS))
    wanted = slopes(lambda C: np.asarray(values(C)[0]), CS, step)
    np.testing.assert_allclose(first[off], wanted[off], rtol=1e-9, atol=1e-10)
    wanted = slopes(lambda C: np.asarray(values(C)[1]), CS, step)
    np.testing.assert_allclose(second[off], wanted[off], rtol=1e-8, atol=1e-9)
    assert np.all(np.isfinite(first)) and np.all(np.isfinite(second))
    sides = np.asarray(values(1 + np.linspace(-1e-9, 1e-9, len(CS)))[1])[[0, -1]]
    assert sides.min() - 1e-8 <= first[~off][0] <= sides.max() + 1e-8


@pytest.mark.parametrize("name", LABELS)
def test_probability_is_that_of_the_two_likelihoods(name):
    loss, formula, *_ = reference.logistic_case(1.0) if name == "logistic" else CASES[name](1.0)
    f = np.linspace(-6, 6, 49)
    plus, minus = (np.exp([-formula(y, b) for b in f]) for y in (1.0, -1.0))
    np.testing.assert_allclose(loss.probability(f), plus / (plus + minus), rtol=1e-13, atol=1e-15)
    total = sum(np.exp(loss.log_likelihood(np.full_like(f, y), f)) for y in (1.0, -1.0))
    if name in SMOOTH:
        np.testing.assert_allclose(total, 1.0, rtol=8 * EPS)
    else:
        assert np.all(total <= 1 + 8 * EPS) and np.any(total < 0.9)


# ---------------------------------------------------------------------------- noise models


@every_noise
def test_noise_is_normalized_and_has_its_variance(name):
    loss, formula, kinks, _ = CASES[name](1.0)
    mass = reference.moment(formula, kinks, 0)
    np.testing.assert_allclose(np.exp(-loss.log_normalizer()), mass, rtol=1e-11)
    variance = reference.moment(formula, kinks, 2) / mass
    np.testing.assert_allclose(loss.noise_variance, variance, rtol=1e-11)


@pytest.mark.parametrize("C", [0.3, 5.0, 200.0])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0])
def test_soft_insensitive_noise_is_that_of_the_paper(C, epsilon):
    for beta in (0.05, 0.3, 0.9):
        loss = losses.SoftInsensitive(C, epsilon, beta)
        mass = reference.soft_insensitive_normalizer(C, epsilon, beta)
        np.testing.assert_allclose(np.exp(-loss.log_normalizer()), mass, rtol=32 * EPS)
        variance = reference.soft_insensitive_variance(C, epsilon, beta)
        np.testing.assert_allclose(loss.noise_variance, variance, rtol=1e-12)


@every_noise
def test_noise_is_differentiable_in_its_parameters(name):
    flat, unravel = ravel_pytree(CASES[name](1.0).loss)
    for function in (lambda v: unravel(v).log_normalizer(), lambda v: unravel(v).noise_variance):
        gradient = np.asarray(jax.grad(function)(flat))
        for i, unit in enumerate(np.eye(flat.size)):
            wanted = slopes(lambda t, f=function, u=unit: float(f(flat + t * u)), 0.0)
            np.testing.assert_allclose(gradient[i], wanted, rtol=1e-9, atol=1e-11)


SILF = losses.SoftInsensitive
# the limit, SILF at distance t from it, and the order in t of value, slope, normalizer and variance
LIMITS = {
    "beta -> 0": (losses.EpsilonInsensitive(2.0, 0.7), lambda t: SILF(2.0, 0.7, t), (1, 1, 2, 2)),
    "beta -> 1": (losses.Huber(2.0, 0.7), lambda t: SILF(2.0, 0.7, 1 - t), (1, 1, 1, 1)),
    "epsilon -> 0": (losses.Laplacian(2.0), lambda t: SILF(2.0, t, 0.4), (1, 1, 1, 2)),
    "large epsilon": (
        losses.Quadratic(0.5),
        lambda t: SILF(2 * 50 / 0.5, 50.0, 1 - t / 50),
        (1, 1, 1, 1),
    ),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_limits_of_the_soft_insensitive_loss(limit):
    simple, near, orders = LIMITS[limit]
    f = np.concatenate([np.linspace(-4, 4, 41), [0.7, -0.7]])
    y = np.zeros_like(f)
    away = (np.abs(np.abs(f) - 0.7) > 0.01) & (np.abs(f) > 0.01)  # of the limits' own corners

    def errors(t):
        loss = near(t)
        value = np.max(np.abs(loss.value(y, f) - simple.value(y, f)))
        slope = np.max(np.abs(loss.derivative(y, f) - simple.derivative(y, f))[away])
        normalizer = abs(loss.log_normalizer() - simple.log_normalizer())
        variance = abs(loss.noise_variance - simple.noise_variance)
        return np.array([value, slope, normalizer, variance])

    coarse, fine = errors(1e-3), errors(1e-4)
    assert coarse[0] > 0 and np.all(coarse[2:] > 0)
    apart = coarse > 1e-13  # a slope may be that of the limit already
    observed = np.log10(coarse[apart] / fine[apart])
    np.testing.assert_allclose(observed, np.array(orders)[apart], atol=0.02)


# ---------------------------------------------------------------------------- sampling

DRAWS = 20_000


@every_noise
def test_sampled_noise(name):
    loss, formula, *_ = CASES[name](1.0)
    draws = [loss.sample_noise((2, DRAWS // 2), key=jax.random.key(i)) for i in (0, 0, 1)]
    both, again, other = (np.asarray(draw) for draw in draws)
    assert both.shape == (2, DRAWS // 2)
    noise = both.ravel()
    variance = float(loss.noise_variance)
    assert abs(noise.mean()) < 5 * math.sqrt(variance / DRAWS)
    error = np.std((noise - noise.mean()) ** 2) / math.sqrt(DRAWS)
    assert abs(noise.var() - variance) < 5 * error
    assert stats.kstest(noise, reference.cumulative(formula)).pvalue > 1e-4
    np.testing.assert_array_equal(both, again)
    assert np.all(both != other)


@pytest.mark.parametrize("name", LABELS)
def test_sampled_labels(name):
    loss = CASES[name](1.0).loss
    f = np.repeat([-2.0, -0.6, 0.0, 0.3, 0.9], DRAWS)
    labels, again = (np.asarray(loss.sample_labels(f, key=jax.random.key(0))) for _ in range(2))
    assert set(np.unique(labels)) == {-1.0, 1.0}
    probability = np.asarray(loss.probability(f[::DRAWS]))
    frequency = np.mean(labels.reshape(-1, DRAWS) > 0, axis=1)
    error = np.sqrt(probability * (1 - probability) / DRAWS)
    assert np.all(np.abs(frequency - probability) <= 5 * error)
    np.testing.assert_array_equal(labels, again)


# ---------------------------------------------------------------------------- duality


@every_piecewise
def test_violation_is_a_distance_and_the_conjugate_a_supremum(name):
    loss, formula, *_ = CASES[name](1.0)
    y, f, dual, weights, lowest, highest = reference.dual_grid(name)
    violation = np.asarray(loss.violation(y, f, dual, weights))
    distance = np.maximum(np.maximum(lowest - f, f - highest), 0)
    np.testing.assert_allclose(violation, distance, 0, 32 * EPS)
    assert np.any(distance == 0) and np.any(distance > 0.1)
    conjugate = np.asarray(loss.conjugate(y, dual, weights))
    for a, b, w, c in set(zip(y, dual, weights, conjugate, strict=True)):
        np.testing.assert_allclose(c, reference.supremum(name, a, b, w), 0, 1e-12)
    # Fenchel's inequality is an equality without violation, and only there
    gap = conjugate + weights * loop(formula, y, f) + dual * f
    on_graph = violation < 64 * EPS
    np.testing.assert_allclose(gap[on_graph], 0.0, atol=1e-13)
    assert np.all(gap[~on_graph] > 1e-4)


@every_piecewise
def test_response_is_the_resolvent_of_the_subdifferential(name):
    loss, _, _, pieces = CASES[name](1.0)
    rng = np.random.default_rng(3)
    n = 200
    y = rng.choice([-1.0, 1.0], n) if name in LABELS else rng.normal(size=n)
    f, center, weights = rng.normal(size=n) * 2, rng.normal(size=n), rng.choice([0, 0.5, 1, 2], n)

    @jax.jit
    def respond(loss, step):
        compliance = weighted_compliance(loss, weights, float)
        bound = weighted_bound(loss, weights, float)
        dual, free = loss.respond(y, f - step * center, compliance + step, bound)
        latent = f + step * (dual - center)
        distance = loss.violation(y, latent, dual, weights)
        miss = latent + compliance * dual - loss.target(y, dual)
        return bound, dual, free, distance, miss

    for step in (0.1, 1.0, 10.0):
        bound, dual, free, distance, miss = (np.asarray(v) for v in respond(loss, step))
        atol = 32 * EPS * (10 + 10 * step)
        np.testing.assert_allclose(distance, 0.0, atol=atol)
        np.testing.assert_allclose(miss[free], 0.0, atol=atol)
        inside = np.abs(dual) < bound
        if not pieces.two_sided or pieces.dead_zone:
            inside &= dual != 0
        np.testing.assert_array_equal(free, inside)
        assert np.all(np.abs(dual) <= bound)
        assert np.all(dual[weights == 0] == 0) and not np.any(free[weights == 0])
    assert np.any(free) and np.all(free[weights > 0]) == (name in ("least-squares", "quadratic"))


@every_piecewise
def test_weights_scale_bound_and_compliance(name):
    loss, _, _, pieces = CASES[name](1.0)
    weights = jnp.asarray([0.0, 0.5, 2.0])
    bound = np.asarray(weighted_bound(loss, weights, float))
    np.testing.assert_allclose(bound, [0.0, pieces.bound / 2, 2 * pieces.bound], rtol=4 * EPS)
    compliance = np.asarray(weighted_compliance(loss, weights, float))
    wanted = [2 * pieces.compliance, pieces.compliance / 2]
    np.testing.assert_allclose(compliance[1:], wanted, rtol=4 * EPS)
    assert np.isfinite(compliance[0])
    assert weighted_bound(loss, weights, jnp.float32).dtype == jnp.float32
    assert weighted_compliance(loss, weights, jnp.float32).dtype == jnp.float32


# ---------------------------------------------------------------------------- leaves and errors


@every_loss
def test_leaves_are_strong_inexact_arrays(name):
    loss = CASES[name](1).loss
    leaves = jax.tree.leaves(loss)
    assert len(leaves) > 0 or name == "trigonometric"
    for leaf in leaves:
        assert isinstance(leaf, jax.Array)
        assert jnp.issubdtype(leaf.dtype, jnp.inexact)
        assert not leaf.weak_type


SILF_LIKE = [losses.SoftInsensitive, losses.EpsilonInsensitive, losses.Huber]
POSITIVE = [(build, "C") for build in (*CLASSES.values(), *SILF_LIKE, losses.Laplacian)]
POSITIVE += [(build, "epsilon") for build in SILF_LIKE]
POSITIVE += [(b, "noise_variance") for b in (losses.Probit, losses.FlipNoise, losses.Quadratic)]


@pytest.mark.parametrize("build, parameter", POSITIVE)
def test_parameters_must_be_positive(build, parameter):
    for wrong in (0, -1, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"`{parameter}` must be positive and finite, but is"):
            build(**{parameter: wrong})
    for wrong in ("large", True, 1j):
        with pytest.raises(TypeError, match=f"`{parameter}` must be"):
            build(**{parameter: wrong})
    np.testing.assert_allclose(getattr(build(**{parameter: 0.7}), parameter), 0.7, rtol=4 * EPS)


@pytest.mark.parametrize(
    "build, parameter, end, words",
    [(losses.SoftInsensitive, "beta", 1.0, "1"), (losses.FlipNoise, "flip_rate", 0.5, "1/2")],
)
def test_parameters_of_an_interval(build, parameter, end, words):
    for wrong in (0.0, end, -0.1, np.nan):
        message = f"`{parameter}` must be strictly between 0 and {words}"
        with pytest.raises(ValueError, match=message):
            build(**{parameter: wrong})
    np.testing.assert_allclose(getattr(build(**{parameter: 0.4}), parameter), 0.4, rtol=4 * EPS)
