"""Derivatives of a fit: against central differences, forward and in reverse, first and second."""

from functools import partial

import grid
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from jax.flatten_util import ravel_pytree

import jaxsvm as jsvm
from jaxsvm import kernels, losses

N = 40
RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(N, 3)))
LABELS = jnp.asarray(np.where(RNG.normal(size=N) + np.asarray(X[:, 0]) > 0, 1.0, -1.0))
TARGETS = jnp.sin(X[:, 0]) + 0.3 * jnp.asarray(RNG.normal(size=N)) + 1.0
WEIGHTS = jnp.asarray(RNG.uniform(0.5, 2.0, size=N))
PROBE = jnp.asarray(RNG.normal(size=N))

KERNELS = {
    "rbf": kernels.RBF(jnp.array([1.0, 2.0, 1.5]), 1.3) + kernels.Constant(0.5),
    "composed": kernels.Matern32(1.2) * kernels.Polynomial(2, 1.0, 0.3) + kernels.White(0.05),
}

# to a part of the largest derivative, forward and in reverse, first and second
check = partial(grid.check_gradient, relative=1e-7, absolute=0.0, of_largest=1e-6, twice=True)


def probe(fitted):
    """A number that looks at everything a fit depends on."""
    return jnp.sum(jnp.sin(fitted.latent + PROBE)) + fitted.dual @ PROBE + fitted.offset


def settings():
    """Each loss with one kernel, half of them with an offset; the hinge with both."""
    both = (losses.Hinge,)
    for place, loss in enumerate(grid.LOSSES.values()):
        for number, (kernel, offset) in enumerate([("rbf", False), ("composed", True)]):
            if place % 2 == number or isinstance(loss, both):
                yield pytest.param(loss, kernel, offset, id=f"{type(loss).__name__}-{kernel}")


@pytest.mark.parametrize("loss, kernel, offset", list(settings()))
def test_hyperparameters(loss, kernel, offset):
    model = jsvm.KernelMachine(KERNELS[kernel], loss, offset=offset)
    y = LABELS if loss.is_classifier else TARGETS
    vector, unravel = ravel_pytree(model)
    check(lambda v: probe(jsvm.fit(unravel(v), X, y, throw=False, tolerance=1e-13)), vector)


@pytest.mark.parametrize("loss", [losses.Hinge(0.7), losses.SoftInsensitive(1.0, 0.2, 0.3)])
def test_data_and_weights(loss):
    model = jsvm.KernelMachine(KERNELS["rbf"], loss)
    y = LABELS if loss.is_classifier else TARGETS
    check(
        lambda x: probe(jsvm.fit(model, X.at[:9].set(x.reshape(9, 3)), y, throw=False)),
        X[:9].ravel(),
    )
    if loss.is_classifier:
        check(lambda w: probe(jsvm.fit(model, X, y, weights=w, throw=False)), WEIGHTS)
        return
    both = jnp.concatenate([TARGETS, WEIGHTS])
    check(lambda v: probe(jsvm.fit(model, X, v[:N], weights=v[N:], throw=False)), both)


def test_predictions_at_new_points():
    new = jnp.asarray(RNG.normal(size=(7, 3)))
    model = jsvm.KernelMachine(KERNELS["rbf"], losses.Hinge(0.7))
    vector, unravel = ravel_pytree(model)
    check(
        lambda v: jnp.sum(jnp.tanh(jsvm.fit(unravel(v), X, LABELS, throw=False).decision(new))),
        vector,
    )


def test_where_few_examples_are_free_of_many():
    """The systems are gathered into one of several sizes; each has the same derivative."""
    x, y = jsvm.datasets.twonorm(150, key=jax.random.key(0))
    kernel = kernels.RBF(4.0) + kernels.Constant(0.1)
    _, unravel = ravel_pytree(jsvm.KernelMachine(kernel, losses.Hinge(1.0)))

    @jax.jit
    @partial(jax.value_and_grad, has_aux=True)
    def run(v):
        fitted = jsvm.fit(unravel(v), x, y, throw=False)
        return jnp.sum(jnp.tanh(fitted.latent)), jnp.sum(fitted.free)

    free = []
    for C in (0.02, 0.3, 10.0):
        vector, _ = ravel_pytree(jsvm.KernelMachine(kernel, losses.Hinge(C)))
        (_, count), gradient = run(vector)
        free.append(int(count))
        expected = reference.central_difference(lambda v: run(v)[0][0], vector)
        np.testing.assert_allclose(gradient, expected, atol=1e-6 * np.abs(expected).max())
    assert free[0] < 20 and free[-1] > 40


