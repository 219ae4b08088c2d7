"""Exact gradients of the evidence against quadrature, and the two routes against each other."""

import contextlib
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxprs import largest_array
from scipy import stats

import jaxsvm as jsvm
from jaxsvm import evidence_gradient
from jaxsvm.approximations import Representation
from jaxsvm.evidence import _by_rows
from jaxsvm.sampling import HMC, SamplingWarning, Setup

X = jnp.array([[0.0], [0.7], [1.1]])
Y = jnp.array([1.0, -1.0, 1.0])
KERNEL = jsvm.kernels.RBF(0.8, 2.0) + jsvm.kernels.Constant(0.3)


def hinge(y, f, C):
    return C * np.maximum(1 - y * f, 0) + np.log1p(np.exp(-2 * C))


def squared_hinge(y, f, C):
    line = np.linspace(-1, 1, 20001)
    total = np.exp(-C * (1 - line) ** 2 / 2) + np.exp(-C * (1 + line) ** 2 / 2)
    return C / 2 * np.maximum(1 - y * f, 0) ** 2 + np.log(total.max())


def soft_insensitive(y, f, C, epsilon, beta=0.4):
    low, high = (1 - beta) * epsilon, (1 + beta) * epsilon

    def raw(size):
        middle = (size - low) ** 2 / (4 * beta * epsilon)
        return C * np.where(size <= low, 0, np.where(size < high, middle, size - epsilon))

    size, weight = panels([0, low, high, *np.linspace(high + 0.5, 40, 80)])
    return raw(np.abs(y - f)) + np.log(2 * np.sum(weight * np.exp(-raw(size))))


def trigonometric(y, f):
    inside = np.clip(y * f, -1, 1)
    with np.errstate(divide="ignore"):
        return np.where(y * f <= -1, np.inf, -2 * np.log(np.cos(np.pi / 4 * (1 - inside))))


def kinks(name, y, parameters):
    if name == "trigonometric":
        return [y, -y]
    if name != "soft insensitive":
        return [y]
    epsilon = parameters[1]
    return [y + side * epsilon for side in (-1.4, -0.6, 0.6, 1.4)]


