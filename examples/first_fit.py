"""A first fit: a support vector machine, its support vectors, and how its test error depends on C.

python examples/first_fit.py
"""

import jax
import jax.numpy as jnp

import jaxsvm as jsvm

jax.config.update("jax_enable_x64", True)


def main() -> None:
    x, y = jsvm.datasets.twonorm(200, key=jax.random.key(0))
    x_test, y_test = jsvm.datasets.twonorm(2000, key=jax.random.key(1))

    kernel = jsvm.kernels.RBF(lengthscale=5.0) + jsvm.kernels.Constant(0.1)
    model = jsvm.KernelMachine(kernel, jsvm.losses.Hinge(C=1.0))
    fit = jsvm.fit(model, x, y)
    print(fit.message)
    print(f"support vectors: {int(fit.free.sum())} free, {int(fit.bound.sum())} at the bound")
    print(f"test error: {float(jnp.mean(fit.predict(x_test) != y_test)):.3f}")

    # the fit is differentiable: the slope of a smooth test loss in every hyperparameter
    def test_loss(model: jsvm.KernelMachine) -> jax.Array:
        margins = y_test * jsvm.fit(model, x, y).decision(x_test)
        return jnp.mean(jax.nn.softplus(-4 * margins))

    value, gradient = jax.value_and_grad(test_loss)(model)
    print(f"smooth test loss: {float(value):.4f}; its slope with respect to")
    for name, slope in zip(jsvm.parameters(model), jax.tree.leaves(gradient), strict=True):
        print(f"  ln {name:26s} {float(slope):+.4f}")

    # fits for nine values of C in one batch
    penalties = jnp.logspace(-2, 2, 9)

    def error(C: jax.Array) -> tuple[jax.Array, jax.Array]:
        fitted = jsvm.fit(jsvm.replace(model, {"loss.C": C}), x, y, throw=False)
        return jnp.mean(fitted.predict(x_test) != y_test), fitted.support.sum()

    errors, support = jax.vmap(error)(penalties)
    print("      C   error  support vectors")
    for row in zip(penalties, errors, support, strict=True):
        print("{:7.2f} {:7.3f} {:8d}".format(*(v.item() for v in row)))


if __name__ == "__main__":
    main()
