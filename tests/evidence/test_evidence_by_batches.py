"""The gradient of the evidence and its ascent by batches, against chains that see all examples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm.sampling import SGLD, SamplingWarning

LOW = jsvm.RandomFourier(12)  # loses no variance


def examples(loss):
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 2))
    y = np.where(np.sin(2 * x[:, 0]) + x[:, 1] + 0.7 * random.normal(size=300) > 0, 1.0, -1.0)
    return jsvm.KernelMachine(jsvm.kernels.RBF(jnp.array([1.0, 2.0]), 1.5), loss), x, y


def numbers(model):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model)])


@pytest.mark.parametrize("loss", [jsvm.losses.Hinge(1.0), jsvm.losses.Logistic(2.0)])
def test_batches_agree_with_all_examples(loss):
    model, x, y = examples(loss)
    options = {"key": jax.random.key(1), "approximation": LOW, "route": "fisher", "chains": 16}
    whole = jsvm.evidence_gradient(model, x, y, **options, draws=500)
    parts = jsvm.evidence_gradient(model, x, y, **options, draws=500, method=SGLD(60))
    errors = numbers(whole.standard_error), numbers(parts.standard_error)
    difference = numbers(parts.gradient) - numbers(whole.gradient)
    assert np.all(np.abs(difference) < 4 * np.hypot(*errors))
    assert np.all(errors[1] < 3 * errors[0])
    noise = parts.diagnostics.batch_noise
    assert noise is not None and 0 <= float(noise) < 0.3


def test_what_batches_cannot_do_is_refused():
    model, x, y = examples(jsvm.losses.Trigonometric())
    options = {"key": jax.random.key(1), "approximation": LOW, "route": "fisher"}
    with pytest.raises(ValueError, match="a loss with a wall"):
        jsvm.evidence_gradient(model, x, y, **options, method=SGLD(60))
    model = examples(jsvm.losses.Hinge(1.0))[0]
    with pytest.raises(ValueError, match="not smaller than the data"):
        jsvm.evidence_gradient(model, x, y, **options, method=SGLD(300))
    with pytest.raises(ValueError, match="not smaller than the data"):
        jsvm.evidence_ascent(model, x, y, key=jax.random.key(1), method=SGLD(300))


def test_batches_that_are_too_small_are_reported():
    model, x, y = examples(jsvm.losses.Hinge(30.0))
    options = {"approximation": LOW, "route": "fisher", "chains": 4, "warmup": 40, "draws": 40}
    with pytest.warns(SamplingWarning, match="batches supply"):
        jsvm.evidence_gradient(
            model, x, y, key=jax.random.key(1), **options, method=SGLD(3, step_size=0.5)
        )


def test_an_ascent_by_batches():
    model, x, y = examples(jsvm.losses.Logistic(2.0))
    options = {"approximation": LOW, "max_steps": 3, "progress": False, "throw": False}
    whole = jsvm.evidence_ascent(model, x, y, key=jax.random.key(1), route="fisher", **options)
    parts = jsvm.evidence_ascent(
        model, x, y, key=jax.random.key(1), method=SGLD(60), route="fisher", **options
    )
    np.testing.assert_allclose(numbers(parts.model), numbers(whole.model), atol=0.05)
    assert parts.history.info["batch_noise"].shape == (1, 3)
    assert not parts.problems
