"""Sums and products of kernels, and the errors for invalid ones."""

import jax.numpy as jnp
import numpy as np
import pytest
from reference_kernels import INPUTS, Bilinear, X, Z

from jaxsvm import kernels
from jaxsvm.kernels import (
    ARD,
    RBF,
    Constant,
    Custom,
    Linear,
    Matern12,
    Matern52,
    Periodic,
    Polynomial,
    RationalQuadratic,
    Subspace,
    Transform,
    White,
)

COMBINATIONS = {
    "square of a sum": lambda a, b, w: (a + b) * (a + b),
    "shared term": lambda a, b, w: a + a * b,
    "number before": lambda a, b, w: 2 * a,
    "number after": lambda a, b, w: a * 2.0,
    "number added": lambda a, b, w: a + 1,
    "number added before": lambda a, b, w: 1 + a,
    "array": lambda a, b, w: a * jnp.asarray(0.5) + b,
    "NumPy number": lambda a, b, w: a * np.float64(0.5) + b * np.array(3),
    "NumPy number before": lambda a, b, w: np.float64(0.5) * a + np.array(3) * b,
    "Python's sum": lambda a, b, w: sum([a, b, w]),
    "sum of products": lambda a, b, w: a * b + b * w + w * a,
    "noise times a sum": lambda a, b, w: w * (a + b + 1) + 0.5 * (w + w),
    "deep": lambda a, b, w: (((a + b) * a + w) * (b + 0.3) + a * (b + (a + w) * b)) * (w + 1),
}


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_algebra_is_that_of_matrices(combination):
    combine = COMBINATIONS[combination]
    parts = (RBF(0.8, 1.1), Polynomial(2, 0.7), White(0.3))
    kernel = combine(*parts)
    tight = {"rtol": 1e-15, "atol": 0}
    if combination == "deep":
        tight["rtol"] = 4e-15  # a number is the exponential of its logarithm, which rounds
    np.testing.assert_allclose(
        kernel.gram(X), combine(*(np.asarray(k.gram(X)) for k in parts)), **tight
    )
    np.testing.assert_allclose(
        kernel.cross(X, Z), combine(*(np.asarray(k.cross(X, Z)) for k in parts)), **tight
    )
    np.testing.assert_allclose(
        kernel.diagonal(X), combine(*(np.asarray(k.diagonal(X)) for k in parts)), **tight
    )


def test_a_number_is_a_constant_kernel():
    kernel = 2 * RBF() + 3
    assert isinstance(kernel, kernels.Sum) and isinstance(kernel.left, kernels.Product)
    np.testing.assert_allclose(kernel.left.left.variance, 2.0, rtol=1e-15)
    np.testing.assert_allclose(kernel.right.variance, 3.0, rtol=1e-15)


@pytest.mark.parametrize("wrong", ["x", None, [1.0], {}, object(), np.ones(2), jnp.ones(2)])
def test_only_kernels_and_numbers_are_combined(wrong):
    for operation in (
        lambda: RBF() + wrong,
        lambda: wrong + RBF(),
        lambda: RBF() * wrong,
        lambda: wrong * RBF(),
    ):
        with pytest.raises(TypeError):
            operation()


def test_a_custom_kernel_may_give_whole_numbers():
    np.testing.assert_array_equal(Custom(lambda a, b: 1).gram(X), np.ones((6, 6)))


@pytest.mark.parametrize("number", [0, -1, 0.0, -2.5, np.nan, np.inf])
def test_a_factor_must_be_positive(number):
    with pytest.raises(ValueError, match=r"`variance` must be positive and finite, but is"):
        number * RBF()


# ---------------------------------------------------------------------------- errors