def panels(ends):
    """Gauss-Legendre nodes and weights between all of these ends."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    ends = np.sort(ends)
    half = np.diff(ends) / 2
    places = (ends[:-1] + half)[:, None] + half[:, None] * nodes[None, :]
    return places.ravel(), (half[:, None] * weights[None, :]).ravel()


def log_evidence(values, count, name):
    """`ln Q(Y|X)` of the first examples by quadrature in latent values, piece by piece of the losses."""
    lengthscale, variance, constant = np.exp(values[:3])
    parameters = np.exp(values[3:])
    x, y = np.asarray(X)[:count, 0], np.asarray(Y)[:count]
    gram = variance * np.exp(-((x[:, None] - x[None, :]) ** 2) / (2 * lengthscale**2)) + constant
    inverse = np.linalg.inv(gram)
    exponent = -np.linalg.slogdet(2 * np.pi * gram)[1] / 2
    axes = []
    for k in range(count):
        f, weight = panels([*np.arange(-12, 13, 1.5), *kinks(name, y[k], parameters)])
        shape = [-1 if axis == k else 1 for axis in range(count)]
        own = np.log(weight) - CASES[name][1](y[k], f, *parameters)
        exponent = exponent + own.reshape(shape)
        axes.append(f.reshape(shape))
    for i in range(count):
        for k in range(count):
            exponent = exponent - inverse[i, k] * axes[i] * axes[k] / 2
    return np.log(np.sum(np.exp(exponent)))


CASES = {
    "hinge": (jsvm.losses.Hinge(1.5), hinge),
    "squared hinge": (jsvm.losses.SquaredHinge(1.5), squared_hinge),
    "soft insensitive": (
        jsvm.losses.SoftInsensitive(C=2.0, epsilon=0.3, beta=0.4),
        soft_insensitive,
    ),
    "trigonometric": (jsvm.losses.Trigonometric(), trigonometric),
}
SINGLE = ("trigonometric",)  # in single precision, JAX's default


def gradient_of_the_first(model, count, draws, single=False):
    dtype = np.float32 if single else np.float64
    with jax.enable_x64(not single):
        model = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), model)
        x, y, weights = (np.asarray(a, dtype) for a in (X, Y, np.arange(3) < count))
        wall = isinstance(model.loss, jsvm.losses.Trigonometric)
        words = "slope has no fourth moment: standard errors of the gradient are unreliable"
        with pytest.warns(SamplingWarning, match=words) if wall else contextlib.nullcontext():
            found = evidence_gradient(
                model, x, y, key=jax.random.key(count), weights=weights, chains=16, draws=draws
            )
    assert found.diagnostics.wall == wall and len(found.diagnostics.problems) == wall
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(found.gradient))
    return found


@pytest.mark.parametrize("name", CASES)
def test_gradients_against_quadrature(name):
    loss, _ = CASES[name]
    model = jsvm.KernelMachine(KERNEL, loss)
    if name == "soft insensitive":
        model = jsvm.freeze(model, "loss.beta")
    at = np.array([float(leaf) for leaf in jax.tree.leaves(model)])
    for count in (1, 2, 3):  # an example of weight zero is absent: one program for all three
        found = gradient_of_the_first(model, count, 1000, name in SINGLE)
        for place, (slope, error) in enumerate(
            zip(jax.tree.leaves(found.gradient), jax.tree.leaves(found.standard_error), strict=True)
        ):
            move = 1e-2 * np.eye(len(at))[place]
            ends = [log_evidence(at + s * move, count, name) for s in (1, -1)]
            expected = (ends[0] - ends[1]) / 2e-2
            assert abs(float(slope) - expected) < 3 * float(error) + 1e-6, (name, count, place)
            assert float(error) < (0.03 if name == "trigonometric" else 0.02)


def test_standard_errors_shrink_like_the_root_of_the_draws():
    """Sixteen times the draws quarter them.

    The ratio of the squares, each a variance over 16 independent chains, is 16 times one of Fisher's F with
    (15, 15) degrees of freedom: for all but one key of a thousand within this interval, which is 2.6 to 100.
    Neither 1 nor 256 is in it.
    """
    model = jsvm.KernelMachine(KERNEL, CASES["hinge"][0])
    short, long = (gradient_of_the_first(model, 3, draws) for draws in (1000, 16_000))
    low, high = stats.f(15, 15).interval(0.999)
    assert 1 < 16 * low < 16 * high < 256
    errors = [jax.tree.leaves(found.standard_error) for found in (short, long)]
    for before, after in zip(*errors, strict=True):
        assert 16 * low < float(before / after) ** 2 < 16 * high


def examples():
    x, y = jsvm.datasets.twonorm(30, key=jax.random.key(0))
    lengthscale = jnp.linspace(2.0, 5.0, 20)
    kernel = (
        jsvm.kernels.RBF(lengthscale, 3.0) + jsvm.kernels.Constant(0.1) + jsvm.kernels.White(0.2)
    )
    return jsvm.KernelMachine(kernel, jsvm.losses.Hinge(1.0)), x, y


def test_routes_and_chunks_agree(monkeypatch):
    model, x, y = examples()
    # short chains: long ones magnify the rounding errors in which the programs differ
    options = {"key": jax.random.key(0), "draws": 40, "warmup": 30, "method": HMC()}
    whole = evidence_gradient(model, x, y, **options)
    # all examples are landmarks: exact, but by the other branch of the code
    marked = evidence_gradient(
        model, x, y, **options, approximation=jsvm.Nystrom(landmarks=list(range(30)))
    )
    few = {"approximation": jsvm.Nystrom(rank=6, landmarks=[0, 3, 5, 8, 13, 21, 29])}

    def by_fisher():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SamplingWarning)  # of the low rank
            low = evidence_gradient(model, x, y, **options, **few, route="fisher")
        return evidence_gradient(model, x, y, **options, route="fisher"), low

    fisher, low = by_fisher()
    monkeypatch.setattr(_by_rows, "_MAX_ENTRIES", 30 * 7)  # seven rows at a time
    monkeypatch.setattr(_by_rows, "_MAX_LATENT", 40 * 7)
    jax.clear_caches()
    parts = evidence_gradient(model, x, y, **options)
    fisher_parts, low_parts = by_fisher()
    pairs = [(whole, other) for other in (fisher, marked, parts, fisher_parts)]
    for one, other in [*pairs, (low, low_parts)]:
        for a, b in zip(
            jax.tree.leaves(one.gradient), jax.tree.leaves(other.gradient), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


def test_memory_grows_neither_with_chains_nor_with_draws():
    """No array has a number for each chain, example and white coordinate."""
    x, y = jsvm.datasets.twonorm(600, key=jax.random.key(0))
    subspace = jsvm.Nystrom(rank=12, landmarks=list(range(20))).subspace(examples()[0], x)
    setup = Setup(examples()[0], x, y, jnp.ones(600), Representation(subspace))

    def gradient(setup, draws):
        factor = setup.whiten()[0].factor
        return _by_rows.gradients_of_chains(setup, factor, draws, "fisher")

    draws = jnp.zeros((30, 8, 12))
    assert largest_array(gradient, setup, draws) < 8 * 600 * 12


def test_a_user_may_tolerate_lost_variance():
    model, x, y = examples()
    for tolerance, count in ((0.01, 1), (0.99, 0)):
        low = jsvm.Nystrom(rank=2, landmarks=[0, 3, 5], tolerance=tolerance)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SamplingWarning)
            found = evidence_gradient(
                model, x, y, key=jax.random.key(0), approximation=low, warmup=10, draws=20
            )
        problems = [text for text in found.diagnostics.problems if "the low rank loses" in text]
        assert len(problems) == count


@pytest.mark.parametrize("route", ["kernel", "fisher"])
def test_an_example_without_weight_is_absent_at_a_low_rank(route):
    model, x, y = examples()
    low = jsvm.Nystrom(rank=4, landmarks=[0, 3, 5, 8])
    options = {"key": jax.random.key(3), "approximation": low, "route": route}
    counts = {"chains": 2, "warmup": 10, "draws": 20}

    def gradient(x, y, weights):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", jsvm.sampling.SamplingWarning)  # of so few draws
            estimate = jsvm.evidence_gradient(model, x, y, weights=weights, **options, **counts)
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(estimate.gradient)])

    more_x, more_y = np.vstack([x, x[:3] + 0.2]), np.append(y, y[:3])
    weights = np.append(np.ones(len(y)), np.zeros(3))
    expected = gradient(x, y, None)
    np.testing.assert_allclose(gradient(more_x, more_y, weights), expected, rtol=1e-8)


def test_problems_of_the_chains_are_problems_of_the_gradient():
    """A low rank, too few draws, and chains that stay at the mode, where their gradients agree."""
    model, x, y = examples()
    options = {"key": jax.random.key(0), "draws": 40, "warmup": 60, "chains": 4}
    timid = {"method": HMC(step_size=1e-8), "warmup": 0}
    for words, change in (
        ("the low rank loses", {"approximation": jsvm.Nystrom(1)}),
        ("7 draws of each chain are too few", {"draws": 7}),
        ("the chains hardly move", timid),
    ):
        with pytest.warns(SamplingWarning, match=words):
            found = evidence_gradient(model, x, y, **options | change)
        assert any(words in problem for problem in found.diagnostics.problems)


def test_frozen_parameters_have_no_gradient():
    model, x, y = examples()
    frozen = jsvm.freeze(model, "loss.C", "kernel.right")
    options = {"key": jax.random.key(0), "draws": 100, "warmup": 60}
    found = evidence_gradient(frozen, x, y, **options)
    assert len(jax.tree.leaves(found.gradient)) == 3
    free = evidence_gradient(model, x, y, **options)
    np.testing.assert_allclose(
        found.gradient.kernel.left.left.log_lengthscale,
        free.gradient.kernel.left.left.log_lengthscale,
        rtol=1e-8,
    )


def test_bad_input_is_refused():
    model, x, y = examples()
    with pytest.raises(ValueError, match="`route` must be one of"):
        evidence_gradient(model, x, y, key=jax.random.key(0), route="short")
    with pytest.raises(ValueError, match="at least two chains"):
        evidence_gradient(model, x, y, key=jax.random.key(0), chains=1)
