"""Newton's method on hard problems: slow progress, walls of light examples, margins lost to rounding."""

import campaign
import jax
import numpy as np
import pytest

import jaxsvm as jsvm


def test_slow_progress_is_not_a_stall():
    """Nearly as few labels of a kind as flips explain: each step leaves nine tenths of the residual."""
    problems = campaign.random_problems("FlipNoise", True, (13, 2), 71, 1, "float64")
    x, y, weights = problems.x[19], problems.y[19], problems.weights[19]
    parameters = {name: a[19] for name, a in problems.parameters.items()}
    kernel = jsvm.kernels.RBF(problems.lengthscale[19], problems.variance[19])
    model = jsvm.KernelMachine(kernel, jsvm.losses.FlipNoise(**parameters), offset=True)
    fitted = jsvm.fit(model, x, y, weights=weights)
    assert int(fitted.result) == jsvm.RESULTS.local_optimum
    slopes = campaign.SLOPE["FlipNoise"](y, np.asarray(fitted.latent), **parameters)
    assert abs(np.sum(slopes)) <= 1e-9 * np.sum(np.abs(slopes))


@pytest.mark.parametrize("seed", [3, 4])
def test_walls_of_light_examples_do_not_stop_the_fit(seed):
    """Weights over sixteen orders of magnitude: Newton's method alone crawls along the lightest walls."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, 2))
    y = np.sign(x[:, 0] + rng.normal(size=40))
    weights = 10 ** rng.uniform(-8, 8, 40)
    model = jsvm.KernelMachine(jsvm.kernels.RBF(10.0, 1e4), jsvm.losses.Trigonometric())
    fitted = jsvm.fit(model, x, y, weights=weights)
    known = ("Trigonometric", False, x, y, weights, 10.0, 1e4, {})
    gap = campaign.relative_gap(*known, np.asarray(fitted.dual), 0.0, "float64")
    assert int(fitted.result) == jsvm.RESULTS.successful
    assert gap <= 1e-6


@pytest.mark.parametrize("variance", [200.0, 1e4])
def test_a_margin_within_a_rounding_error_counts_as_steep(variance):
    """All margins round to one in float32, where the curvature jumps from a large value to zero."""
    x = 100 * np.arange(40, dtype="float32")[:, None]
    y = np.random.default_rng(0).choice([-1.0, 1.0], 40).astype("float32")
    weights = np.full(40, 8e7, "float32")
    with jax.enable_x64(False):
        model = jsvm.KernelMachine(jsvm.kernels.RBF(1.0, variance), jsvm.losses.Trigonometric())
        fitted = jsvm.fit(model, x, y, weights=weights)
    assert int(fitted.result) == jsvm.RESULTS.successful
    np.testing.assert_allclose(fitted.dual, y / variance, rtol=1e-5)


def test_float32_is_not_asked_for_less_than_its_rounding_errors():
    problems = campaign.random_problems("FlipNoise", True, (13, 2), 35, 1, "float32")
    x, y, weights = (a[20].astype("float32") for a in (problems.x, problems.y, problems.weights))
    with jax.enable_x64(False):
        parameters = {name: np.float32(a[20]) for name, a in problems.parameters.items()}
        kernel = jsvm.kernels.RBF(
            np.float32(problems.lengthscale[20]), np.float32(problems.variance[20])
        )
        model = jsvm.KernelMachine(kernel, jsvm.losses.FlipNoise(**parameters), offset=True)
        fitted = jsvm.fit(model, x, y, weights=weights)
    assert int(fitted.result) == jsvm.RESULTS.local_optimum
    assert int(fitted.stats.iterations) < 20
