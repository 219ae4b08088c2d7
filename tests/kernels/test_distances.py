"""Correlations are accurate to the last digits, wherever the points lie."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm

ROWS, INPUTS = 60, 7  # more than four inputs: distances come from matrix products


def points(layout, dtype):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, INPUTS))
    match layout:
        case "far from the origin":
            x += 1e4
        case "one line of a wide space":  # neighbors many lengthscales from the center
            x = np.linspace(-1, 1, ROWS)[:, None] * np.linspace(20, 40, INPUTS)
        case "clusters":
            x = 1e-2 * x + 30 * rng.choice([-1.0, 0.0, 2.0], (ROWS, 1))
        case "an outlier":
            x[5] = 1e7
        case "a tenth of the points far away":
            x[::10] = 0.1 * x[::10] + 100
        case "nearly all points the same":
            x[:-5] = x[0]
            x[-5:] = 20 + 0.1 * x[-5:]
        case "mostly zeros":
            x = np.where(rng.random(x.shape) < 0.9, 0.0, 20 * x)
        case "neighbors in a huge space":
            x *= 1e3 if dtype == "float32" else 1e6
            x[1::2] = x[::2] + 0.1 * rng.normal(size=x[::2].shape)
    x[11] = x[3]
    return x.astype(dtype)


def exact_correlations(x1, x2, lengthscale):
    x1, x2, lengthscale = (np.asarray(a).astype(np.longdouble) for a in (x1, x2, lengthscale))
    squared = np.sum(((x1[:, None] - x2[None]) / lengthscale) ** 2, axis=2)
    return np.exp(-squared / 2)


LAYOUTS = [
    "around the origin",
    "far from the origin",
    "one line of a wide space",
    "clusters",
    "an outlier",
    "a tenth of the points far away",
    "nearly all points the same",
    "mostly zeros",
    "neighbors in a huge space",
]
# the grid of so few digits is too coarse for tight clusters and for outliers
LOOSE_IN_FLOAT32 = ("clusters", "a tenth of the points far away", "nearly all points the same")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_correlations_are_accurate_to_the_last_digits(layout, dtype):
    """An error of one product, relative to squared norms, would be up to a thousand times as large."""
    x = points(layout, dtype)
    lengthscale = np.linspace(0.7, 1.9, INPUTS).astype(dtype)
    kernel = jsvm.kernels.RBF(jnp.asarray(lengthscale))
    used = np.asarray(kernel.lengthscale)  # after the logarithm
    expected = exact_correlations(x, x, used)
    epsilon = np.finfo(dtype).eps
    allowed = 4 * epsilon
    if dtype == "float32" and layout in LOOSE_IN_FLOAT32:  # errors of one product
        allowed = 8 * epsilon * np.max(np.sum(((x - np.median(x, axis=0)) / used) ** 2, axis=1))
    gram = np.asarray(kernel.matrix(x, x, same=True))
    assert np.max(np.abs(gram - expected)) <= allowed
    assert gram[3, 11] == 1
    across = np.asarray(kernel.matrix(x[:9], x, same=False))
    assert np.max(np.abs(across - expected[:9])) <= allowed


def test_members_of_a_batch_choose_their_products_by_themselves():
    """One lengthscale asks for one product, the other for three."""
    x = points("one line of a wide space", "float64")
    lengthscales = jnp.array([0.5, 50.0])

    def gram(lengthscale):
        return jsvm.kernels.RBF(lengthscale).matrix(x, x, same=True)

    for together, lengthscale in zip(jax.vmap(gram)(lengthscales), lengthscales, strict=True):
        used = jsvm.kernels.RBF(lengthscale).lengthscale
        np.testing.assert_allclose(
            together, exact_correlations(x, x, used).astype(float), atol=1e-15
        )


@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_where_several_products_are_needed(mode):
    x = jnp.asarray(points("one line of a wide space", "float64")[:8])

    def total(log_lengthscale, x):
        kernel = jsvm.kernels.RBF(jnp.exp(log_lengthscale))
        return jnp.sum(jnp.cos(kernel.matrix(x, x, same=True)))

    at = jnp.log(jnp.linspace(3.0, 9.0, INPUTS))
    by_scale, by_point = mode(total, argnums=(0, 1))(at, x)
    step = 1e-5
    for a in range(INPUTS):
        change = step * jnp.eye(INPUTS)[a]
        slope = (total(at + change, x) - total(at - change, x)) / (2 * step)
        assert by_scale[a] == pytest.approx(float(slope), abs=1e-8)
        moved = x.at[2, a].add(step), x.at[2, a].add(-step)
        slope = (total(at, moved[0]) - total(at, moved[1])) / (2 * step)
        assert by_point[2, a] == pytest.approx(float(slope), abs=1e-8)


@pytest.mark.parametrize("shift", [0.0, 1e6])
@pytest.mark.parametrize("inputs", [1, 3])
def test_derivatives_of_few_inputs(inputs, shift):
    """Far from the origin, and beside a point so far away that squares overflow."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, inputs)) + shift
    weight = jnp.asarray(rng.normal(size=(12, 12)))
    scales = jnp.asarray(rng.uniform(0.5, 2.0, inputs))

    def value(scales, x):
        covariances = jsvm.kernels.RBF(scales).matrix(x, x, same=True)
        return jnp.sum(weight * covariances[:12, :12])

    found = jax.grad(value, (0, 1))(scales, jnp.asarray(x))
    difference, lengths, factors = (
        x[:, None, :] - x[None, :, :],
        np.asarray(scales),
        np.asarray(weight),
    )
    gram = np.exp(-np.sum((difference / lengths) ** 2, axis=2) / 2)
    by_scale = np.einsum("ij,ija->a", factors * gram, difference**2) / lengths**3
    by_point = -np.einsum("ij,ija->ia", (factors + factors.T) * gram, difference) / lengths**2
    np.testing.assert_allclose(found[0], by_scale, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found[1], by_point, rtol=1e-9, atol=1e-9)

    far = jnp.concatenate([jnp.asarray(x), jnp.full((1, inputs), 1e300)])
    beside = jax.grad(value, (0, 1))(scales, far)
    np.testing.assert_allclose(beside[0], found[0], rtol=1e-12)
    np.testing.assert_allclose(beside[1][:12], found[1], rtol=1e-12, atol=1e-12)
    assert np.all(beside[1][12] == 0)