def test_singular_gram_matrices_have_derivatives():
    """Duplicate marginal examples: the dual is not unique, but latent values and their change are."""
    x = jnp.concatenate([X, X[:20]])
    y = jnp.concatenate([LABELS, LABELS[:20]])
    model = jsvm.KernelMachine(KERNELS["rbf"], losses.Hinge(0.7))
    vector, unravel = ravel_pytree(model)

    def twice(v):
        return jnp.sum(jnp.sin(jsvm.fit(unravel(v), x, y, throw=False).latent[:N] + PROBE))

    def weighted(v):
        weights = jnp.where(jnp.arange(N) < 20, 2.0, 1.0)
        fitted = jsvm.fit(unravel(v), X, LABELS, weights=weights, throw=False)
        return jnp.sum(jnp.sin(fitted.latent + PROBE))

    np.testing.assert_allclose(jax.grad(twice)(vector), jax.grad(weighted)(vector), rtol=1e-7)


def test_at_a_change_of_the_active_set_the_derivative_is_one_sided():
    """One example of each class: its dual coefficient meets the bound at C = 1 / (K_11 - K_12)."""
    x, y = jnp.array([[0.0], [1.0]]), jnp.array([1.0, -1.0])
    kernel = kernels.RBF(1.0)
    critical = 1 / (1 - jnp.exp(-0.5))

    def dual(C):
        return jsvm.fit(jsvm.KernelMachine(kernel, losses.Hinge(C)), x, y, throw=False).dual[0]

    below, at, above = (float(jax.grad(dual)(critical * s)) for s in (0.99, 1.0, 1.01))
    assert below == pytest.approx(1.0) and above == pytest.approx(0.0, abs=1e-12)
    assert min(abs(at - below), abs(at - above)) < 1e-9


def test_vmapped_gradients_leave_a_bad_member_alone():
    penalties = jnp.array([0.5, jnp.nan, 2.0])

    def value(C):
        model = jsvm.KernelMachine(KERNELS["rbf"], losses.Hinge(C))
        return probe(jsvm.fit(model, X, LABELS, throw=False))

    batch = jax.jit(jax.vmap(jax.value_and_grad(value)))(penalties)
    for i in (0, 2):
        alone = jax.value_and_grad(value)(penalties[i])
        np.testing.assert_allclose([batch[0][i], batch[1][i]], alone, rtol=1e-10)
    assert np.isnan(batch[1][1])


def test_gradient_of_a_batch_that_gathers_its_free_examples():
    """Beyond 64 examples systems are reduced by a branch, which vmap and transposition must survive."""
    x, y = jsvm.datasets.twonorm(100, key=jax.random.key(0))
    kernel = jsvm.kernels.RBF(4.0) + jsvm.kernels.Constant(0.1)
    model = jsvm.KernelMachine(kernel, jsvm.losses.Hinge(1.0), offset=True)
    weights = jnp.ones((3, 100)).at[0, :5].set(0.0).at[1, 5:20].set(2.0)

    def one(model, weights):
        return jnp.sum(jsvm.fit(model, x, y, weights=weights, throw=False).latent ** 2)

    together = jax.jit(jax.grad(lambda m: jnp.sum(jax.vmap(lambda w: one(m, w))(weights))))(model)
    single = jax.jit(jax.grad(one))
    apart = jax.tree.map(lambda *leaves: sum(leaves), *(single(model, w) for w in weights))
    for got, wanted in zip(jax.tree.leaves(together), jax.tree.leaves(apart), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)
