"""A kernel with a neural network inside, trained through the solver by a validation loss.

    python examples/neural_kernel.py

The classes are the inside and the outside of a ring, in two of ten inputs. To an RBF kernel most inputs are
noise; a small network learns which features matter. Each gradient of the validation loss is exact: it passes
through the solution of the support vector machine by implicit differentiation.
"""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import jaxsvm as jsvm

jax.config.update("jax_enable_x64", True)

Machine = jsvm.KernelMachine[jsvm.kernels.Sum, jsvm.losses.SquaredHinge]


def ring(n: int, *, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Ten inputs; the label says whether the first two lie within a circle."""
    x = jax.random.normal(key, (n, 10))
    return x, jnp.where(jnp.sum(x[:, :2] ** 2, axis=1) < 1.4, 1.0, -1.0)


def main(steps: int = 60) -> None:
    train_key, valid_key, test_key, network_key = jax.random.split(jax.random.key(0), 4)
    x, y = ring(120, key=train_key)
    x_valid, y_valid = ring(120, key=valid_key)
    x_test, y_test = ring(2000, key=test_key)

    network = eqx.nn.MLP(10, 3, width_size=16, depth=1, activation=jnp.tanh, key=network_key)
    kernel = jsvm.kernels.Transform(jsvm.kernels.RBF(1.0), network) + jsvm.kernels.Constant(1.0)
    model = jsvm.KernelMachine(kernel, jsvm.losses.SquaredHinge(C=3.0))
    plain = jsvm.KernelMachine(
        jsvm.kernels.RBF(3.0) + jsvm.kernels.Constant(1.0), jsvm.losses.SquaredHinge(3.0)
    )

    def error(model: jsvm.KernelMachine) -> float:
        return float(jnp.mean(jsvm.fit(model, x, y).predict(x_test) != y_test))

    def validation_loss(model: jsvm.KernelMachine) -> jax.Array:
        margins = y_valid * jsvm.fit(model, x, y).decision(x_valid)
        return jnp.mean(jax.nn.softplus(-3 * margins))

    optimizer: Any = optax.adam(0.03)  # the types of optax know no models, only nests of arrays

    @eqx.filter_jit
    def step(model: Machine, state: Any) -> tuple[Machine, Any, jax.Array]:
        value, gradient = jax.value_and_grad(validation_loss)(model)
        updates, state = optimizer.update(gradient, state, model)
        return cast(Machine, eqx.apply_updates(model, updates)), state, value

    print(f"plain RBF kernel: test error {error(plain):.3f}")
    print(f"initial network:  test error {error(model):.3f}")
    state = optimizer.init(model)
    for i in range(steps):
        model, state, value = step(model, state)
        if i % 10 == 0 or i == steps - 1:
            print(f"step {i:3d}: validation loss {float(value):.4f}")
    print(f"network trained:  test error {error(model):.3f}, C = {float(model.loss.C):.2f}")


if __name__ == "__main__":
    main()
