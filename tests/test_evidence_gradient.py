"""Exact gradients of the evidence against quadrature, and the two routes against each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm import evidence_gradient
from jaxsvm.evidence import _gradient

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


def kinks(name, y, parameters):
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
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_against_quadrature(name):
    loss, _ = CASES[name]
    model = jsvm.KernelMachine(KERNEL, loss)
    if name == "soft insensitive":
        model = jsvm.freeze(model, "loss.beta")
    at = np.array([float(leaf) for leaf in jax.tree.leaves(model)])
    for count in (1, 2, 3):  # an example of weight zero is absent: one program for all three
        weights = (jnp.arange(3) < count).astype(float)
        found = evidence_gradient(
            model, X, Y, key=jax.random.key(count), weights=weights, chains=16, draws=1000
        )
        for place, (slope, error) in enumerate(
            zip(jax.tree.leaves(found.gradient), jax.tree.leaves(found.standard_error), strict=True)
        ):
            move = 1e-2 * np.eye(len(at))[place]
            ends = [log_evidence(at + s * move, count, name) for s in (1, -1)]
            expected = (ends[0] - ends[1]) / 2e-2
            assert abs(float(slope) - expected) < 3 * float(error) + 1e-6, (name, count, place)
            assert float(error) < 0.02


def examples():
    x, y = jsvm.datasets.twonorm(30, key=jax.random.key(0))
    lengthscale = jnp.linspace(2.0, 5.0, 20)
    kernel = (
        jsvm.kernels.RBF(lengthscale, 3.0) + jsvm.kernels.Constant(0.1) + jsvm.kernels.White(0.2)
    )
    return jsvm.KernelMachine(kernel, jsvm.losses.Hinge(1.0)), x, y


def test_routes_and_chunks_agree(monkeypatch):
    model, x, y = examples()
    options = {"key": jax.random.key(0), "draws": 100, "warmup": 60}
    whole = evidence_gradient(model, x, y, **options)
    fisher = evidence_gradient(model, x, y, **options, route="fisher")
    # all examples are landmarks: exact, but by the other branch of the code
    marked = evidence_gradient(model, x, y, **options, landmarks=list(range(30)))
    monkeypatch.setattr(_gradient, "_MOST_ENTRIES", 30 * 7)  # seven rows at a time
    jax.clear_caches()
    parts = evidence_gradient(model, x, y, **options)
    for other in (fisher, marked, parts):
        for a, b in zip(
            jax.tree.leaves(whole.gradient), jax.tree.leaves(other.gradient), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


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