ERRORS = {
    "no lengthscale": (lambda: RBF(0.0), ValueError, "`lengthscale` must be positive"),
    "negative in a vector": (lambda: Matern52([1.0, -1.0]), ValueError, "`lengthscale` must be"),
    "matrix of lengthscales": (lambda: RBF([[1.0]]), ValueError, "one number, or one for each"),
    "NaN variance": (lambda: Matern12(1.0, np.nan), ValueError, "`variance` must be positive"),
    "infinite mixture": (lambda: RationalQuadratic(1.0, 1.0, np.inf), ValueError, "`mixture`"),
    "negative period": (lambda: Periodic(1.0, 1.0, -2.0), ValueError, "`period` must be positive"),
    "text": (lambda: RBF("wide"), TypeError, "`lengthscale` must be a number"),
    "complex": (lambda: RBF(1j), TypeError, "`lengthscale` must be real"),
    "boolean": (lambda: RBF(True), TypeError, "`lengthscale` must be real"),
    "linear": (lambda: Linear([1.0, 0.0]), ValueError, "`variance` must be positive"),
    "linear matrix": (lambda: Linear([[1.0]]), ValueError, "one number, or one for each"),
    "shift": (lambda: Polynomial(2, -1.0), ValueError, "`shift` must be positive"),
    "degree 0": (lambda: Polynomial(0), ValueError, "`degree` must be a whole number"),
    "degree 1.5": (lambda: Polynomial(1.5), ValueError, "`degree` must be a whole number"),
    "constant": (lambda: Constant(0.0), ValueError, "`variance` must be positive"),
    "white": (lambda: White(-1.0), ValueError, "`variance` must be positive"),
    "ARD scalar": (lambda: ARD(RBF(), 1.0), ValueError, "a vector with one entry for each"),
    "ARD negative": (lambda: ARD(RBF(), [-1.0]), ValueError, "`lengthscale` must be positive"),
    "no inputs": (
        lambda: Subspace(RBF(), ()),
        ValueError,
        "`inputs` must be distinct column numbers",
    ),
    "an input twice": (lambda: Subspace(RBF(), (1, 1)), ValueError, "distinct column numbers"),
    "an input before 0": (lambda: Subspace(RBF(), (-1,)), ValueError, "distinct column numbers"),
    "input beyond": (lambda: Subspace(RBF(), (0, 5)).gram(X), ValueError, "uses input 5"),
    "not callable": (lambda: Custom(3.0), TypeError, "a function or an `eqx.Module`"),
    "whole numbers": (
        lambda: Custom(Bilinear(jnp.ones((1, INPUTS), int))),
        TypeError,
        "array of int",
    ),
    "ARD of a number": (lambda: ARD(3, [1.0]), TypeError, "a kernel is needed, not 3"),
    "subspace of a class": (lambda: Subspace(RBF, (0,)), TypeError, "a kernel is needed"),
    "transform of text": (lambda: Transform("x", abs), TypeError, "a kernel is needed, not 'x'"),
    "a list kernel": (lambda: Custom(lambda a, b: [1.0]).gram(X), TypeError, "gives .1.0."),
    "two kinds of points": (lambda: RBF()(X[0], X[0, :2]), ValueError, r"\(5,\) and \(2,\)"),
    "lists for points": (lambda: RBF()(X, X), ValueError, "use `gram` or `cross`"),
    "a vector kernel": (lambda: Custom(lambda a, b: a * b).gram(X), ValueError, "one number"),
    "a scalar feature": (
        lambda: Transform(RBF(), lambda a: a[0]).gram(X),
        ValueError,
        "vector of features",
    ),
    "two lengthscales": (lambda: RBF([1.0, 2.0]).gram(X), ValueError, "2 lengthscales"),
    "one lengthscale": (lambda: ARD(Linear(), [1.0]).gram(X), ValueError, "1 lengthscales"),
    "a vector of points": (lambda: RBF().gram(X[0]), ValueError, "one row for each example"),
    "a stack of points": (lambda: RBF().gram(X[None]), ValueError, "must be a matrix"),
    "no points": (lambda: RBF().gram(X[:0]), ValueError, "`x` is empty"),
    "NaN points": (lambda: RBF().gram(X * np.nan), ValueError, "`x` holds 30 NaN"),
    "second list": (lambda: RBF().cross(X, Z[0]), ValueError, "`x2` must be a matrix"),
    "other inputs": (lambda: RBF().cross(X, Z[:, :2]), ValueError, "5 inputs, but `x2` has 2"),
    "two variances": (lambda: Linear([1.0, 2.0]).gram(X), ValueError, "2"),
    "one variance": (lambda: Linear([2.0]).gram(X), ValueError, "1"),
    "vector of offsets": (lambda: Constant([1.0, 2.0]), ValueError, "`variance`"),
    "vector of variances": (lambda: RBF(1.0, [1.0, 2.0]), ValueError, "`variance`"),
    "matrix of periods": (lambda: Periodic(1.0, 1.0, [[1.0]]), ValueError, "`period`"),
    "half an input": (lambda: Subspace(RBF(), (1.5,)), (TypeError, ValueError), "`inputs`"),
    "vector on the diagonal": (
        lambda: Custom(lambda a, b: a * b).diagonal(X),
        ValueError,
        "one number",
    ),
}


@pytest.mark.usefixtures("wrong_arrays")
@pytest.mark.parametrize("mistake", ERRORS)
def test_mistakes_are_reported(mistake):
    action, error, message = ERRORS[mistake]
    with pytest.raises(error, match=message):
        action()
