"""`fit` as users call it: conversions, errors, weights, groups, result codes, compilation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm import kernels, losses

X, Y = jsvm.datasets.twonorm(60, key=jax.random.key(1))
TARGETS = jnp.sin(X[:, 0]) + X[:, 1]
KERNEL = kernels.RBF(4.0) + kernels.Constant(0.1)
MODEL = jsvm.KernelMachine(KERNEL, losses.Hinge(0.5))
SVR = jsvm.KernelMachine(KERNEL, losses.EpsilonInsensitive(2.0, 0.2))


def test_a_fit_in_its_own_words():
    fitted = jsvm.fit(MODEL, X, Y)
    assert int(fitted.result) == jsvm.RESULTS.successful and "hold" in fitted.message
    np.testing.assert_allclose(fitted.decision(X), fitted.latent, atol=1e-12)
    np.testing.assert_array_equal(fitted.predict(X), np.sign(fitted.latent))
    assert fitted.stats.kkt_residual <= 1e-10 and abs(float(fitted.stats.duality_gap)) <= 1e-10
    # Gold and Sollich, below eq. 4: margins of non-support, marginal and bound examples
    margins, alpha = np.asarray(Y * fitted.latent), np.asarray(Y * fitted.dual)
    assert fitted.free.sum() > 3 and fitted.bound.sum() > 3 and (~fitted.support).sum() > 3
    np.testing.assert_allclose(margins[fitted.free], 1.0, atol=1e-10)
    assert np.all(margins[fitted.bound] <= 1 + 1e-10) and np.all(
        margins[~fitted.support] >= 1 - 1e-10
    )
    np.testing.assert_allclose(alpha[fitted.bound], 0.5, rtol=1e-14)
    assert np.all(alpha[~fitted.support] == 0)


def test_groups_of_a_regression():
    fitted = jsvm.fit(SVR, X, TARGETS)
    residuals = np.abs(TARGETS - fitted.latent)
    np.testing.assert_allclose(residuals[fitted.free], 0.2, atol=1e-9)
    assert np.all(residuals[~fitted.support] <= 0.2 + 1e-9)
    np.testing.assert_array_equal(fitted.predict(X), fitted.decision(X))


@pytest.mark.parametrize(
    "loss",
    [losses.Hinge(0.5), losses.SquaredHinge(2.0), losses.Logistic(), losses.LeastSquares(2.0)],
)
@pytest.mark.parametrize("offset", [False, True])
def test_a_weight_of_two_is_a_repeated_row_and_of_zero_an_absent_one(loss, offset):
    model = jsvm.KernelMachine(KERNEL, loss, offset=offset)
    weights = jnp.ones(60).at[:20].set(2.0).at[40:].set(0.0)
    weighted = jsvm.fit(model, X, Y, weights=weights)
    rows = np.concatenate([np.arange(20), np.arange(40)])
    repeated = jsvm.fit(model, X[rows], Y[rows])
    np.testing.assert_allclose(weighted.decision(X), repeated.decision(X), atol=1e-8)
    assert np.all(weighted.dual[40:] == 0)


def test_class_weights():
    by_class = jsvm.fit(MODEL, X, Y, class_weight={-1: 1.0, +1: 3.0})
    by_row = jsvm.fit(MODEL, X, Y, weights=jnp.where(Y > 0, 3.0, 1.0))
    np.testing.assert_array_equal(by_class.dual, by_row.dual)
    balanced = jsvm.fit(MODEL, X, Y, class_weight="balanced")
    share = np.mean(np.asarray(Y) > 0)
    np.testing.assert_allclose(balanced.weights, np.where(Y > 0, 0.5 / share, 0.5 / (1 - share)))
    with pytest.raises(ValueError, match="keys -1 and \\+1"):
        jsvm.fit(MODEL, X, Y, class_weight={0: 1.0, 1: 2.0})
    with pytest.raises(ValueError, match="balanced"):
        jsvm.fit(MODEL, X, Y, class_weight="equal")
    with pytest.raises(ValueError, match="classification loss"):
        jsvm.fit(SVR, X, TARGETS, class_weight="balanced")


def test_lists_and_integers_are_converted():
    x = [[0, 1], [1, 0], [2, 2], [3, 1]]
    fitted = jsvm.fit(MODEL, x, [1, -1, 1, -1])
    assert fitted.dual.dtype == jnp.float64 and fitted.x.dtype == jnp.float64
    np.testing.assert_array_equal(fitted.predict(x), [1, -1, 1, -1])


BAD = {
    "nan in x": (X.at[3, 2].set(jnp.nan), Y, "`x` holds 1 NaN or infinite value"),
    "infinity in x": (X.at[:2, 2].set(jnp.inf), Y, "`x` holds 2 NaN or infinite values"),
    "nan in y": (X, Y.at[0].set(jnp.nan), "`y` holds 1 NaN"),
    "labels 0 and 1": (X, (Y + 1) / 2, r"use `2 \* y - 1`"),
    "targets as labels": (X, TARGETS, "regression loss"),
    "one class": (X, jnp.ones(60), r"all labels are \+1: a classifier needs examples of both"),
    "lengths": (X, Y[:50], "`x` has 60 rows, but `y` has 50 entries"),
    "matrix y": (X, Y[:, None], "`y` must be a vector"),
    "vector x": (X[:, 0], Y, r"for a single input use `x\[:, None\]`"),
    "three axes": (X[None], Y, "must be a matrix"),
    "no examples": (X[:0], Y[:0], "`x` is empty"),
    "no inputs": (X[:, :0], Y, "`x` is empty"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_data(case):
    x, y, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        jsvm.fit(MODEL, x, y)


def test_other_bad_input():
    with pytest.raises(TypeError, match="`x` cannot be read as an array of numbers"):
        jsvm.fit(MODEL, [["a", "b"]], [1])
    with pytest.raises(TypeError, match="must be real"):
        jsvm.fit(MODEL, X + 1j, Y)
    with pytest.raises(TypeError, match="must be a KernelMachine"):
        jsvm.fit(KERNEL, X, Y)
    with pytest.raises(TypeError, match=r"kernels\.Custom"):
        jsvm.KernelMachine(lambda a, b: 1.0, losses.Hinge())
    with pytest.raises(TypeError, match="must be a jaxsvm loss"):
        jsvm.KernelMachine(KERNEL, "hinge")
    with pytest.raises(ValueError, match="`C` must be positive"):
        losses.Hinge(0.0)
    with pytest.raises(ValueError, match="must not be negative"):
        jsvm.fit(MODEL, X, Y, weights=-jnp.ones(60))
    with pytest.raises(ValueError, match="all zero"):
        jsvm.fit(MODEL, X, Y, weights=jnp.zeros(60))
    with pytest.raises(ValueError, match=r"`weights` must have shape \(60,\)"):
        jsvm.fit(MODEL, X, Y, weights=jnp.ones(3))
    with pytest.raises(ValueError, match="start from a fit on the same examples"):
        jsvm.fit(MODEL, X, Y, init=jnp.zeros(3))
    with pytest.raises(ValueError, match="fitted on 20 inputs, but `x` has 3"):
        jsvm.fit(MODEL, X, Y).decision(X[:, :3])


def test_an_iteration_limit_is_reported():
    with pytest.raises(jsvm.FitError, match=r"iteration limit.*max_iterations"):
        jsvm.fit(MODEL, X, Y, max_iterations=1)
    fitted = jsvm.fit(MODEL, X, Y, max_iterations=1, throw=False)
    assert int(fitted.result) == jsvm.RESULTS.iteration_limit
    assert 0 < fitted.stats.kkt_residual < np.inf and np.all(np.isfinite(fitted.dual))
    limited = jax.jit(lambda m: jsvm.fit(m, X, Y, max_iterations=1, throw=False).result)(MODEL)
    assert int(limited) == jsvm.RESULTS.iteration_limit


@pytest.mark.filterwarnings("ignore")
def test_a_failure_inside_jit_is_raised(capfd):
    with pytest.raises(Exception, match="iteration limit"):
        jax.jit(lambda m: jsvm.fit(m, X, Y, max_iterations=1).dual)(MODEL).block_until_ready()
    capfd.readouterr()  # the traceback that the runtime prints


def test_kernels_that_are_no_kernels():
    upside_down = kernels.Custom(lambda a, b: -jnp.exp(-jnp.sum((a - b) ** 2) / 20))
    far = kernels.Custom(lambda a, b: jnp.sqrt(jnp.sum((a - b) ** 2) + 1.0))
    skew = kernels.Custom(lambda a, b: jnp.exp(-jnp.sum((a - 2 * b) ** 2) / 50))
    for kernel in (upside_down, far, skew):
        model = jsvm.KernelMachine(kernel, losses.Hinge(10.0))
        with pytest.raises(jsvm.FitError, match="not positive semi-definite"):
            jsvm.fit(model, X, Y)
    for loss in (losses.Quadratic(1e-3), losses.Logistic(5.0)):
        y = Y if loss.is_classifier else TARGETS
        with pytest.raises(jsvm.FitError):
            jsvm.fit(jsvm.KernelMachine(far, loss), X, y)


def test_overflowing_hyperparameters_are_reported():
    model = jsvm.KernelMachine(KERNEL, losses.Hinge(1.0))
    wild = jax.tree.map(lambda leaf: leaf + 1e4, model)
    fitted = jsvm.fit(wild, X, Y, throw=False)
    assert int(fitted.result) == jsvm.RESULTS.nonfinite
    with pytest.raises(jsvm.FitError, match="not finite"):
        jsvm.fit(wild, X, Y)


def test_one_bad_member_of_a_batch_leaves_the_others_untouched():
    penalties = jnp.array([0.1, jnp.nan, 1.0, 10.0])
    models = jax.vmap(lambda C: jsvm.KernelMachine(KERNEL, losses.Hinge(C)))(penalties)
    batch = jax.vmap(lambda m: jsvm.fit(m, X, Y, throw=False))(models)
    np.testing.assert_array_equal(batch.result, [0, jsvm.RESULTS.nonfinite, 0, 0])
    for i in (0, 2, 3):
        alone = jsvm.fit(jsvm.KernelMachine(KERNEL, losses.Hinge(penalties[i])), X, Y)
        np.testing.assert_allclose(batch.dual[i], alone.dual, atol=1e-12)
    assert "not finite" in batch.message


def test_new_values_do_not_compile_again():
    traces = []

    @jax.jit
    def value(model, x, y):
        traces.append(None)
        return jsvm.fit(model, x, y, throw=False).dual

    for C in (0.5, 1.0, 2.0):
        value(jsvm.KernelMachine(kernels.RBF(2 * C) + 0.1, losses.Hinge(C)), X, Y)
    assert len(traces) == 1


def test_single_precision_says_so():
    exact = jsvm.fit(MODEL, X, Y)
    slopes = jax.grad(lambda m: jnp.sum(jsvm.fit(m, X, Y).latent ** 2))(MODEL)
    with jax.enable_x64(False):
        x, y = jnp.asarray(X, jnp.float32), jnp.asarray(Y, jnp.float32)
        model = jsvm.KernelMachine(kernels.RBF(4.0) + kernels.Constant(0.1), losses.Hinge(0.5))
        single = jsvm.fit(model, x, y)
        assert single.dual.dtype == jnp.float32
        np.testing.assert_allclose(single.latent, exact.latent, atol=1e-4)
        gradient = jax.grad(lambda m: jnp.sum(jsvm.fit(m, x, y).latent ** 2))(model)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(slopes), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


def test_every_code_has_a_message():
    for code in jsvm.RESULTS:
        assert len(code.message) > 20
    assert [c for c in jsvm.RESULTS if c.is_success] == [
        jsvm.RESULTS.successful,
        jsvm.RESULTS.local_optimum,
        jsvm.RESULTS.small_change,
        jsvm.RESULTS.stopped_early,
        jsvm.RESULTS.small_gradient,
        jsvm.RESULTS.settled,
        jsvm.RESULTS.small_gain,
    ]
