"""Kernels against literal double loops; symmetry, definiteness, derivatives, memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_kernels as reference
from jax.flatten_util import ravel_pytree
from jaxprs import largest_array
from reference_kernels import CASES, INPUTS, X, Z, cauchy, decay

from jaxsvm.kernels import (
    RBF,
    Custom,
    Matern12,
    White,
)

MANY = np.random.default_rng(1).normal(size=(41, INPUTS))  # odd: vectorised loops have a remainder
NOISY = ("white", "sum", "transform")  # with a White part, which distinguishes examples by index
ROUGH = ("matern12", "subspace-rough")  # not differentiable at coincident points
MATRIX_PRODUCTS = [
    name
    for name in CASES
    if name.startswith(("rbf", "matern", "rational", "periodic", "linear", "polynomial", "ard"))
]
every_kernel = pytest.mark.parametrize("name", CASES)


def _build(name, scale=1.0):
    return CASES[name](scale)[0]


# ---------------------------------------------------------------------------- values


@functools.cache
def _compiled(name, dtype):
    """One compilation for the tests of values and of derivatives, and a list of its traces."""
    rng = np.random.default_rng(2)
    weights = [rng.normal(size=shape) for shape in ((6, 6), (6, 4), (6,))]
    traces = []

    def objective(arguments, z):
        kernel, x = arguments
        values = (kernel.gram(x), kernel.cross(x, z), kernel.diagonal(x))
        return sum(jnp.sum(w * v) for w, v in zip(weights, values, strict=True)), values

    @jax.jit
    def evaluate(kernel, x, z):
        traces.append(name)
        if dtype == "float32":
            return objective((kernel, x), z)
        # bare: no filter between `jax.grad` and the kernel's leaves
        return jax.value_and_grad(objective, has_aux=True)((kernel, x), z)

    return evaluate, traces


@every_kernel
def test_values_match_the_formula_and_compile_once(name, dtype):
    rtol = 1e-12 if dtype == "float64" else 1e-5
    x, z = X.astype(dtype), Z.astype(dtype)
    exact_x, exact_z = x.astype(float), z.astype(float)
    evaluate, traces = _compiled(name, dtype)
    for scale in (1.0, 2):
        kernel, formula = CASES[name](scale)
        wanted = (
            reference.gram(formula, exact_x),
            reference.cross(formula, exact_x, exact_z),
            reference.diagonal(formula, exact_x),
            np.array(formula(exact_x[0], exact_z[0], False)),
        )
        found = evaluate(kernel, x, z)
        values = found[1] if dtype == "float32" else found[0][1]
        values = (*values, kernel(jnp.asarray(x[0]), jnp.asarray(z[0])))
        for value, exact in zip(values, wanted, strict=True):
            assert value.dtype == dtype
            # sums that cancel are as accurate as their largest entries
            np.testing.assert_allclose(value, exact, rtol, rtol / 100 * np.abs(exact).max())
    assert len(traces) == 1


def test_far_from_the_origin_distances_stay_accurate():
    kernel, formula = CASES["rbf-ard"](1.0)
    x, z = X + 1e4, Z + 1e4
    rtol = 10 * 1e4 * np.finfo(float).eps  # scaled inputs are rounded at their own size
    np.testing.assert_allclose(kernel.gram(x), reference.gram(formula, x), rtol)
    np.testing.assert_allclose(kernel.cross(x, z), reference.cross(formula, x, z), rtol)


def test_integer_inputs_are_numbers():
    whole = np.arange(6).reshape(3, 2)
    np.testing.assert_array_equal(RBF().gram(whole), RBF().gram(whole.astype(float)))


def test_a_white_kernel_distinguishes_examples_by_index():
    kernel = White(0.3)
    twice = np.concatenate([X, X])
    np.testing.assert_allclose(kernel.gram(twice), 0.3 * np.eye(12), rtol=1e-15)
    np.testing.assert_array_equal(kernel.cross(X, X), np.zeros((6, 6)))


def test_white_noise_has_the_type_of_its_variance():
    assert White(jnp.float32(0.3)).gram(X.astype("float32")).dtype == jnp.float32


# ---------------------------------------------------------------------------- matrices


@every_kernel
def test_gram_is_symmetric_semidefinite_and_blind_to_copies(name):
    kernel = _build(name)
    repeated = MANY.copy()
    repeated[-8:] = repeated[:8]
    compiled = jax.jit(lambda k, x: k.gram(x))
    for points in (MANY, repeated, repeated + 1e4):
        matrix = np.asarray(compiled(kernel, points))
        np.testing.assert_array_equal(matrix, matrix.T)
        values = np.linalg.eigvalsh(matrix)
        assert values[-1] > 0
        assert values[0] >= -len(points) * np.finfo(float).eps * values[-1]
        if points is not MANY and name not in (*NOISY, "custom-module"):  # a user's own rounding
            np.testing.assert_array_equal(matrix[-8:], matrix[:8])
            np.testing.assert_array_equal(matrix[:, -8:], matrix[:, :8])


@pytest.mark.parametrize("inputs", [1, 200])
def test_coincident_points_are_fully_correlated(inputs, dtype):
    points = np.random.default_rng(1).normal(size=(20, inputs)).astype(dtype)
    points[-3:] = points[:3]
    compiled = jax.jit(lambda k, x, z: (k.gram(x), k.cross(x, z)))
    gram, cross = (np.asarray(m) for m in compiled(Matern12(inputs**0.5), points, points[:3]))
    np.testing.assert_array_equal(gram[-3:], gram[:3])
    for i in range(3):
        assert gram[i, 17 + i] == cross[i, i] == cross[17 + i, i] == 1


# ---------------------------------------------------------------------------- derivatives


def _differences(function, flat, step=1e-3):
    """Central differences of fourth order, in every coordinate."""
    columns = []
    for move in step * np.eye(flat.size):
        near = function(flat + move) - function(flat - move)
        far = function(flat + 2 * move) - function(flat - 2 * move)
        columns.append((8 * near - far) / (12 * step))
    return np.stack(columns)


def _assert_near(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-9 * np.abs(wanted).max())


@every_kernel
def test_gradients_match_differences(name):
    kernel = _build(name)
    evaluate, _ = _compiled(name, "float64")
    coincident_x, coincident_z = X.copy(), Z.copy()
    coincident_x[-2:] = coincident_x[:2]
    coincident_z[:2] = coincident_x[2:4]
    for x, z in ((X, Z), (coincident_x, coincident_z)):
        leaves, structure = jax.tree.flatten((kernel, x))
        gradient = evaluate(kernel, x, z)[1]
        assert jax.tree.structure(gradient) == structure
        found = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient)])
        assert np.all(np.isfinite(found))
        if name in ROUGH and x is coincident_x:
            continue
        ends = np.cumsum([leaf.size for leaf in leaves])

        def value(flat, z=z, leaves=leaves, structure=structure, ends=ends):
            parts = np.split(flat, ends[:-1])
            shaped = [part.reshape(old.shape) for part, old in zip(parts, leaves, strict=True)]
            return np.asarray(evaluate(*jax.tree.unflatten(structure, shaped), z)[0][0])

        flat = np.concatenate([np.ravel(leaf) for leaf in leaves])
        _assert_near(found, _differences(value, flat))


@pytest.mark.parametrize("name", ["rbf-ard", "matern52"])
def test_hessian_at_coincident_points(name):
    points = X.copy()
    points[-2:] = points[:2]
    weights = jnp.asarray(np.random.default_rng(2).normal(size=(6, 6)))
    flat, unravel = ravel_pytree((_build(name), points))

    def objective(flat):
        kernel, x = unravel(flat)
        return jnp.sum(weights * kernel.gram(x))

    compiled = jax.jit(lambda v: (jax.grad(objective)(v), jax.hessian(objective)(v)))
    hessian = np.asarray(compiled(flat)[1])
    assert np.all(np.isfinite(hessian))
    # derivatives in the hyperparameters are exact for coincident points too
    leaves = flat.size - points.size
    differences = _differences(lambda v: np.asarray(compiled(v)[0]), np.asarray(flat))
    _assert_near(hessian[:leaves, :leaves], differences[:leaves, :leaves])


# ---------------------------------------------------------------------------- leaves and compilation


@every_kernel
def test_leaves_are_strong_inexact_arrays(name):
    for leaf in jax.tree.leaves(_build(name)):
        assert isinstance(leaf, jax.Array)
        assert jnp.issubdtype(leaf.dtype, jnp.inexact)
        assert not leaf.weak_type


def test_plain_numbers_as_parameters_of_a_custom_kernel():
    for parameters in ({"scale": 2.0, "rate": 1.0}, {"scale": 2, "rate": np.float32(1)}):
        for leaf in jax.tree.leaves(Custom(decay, parameters)):
            assert isinstance(leaf, jax.Array)
            assert jnp.issubdtype(leaf.dtype, jnp.inexact)
            assert not leaf.weak_type


def test_one_compilation_for_all_kinds_of_numbers():
    traces = 0

    @jax.jit
    def function(kernel, x):
        nonlocal traces
        traces += 1
        return kernel.gram(x)

    for number in (2.0, 2, np.float64(2), np.array(2), jnp.asarray(2.0), jnp.asarray(2)):
        gram = function(RBF(number) * number, X)
        np.testing.assert_allclose(gram, 2 * np.asarray(RBF(2.0).gram(X)), rtol=1e-14)
    assert traces == 1


# ---------------------------------------------------------------------------- memory


def _largest_arrays(kernel, x, z):
    """The size of the largest array in `gram`, `cross` and their derivatives."""

    def pulled_back(function, *arguments):
        value, pull = jax.vjp(function, *arguments)
        return value, pull(jnp.ones_like(value))

    def grams(kernel, x):
        return pulled_back(lambda k, a: k.gram(a), kernel, x)

    def crosses(kernel, x, z):
        return pulled_back(lambda k, a, b: k.cross(a, b), kernel, x, z)

    return max(largest_array(grams, kernel, x), largest_array(crosses, kernel, x, z))


@pytest.mark.parametrize("name", MATRIX_PRODUCTS)
def test_no_array_of_points_times_points_times_inputs(name):
    n, m, d = 7, 5, 11
    x, z = jnp.ones((n, d)), jnp.ones((m, d))
    # as many parameters as inputs where there was one for each
    kernel = jax.tree.map(lambda v: jnp.resize(v, d) if v.ndim else v, _build(name))
    assert _largest_arrays(kernel, x, z) < n * m * d
    # a kernel that does have such an array, to see that the count finds it
    assert _largest_arrays(Custom(cauchy), x, z) >= n * m * d
