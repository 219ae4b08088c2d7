"""Literal, slow references for the solvers: they share no code with the library."""

import numpy as np
from scipy.optimize import lsq_linear


def rbf(x, lengthscale, variance, constant):
    """`variance exp(-|x - x'|^2 / (2 lengthscale^2)) + constant`, by a double loop over points."""
    n = len(x)
    gram = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            gram[i, j] = (
                variance * np.exp(-np.sum(((x[i] - x[j]) / lengthscale) ** 2) / 2) + constant
            )
    return gram


def random_problem(seed, n):
    """Inputs, labels and hyperparameters that go from trivial to hopeless for ordinary solvers."""
    rng = np.random.default_rng(seed)
    d = rng.integers(1, 8)
    C, variance = 10 ** rng.uniform(-3, 4), 10 ** rng.uniform(-1, 1)
    lengthscale = 10 ** rng.uniform(np.log10(0.05), np.log10(50))
    x = rng.normal(size=(n, d))
    normal = rng.normal(size=d)
    noise = 0.5 * rng.normal(size=n)
    kind = ("overlap", "separable", "duplicates", "lonely", "random")[seed % 5]
    score = x @ normal / np.linalg.norm(normal)
    y = np.where(score + (0 if kind == "separable" else noise) > 0, 1.0, -1.0)
    if kind == "duplicates":  # a third of the rows again, half of them with the other label
        k = n // 3
        x[n - k :] = x[:k]
        y[n - k :] = y[:k] * np.where(rng.random(k) < 0.5, 1, -1)
    if kind == "lonely":  # one example of a class
        y[:] = 1.0
    if kind == "random":
        y = rng.choice([-1.0, 1.0], n)
    y[0], y[1] = 1.0, -1.0
    return x, y, C, lengthscale, variance


def hinge_violation(gram, y, dual, C, offset=0.0):
    """The largest violation of the KKT conditions of eq. 4 of Gold and Sollich, margin by margin."""
    margin = y * (gram @ dual + offset)
    alpha = y * dual
    worst = 0.0
    for z, a in zip(margin, alpha, strict=True):
        assert -1e-12 * C <= a <= C * (1 + 1e-6 * (dual.dtype == np.float32))
        if a <= 0:
            worst = max(worst, 1 - z)  # a non-support vector has a margin of one at least
        elif a >= C:
            worst = max(worst, z - 1)  # a bound one of one at most
        else:
            worst = max(worst, abs(1 - z))  # a marginal one exactly
    return worst


def box_qp(matrix, linear, lower, upper):
    """The minimizer of `1/2 u' matrix u - linear' u` in a box, by bounded-variable least squares."""
    root = np.linalg.cholesky(matrix).T
    return lsq_linear(
        root,
        np.linalg.solve(root.T, linear),
        (lower, upper),
        method="bvls",
        tol=1e-15,
        max_iter=10000,
    ).x


def soft_insensitive_dual(gram, y, C, epsilon, beta):
    """`alpha - alpha*` of eq. 29 of Chu, Keerthi and Ong, in its `2 n` variables."""
    n = len(y)
    ridge = 2 * beta * epsilon / C * np.eye(n)
    matrix = np.block([[gram + ridge, -gram], [-gram, gram + ridge]])
    zone = (1 - beta) * epsilon
    linear = np.concatenate([y - zone, -y - zone])
    solution = box_qp(matrix + 1e-13 * np.eye(2 * n), linear, 0.0, C)
    return solution[:n] - solution[n:]


def central_difference(function, vector, step=1e-5):
    """The gradient of a function of a vector, one coordinate after the other."""
    vector = np.asarray(vector, dtype=float)
    gradient = np.empty_like(vector)
    for i in range(len(vector)):
        change = np.zeros_like(vector)
        change[i] = step
        gradient[i] = (float(function(vector + change)) - float(function(vector - change))) / (
            2 * step
        )
    return gradient
