"""Names, natural units, and frozen parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compilations import compilations

import jaxsvm as jsvm
from jaxsvm import _fit, kernels, losses

X, Y = jsvm.datasets.twonorm(30, key=jax.random.key(0))


def model():
    kernel = kernels.RBF(jnp.full(20, 4.0), 1.5) + kernels.Constant(0.1)
    return jsvm.KernelMachine(kernel, losses.SoftInsensitive(2.0, 0.3, 0.4))


def test_natural_units_in_and_out():
    machine = model()
    values = jsvm.parameters(machine)
    assert list(values) == [
        "kernel.left.lengthscale",
        "kernel.left.variance",
        "kernel.right.variance",
        "loss.C",
        "loss.epsilon",
        "loss.beta",
    ]
    np.testing.assert_allclose(values["loss.beta"], 0.4, rtol=1e-12)
    np.testing.assert_allclose(values["kernel.left.lengthscale"], 4.0, rtol=1e-12)
    np.testing.assert_allclose(machine.loss.epsilon, 0.3, rtol=1e-12)
    flips = jsvm.parameters(losses.FlipNoise(0.1, 2.0))
    np.testing.assert_allclose(
        [flips["flip_rate"], flips["noise_variance"]], [0.1, 2.0], rtol=1e-12
    )


def test_replace_sets_by_name():
    machine = jsvm.replace(
        model(), {"loss.C": 7.0, "kernel.left.lengthscale": np.arange(1.0, 21.0)}
    )
    np.testing.assert_allclose(machine.loss.C, 7.0)
    np.testing.assert_allclose(machine.kernel.left.lengthscale, np.arange(1.0, 21.0))
    np.testing.assert_allclose(machine.loss.beta, 0.4)


def test_names_that_are_not_there():
    with pytest.raises(
        ValueError, match=r"no parameter `loss\.D`; it has: kernel\.left\.lengthscale"
    ):
        jsvm.replace(model(), {"loss.D": 1.0})
    with pytest.raises(ValueError, match="`kernel` names several parameters: "):
        jsvm.replace(model(), {"kernel": 1.0})
    with pytest.raises(ValueError, match="has shape"):
        jsvm.replace(model(), {"kernel.left.lengthscale": 1.0})
    with pytest.raises(ValueError, match="positive"):
        jsvm.replace(model(), {"loss.C": -1.0})
    with pytest.raises(ValueError, match="no parameter"):
        jsvm.freeze(model(), "kernel.middle")


def test_frozen_parameters_are_no_leaves():
    machine = jsvm.freeze(model(), "kernel.left", "loss.beta")
    assert jsvm.frozen(machine) == ("kernel.left.lengthscale", "kernel.left.variance", "loss.beta")
    assert len(jax.tree.leaves(machine)) == 3
    np.testing.assert_allclose(machine.loss.beta, 0.4)
    np.testing.assert_allclose(jsvm.parameters(machine)["kernel.left.variance"], 1.5)
    free = jsvm.unfreeze(machine, "loss.beta")
    assert jsvm.frozen(free) == ("kernel.left.lengthscale", "kernel.left.variance")
    assert jax.tree.structure(jsvm.unfreeze(machine)) == jax.tree.structure(model())
    moved = jsvm.replace(machine, {"loss.beta": 0.2})
    assert "loss.beta" in jsvm.frozen(moved)
    np.testing.assert_allclose(moved.loss.beta, 0.2)


def test_gradients_and_optimizers_pass_frozen_parameters_by():
    machine = jsvm.freeze(model(), "kernel.right.variance", "loss.C")

    def value(m):
        return jnp.sum(jsvm.fit(m, X, Y, throw=False).latent ** 2)

    gradient = jax.grad(value)(machine)
    full = jax.grad(value)(model())
    np.testing.assert_allclose(gradient.loss.log_epsilon, full.loss.log_epsilon, rtol=1e-10)
    optimizer = optax.adamw(0.1)  # its weight decay would move a parameter whose gradient is zero
    state = optimizer.init(machine)
    for _ in range(2):
        updates, state = optimizer.update(jax.grad(value)(machine), state, machine)
        machine = optax.apply_updates(machine, updates)
    np.testing.assert_allclose(machine.loss.C, 2.0, rtol=1e-14)
    np.testing.assert_allclose(machine.kernel.right.variance, 0.1, rtol=1e-14)
    assert abs(float(machine.loss.epsilon) - 0.3) > 1e-3


def test_fits_at_many_frozen_values_share_one_compilation(keep_programs):
    before = compilations(_fit._fit)
    for C in (1.0, 2.0, 3.0):
        machine = jsvm.freeze(jsvm.replace(model(), {"loss.C": C}), "loss.C")
        fitted = jsvm.fit(machine, X, Y)
        assert jsvm.frozen(fitted.model) == ("loss.C",)
    assert compilations(_fit._fit) - before <= 1


def test_a_traced_value_cannot_be_frozen():
    with pytest.raises(ValueError, match="freeze before jit"):
        jax.jit(lambda m: jsvm.freeze(m, "loss.C"))(model())


def test_parameters_inside_a_custom_kernel():
    kernel = kernels.Custom(
        lambda p, a, b: p["scale"] * jnp.exp(-jnp.sum((a - b) ** 2) * p["rate"]),
        {"scale": 2, "rate": 0.1},
    )
    machine = jsvm.KernelMachine(kernel, losses.Hinge(1.0))
    names = jsvm.parameters(machine)
    assert set(names) == {
        "kernel.function.parameters.rate",
        "kernel.function.parameters.scale",
        "loss.C",
    }
    frozen = jsvm.freeze(machine, "kernel.function.parameters.rate")
    assert len(jax.tree.leaves(frozen)) == 2
    np.testing.assert_allclose(frozen.kernel.gram(X), machine.kernel.gram(X), rtol=1e-14)
