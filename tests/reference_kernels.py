"""Kernels written out from their formulas: sums over inputs, loops over points, NumPy only.

A kernel here is a function `k(a, b, same)` of two points; `same` says whether they are the same example.
`CASES` pairs every kernel of the library with its formula.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxsvm import kernels


def gram(kernel, x):
    """`K_ij = k(x_i, x_j)`, one entry after the other."""
    matrix = np.empty((len(x), len(x)))
    for i in range(len(x)):
        for j in range(len(x)):
            matrix[i, j] = kernel(x[i], x[j], i == j)
    return matrix


def cross(kernel, x1, x2):
    """`K_ij = k(x1_i, x2_j)`, never one and the same example."""
    matrix = np.empty((len(x1), len(x2)))
    for i in range(len(x1)):
        for j in range(len(x2)):
            matrix[i, j] = kernel(x1[i], x2[j], False)
    return matrix


def diagonal(kernel, x):
    """`k(x_i, x_i)` of an example with itself."""
    return np.array([kernel(a, a, True) for a in x])


def squared_distance(a, b, lengthscale):
    lengthscales = np.broadcast_to(lengthscale, len(a))
    total = 0.0
    for i in range(len(a)):
        total += ((a[i] - b[i]) / lengthscales[i]) ** 2
    return total


def inner(a, b):
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


def rbf(lengthscale, variance):
    def kernel(a, b, same):
        return variance * math.exp(-squared_distance(a, b, lengthscale) / 2)

    return kernel


def matern12(lengthscale, variance):
    def kernel(a, b, same):
        return variance * math.exp(-math.sqrt(squared_distance(a, b, lengthscale)))

    return kernel


def matern32(lengthscale, variance):
    def kernel(a, b, same):
        r = math.sqrt(squared_distance(a, b, lengthscale))
        return variance * (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r)

    return kernel


def matern52(lengthscale, variance):
    def kernel(a, b, same):
        r = math.sqrt(squared_distance(a, b, lengthscale))
        polynomial = 1 + math.sqrt(5) * r + 5 * r**2 / 3
        return variance * polynomial * math.exp(-math.sqrt(5) * r)

    return kernel


def rational_quadratic(lengthscale, variance, mixture):
    def kernel(a, b, same):
        r2 = squared_distance(a, b, lengthscale)
        return variance * (1 + r2 / (2 * mixture)) ** (-mixture)

    return kernel


def periodic(lengthscale, variance, period):
    def kernel(a, b, same):
        lengthscales = np.broadcast_to(lengthscale, len(a))
        periods = np.broadcast_to(period, len(a))
        total = 0.0
        for i in range(len(a)):
            sine = math.sin(math.pi * (a[i] - b[i]) / periods[i])
            total += 2 * sine**2 / lengthscales[i] ** 2
        return variance * math.exp(-total)

    return kernel


def linear(variance):
    def kernel(a, b, same):
        return inner(np.broadcast_to(variance, len(a)) * a, b)

    return kernel


def polynomial(degree, shift, variance):
    def kernel(a, b, same):
        power = 1.0
        for _ in range(degree):
            power *= inner(a, b) + shift
        return variance * power

    return kernel


def constant(variance):
    def kernel(a, b, same):
        return variance

    return kernel


def white(variance):
    def kernel(a, b, same):
        return variance if same else 0.0

    return kernel


def add(left, right):
    def kernel(a, b, same):
        return left(a, b, same) + right(a, b, same)

    return kernel


def multiply(left, right):
    def kernel(a, b, same):
        return left(a, b, same) * right(a, b, same)

    return kernel


def on_features(inside, feature):
    """`k(g(a), g(b))` for a map `g` of one point to a list of numbers."""

    def kernel(a, b, same):
        return inside(feature(a), feature(b), same)

    return kernel


def layers(weights, biases):
    """A network with tanh between its layers, one unit after the other."""

    def feature(a):
        units = list(a)
        for depth, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            sums = [inner(row, units) + b for row, b in zip(weight, bias, strict=True)]
            units = sums if depth == len(weights) - 1 else [math.tanh(s) for s in sums]
        return np.array(units)

    return feature


INPUTS = 5  # by a matrix product; kernels of a few inputs take differences, as "subspace" does
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(6, INPUTS))
Z = _RNG.normal(size=(4, INPUTS))
LENGTHSCALES = np.array([0.9, 1.3, 2.1, 1.7, 3.0])
WEIGHTS = (_RNG.normal(size=(5, INPUTS)), _RNG.normal(size=(2, 5)))
BIASES = (_RNG.normal(size=5), _RNG.normal(size=2))


class Bilinear(eqx.Module):
    """`W a . W b`: a linear kernel with its own metric."""

    weight: jax.Array

    def __call__(self, a, b):
        return jnp.dot(self.weight @ a, self.weight @ b)


def decay(p, a, b):
    return p["scale"] * jnp.exp(-p["rate"] * jnp.sum((a - b) ** 2))


def cauchy(a, b):
    return 1 / (1 + jnp.sum((a - b) ** 2))


def _network():
    network = eqx.nn.MLP(INPUTS, 2, 5, 1, activation=jnp.tanh, key=jax.random.key(0))
    values = [jnp.asarray(v) for v in (*WEIGHTS, *BIASES)]
    return eqx.tree_at(
        lambda m: [layer.weight for layer in m.layers] + [layer.bias for layer in m.layers],
        network,
        values,
    )


# name -> the kernel with its parameters multiplied by s, and its formula
CASES = {
    "rbf": lambda s: (kernels.RBF(1.6 * s, 1.7 * s), rbf(1.6 * s, 1.7 * s)),
    "rbf-ard": lambda s: (kernels.RBF(LENGTHSCALES * s, 0.6), rbf(LENGTHSCALES * s, 0.6)),
    "matern12": lambda s: (kernels.Matern12(0.9 * s, 1.2), matern12(0.9 * s, 1.2)),
    "matern32": lambda s: (kernels.Matern32(LENGTHSCALES * s), matern32(LENGTHSCALES * s, 1.0)),
    "matern52": lambda s: (kernels.Matern52(1.1 * s, 2), matern52(1.1 * s, 2.0)),
    "rational-quadratic": lambda s: (
        kernels.RationalQuadratic(0.8 * s, 1.5, 0.6),
        rational_quadratic(0.8 * s, 1.5, 0.6),
    ),
    "periodic": lambda s: (
        kernels.Periodic(1.4 * s, 0.9, 2.3 * s),
        periodic(1.4 * s, 0.9, 2.3 * s),
    ),
    "periodic-ard": lambda s: (
        kernels.Periodic(LENGTHSCALES * s, 0.9, LENGTHSCALES[::-1] * 2),
        periodic(LENGTHSCALES * s, 0.9, LENGTHSCALES[::-1] * 2),
    ),
    "linear": lambda s: (kernels.Linear(0.7 * s), linear(0.7 * s)),
    "linear-ard": lambda s: (kernels.Linear(LENGTHSCALES * s), linear(LENGTHSCALES * s)),
    "polynomial": lambda s: (
        kernels.Polynomial(3, 0.5 * s, 1.2 * s),
        polynomial(3, 0.5 * s, 1.2 * s),
    ),
    "constant": lambda s: (kernels.Constant(1.3 * s), constant(1.3 * s)),
    "white": lambda s: (kernels.White(0.4 * s), white(0.4 * s)),
    "custom-parameters": lambda s: (
        kernels.Custom(decay, {"scale": jnp.asarray(1.4 * s, float), "rate": np.array(0.3)}),
        rbf(np.sqrt(1 / 0.6), 1.4 * s),
    ),
    "custom-function": lambda s: (
        kernels.Custom(cauchy),
        rational_quadratic(np.sqrt(0.5), 1.0, 1.0),
    ),
    "custom-module": lambda s: (
        kernels.Custom(Bilinear(jnp.asarray(WEIGHTS[0] * s))),
        on_features(linear(1.0), lambda a: s * WEIGHTS[0] @ a),
    ),
    "sum": lambda s: (
        kernels.RBF(0.8 * s) + kernels.White(0.2),
        add(rbf(0.8 * s, 1.0), white(0.2)),
    ),
    "product": lambda s: (
        kernels.Matern52(1.4 * s) * kernels.Linear(0.9),
        multiply(matern52(1.4 * s, 1.0), linear(0.9)),
    ),
    "ard": lambda s: (
        kernels.ARD(kernels.Polynomial(2), LENGTHSCALES * s),
        on_features(polynomial(2, 1.0, 1.0), lambda a: a / (LENGTHSCALES * s)),
    ),
    "subspace": lambda s: (
        kernels.Subspace(kernels.RBF([0.5 * s, 0.9]), (2, 0)),
        on_features(rbf([0.5 * s, 0.9], 1.0), lambda a: np.array([a[2], a[0]])),
    ),
    "subspace-rough": lambda s: (
        kernels.Subspace(kernels.Matern12(0.7 * s), (1,)),
        on_features(matern12(0.7 * s, 1.0), lambda a: a[1:2]),
    ),
    "subspace-periodic": lambda s: (
        kernels.Subspace(kernels.Periodic(0.7 * s, 1.3, 2.1), (4,)),
        on_features(periodic(0.7 * s, 1.3, 2.1), lambda a: a[4:5]),
    ),
    "transform": lambda s: (
        kernels.Transform(kernels.RBF(0.8 * s) + kernels.White(0.1), _network()),
        on_features(
            add(rbf(0.8 * s, 1.0), white(0.1)),
            layers(WEIGHTS, BIASES),
        ),
    ),
}
