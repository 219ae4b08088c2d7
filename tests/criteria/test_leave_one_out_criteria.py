"""Span, linear response, leave-one-out and cross-validation, against literal retraining."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_criteria as reference
from jax.flatten_util import ravel_pytree

import jaxsvm as jsvm
from jaxsvm import kernels, losses
from jaxsvm._fit import fit_gram
from jaxsvm.criteria import (
    PRESS,
    CrossValidation,
    Data,
    JaakkolaHaussler,
    LeaveOneOut,
    LinearResponse,
    Span,
    linear_response,
    scores,
)
from jaxsvm.gram import DenseGram, exact_gram
from jaxsvm.solvers import Start

N = 40
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
Y = np.where(0.7 * RNG.normal(size=N) + X[:, 0] > 0, 1.0, -1.0)
TARGETS = np.sin(X[:, 0]) + 0.3 * RNG.normal(size=N)
PROBE = RNG.normal(size=N)
# light examples change little when they leave, so that the others stay in their groups
WEIGHTS = np.where(np.arange(N) % 4 == 0, 0.02, np.random.default_rng(2).uniform(0.8, 1.5, size=N))
KERNEL = kernels.RBF(jnp.array([1.0, 2.0, 1.5]), 1.3) + kernels.Constant(0.5)
GRAM = np.asarray(KERNEL.matrix(jnp.asarray(X), jnp.asarray(X), same=True))
C = 3.0
MACHINES = [(losses.Hinge, False), (losses.Hinge, True)]
MACHINES += [(losses.SquaredHinge, False), (losses.SquaredHinge, True)]


def machine(loss, offset=False):
    return jsvm.KernelMachine(KERNEL, loss(C), offset=offset)


def probe(y, f):
    """A score with a different value for each example."""
    return jnp.sin(2 * f + jnp.asarray(PROBE, f.dtype))


@pytest.fixture(scope="module")
def retrained():
    """The literal answers, each computed once."""
    known = {}

    def answer(loss, offset, weights=WEIGHTS):
        key = (loss, offset, weights.sum())
        if key not in known:
            squared = loss is losses.SquaredHinge
            known[key] = reference.leave_one_out(GRAM, Y, C, squared, offset, weights)
        return known[key]

    return answer


@pytest.mark.parametrize("loss, offset", [(losses.Hinge, False), (losses.SquaredHinge, True)])
def test_leave_one_out_is_retraining(loss, offset, retrained):
    latent, _ = retrained(loss, offset)
    value = LeaveOneOut(probe)(machine(loss, offset), X, Y, weights=WEIGHTS)
    expected = np.average(np.sin(2 * latent + PROBE), weights=WEIGHTS)
    np.testing.assert_allclose(value, expected, rtol=1e-7)


def test_leave_one_out_counts_errors(retrained):
    latent, _ = retrained(losses.Hinge, False, np.ones(N))
    expected = np.mean(Y * latent < 0)
    assert 0 < expected < 0.5
    model = machine(losses.Hinge)
    assert LeaveOneOut()(model, X, Y) == pytest.approx(expected)
    assert LeaveOneOut(batch_size=20)(model, X, Y) == pytest.approx(expected)


@pytest.mark.parametrize("loss, offset", MACHINES)
def test_linear_response_is_retraining_where_the_groups_stay(loss, offset, retrained):
    expected, unchanged = retrained(loss, offset)
    fitted = jsvm.fit(machine(loss, offset), X, Y, weights=WEIGHTS)
    left_out = np.asarray(jax.jit(linear_response)(DenseGram(jnp.asarray(GRAM)), fitted))
    groups = np.asarray(fitted.group)
    for group in (0, 1, 2) if loss is losses.Hinge else (0, 1):
        chosen = unchanged & (groups == group)
        assert chosen.sum() >= 2, f"no example of group {group} to compare"
        np.testing.assert_allclose(left_out[chosen], expected[chosen], atol=1e-8)
    changed = unchanged & (groups > 0)
    assert np.abs(left_out - np.asarray(fitted.latent))[changed].max() > 1e-3


def test_linear_response_counts_as_retraining_does():
    """Over problems of all kinds it is about one example off, where the bound is off by ten."""
    criteria = LeaveOneOut(), LinearResponse(), JaakkolaHaussler()
    counts = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(N, 3))
        y = np.where(rng.uniform(0.1, 1) * rng.normal(size=N) + x[:, 0] > 0, 1.0, -1.0)
        kernel = kernels.RBF(jnp.full(3, rng.uniform(0.5, 1.5)), 1.0) + kernels.Constant(0.3)
        model = jsvm.KernelMachine(kernel, losses.Hinge(10 ** rng.uniform(-0.5, 1)))
        counts.append([round(N * float(c(model, x, y))) for c in criteria])
    exact, approximate, bound = np.array(counts).T
    assert exact.sum() > 60
    assert np.all(bound >= exact)
    difference = np.abs(approximate - exact)
    assert np.median(difference) <= 1 and difference.mean() <= 1.5 and difference.max() <= 3
    assert difference.mean() < np.mean(bound - exact) / 5


@pytest.mark.parametrize("offset", [False, True])
def test_linear_response_of_singular_matrices(offset):
    """Repeated rows and a kernel of low rank: no number overflows, and a twin steps in."""
    x = np.concatenate([X[:20], X[:20]])
    y = np.concatenate([Y[:20], Y[:20]])
    for kernel, C in ((KERNEL, 100.0), (kernels.Linear() + kernels.Constant(0.5), 0.1)):
        model = jsvm.KernelMachine(kernel, losses.Hinge(C), offset=offset)
        fitted = jsvm.fit(model, x, y)
        gram = exact_gram(kernel, fitted.x)
        left_out = np.asarray(linear_response(gram, fitted))
        twins_free = np.asarray(fitted.free[:20] & fitted.free[20:])
        if C == 100.0:
            assert twins_free.any()
        twins_free = np.tile(twins_free, 2)
        np.testing.assert_allclose(
            left_out[twins_free], np.asarray(fitted.latent)[twins_free], atol=1e-9
        )
        assert np.all(y * (np.asarray(fitted.latent) - left_out) > -1e-9)


def test_linear_response_of_an_offset_that_nothing_free_determines():
    """All duals at their bounds: leaving out an example changes neither the offset nor other duals."""
    model = jsvm.KernelMachine(KERNEL, losses.Hinge(0.01), offset=True)
    labels = np.tile([1.0, -1.0], N // 2)
    fitted = jsvm.fit(model, X, labels)
    assert not fitted.free.any()
    expected = np.asarray(fitted.latent) - np.asarray(fitted.dual) * np.diag(GRAM)
    np.testing.assert_allclose(
        linear_response(DenseGram(jnp.asarray(GRAM)), fitted), expected, atol=1e-12
    )


@pytest.mark.parametrize("offset", [False, True])
def test_linear_response_of_least_squares_is_exact(offset):
    model = machine(losses.LeastSquares, offset)
    value = LinearResponse("squared")(model, X, Y)
    np.testing.assert_allclose(value, 2 * PRESS()(model, X, Y) / N, rtol=1e-10)


@pytest.mark.parametrize("offset", [False, True])
def test_span(offset):
    fitted = jsvm.fit(machine(losses.SquaredHinge, offset), X, Y, weights=WEIGHTS)
    alpha, gram = Y * np.asarray(fitted.dual), DenseGram(jnp.asarray(GRAM))
    assert (alpha == 0).any()
    for c1, c2, eta in ((5.0, 0.0, 1.0), (2.0, 0.5, 1e-2)):
        expected = reference.smoothed_span_estimate(GRAM, alpha, C, c1, c2, eta, offset, WEIGHTS)
        value = Span(c1=c1, c2=c2, eta=eta).of_fit(gram, fitted)
        np.testing.assert_allclose(value, expected, rtol=1e-8)
    expected = reference.raw_span_estimate(GRAM, alpha, C, offset, WEIGHTS)
    assert 0 < expected < 0.5
    assert Span(smoothed=False).of_fit(gram, fitted) == pytest.approx(expected)


def test_smoothed_span_is_continuous_where_a_support_vector_is_lost():
    """Eq. 12 jumps there, but its smoothed form must not: check the steps along a fine path."""
    vector, unravel = ravel_pytree(machine(losses.SquaredHinge))
    path = jnp.linspace(0, 1.0, 201)[:, None] + vector[None, :]

    @jax.jit
    @jax.vmap
    def along(v):
        support = jsvm.fit(unravel(v), X, Y, throw=False).support
        return Span()(unravel(v), X, Y, throw=False), jnp.sum(support)

    values, support = map(np.asarray, along(path))
    assert np.sum(np.diff(support) != 0) >= 3
    steps = np.abs(np.diff(values))
    assert steps.max() < 5 * np.median(steps) + 1e-4


@pytest.mark.parametrize("loss, offset", [(losses.Hinge, True), (losses.SquaredHinge, False)])
def test_cross_validation_is_training_on_subsets(loss, offset):
    squared = loss is losses.SquaredHinge
    fold = reference.stratified_folds(Y, 5)
    latent = reference.cross_validation(GRAM, Y, C, squared, offset, WEIGHTS, fold)
    expected = np.average(np.sin(2 * latent + PROBE), weights=WEIGHTS)
    model = machine(loss, offset)
    value = CrossValidation(5, probe)(model, X, Y, weights=WEIGHTS)
    np.testing.assert_allclose(value, expected, rtol=1e-8)
    given = CrossValidation(assignment=10 * fold - 3, score=probe)
    np.testing.assert_allclose(given(model, X, Y, weights=WEIGHTS), expected, rtol=1e-8)


def test_cross_validation_of_a_regression():
    model = jsvm.KernelMachine(KERNEL, losses.EpsilonInsensitive(C, 0.1), offset=True)
    fold = np.arange(N) % 4
    latent = reference.regression_cross_validation(GRAM, TARGETS, C, 0.1, fold)
    value = CrossValidation(4, "squared")(model, X, TARGETS)
    # libsvm keeps its kernel in single precision
    np.testing.assert_allclose(value, np.mean((TARGETS - latent) ** 2), rtol=2e-6)


def test_folds_are_stratified():
    ones = jnp.ones(N)
    plain = CrossValidation(5)._fold(jnp.asarray(Y), ones, True)
    np.testing.assert_array_equal(plain, reference.stratified_folds(Y, 5))
    shuffled = CrossValidation(5, key=jax.random.key(3))._fold(jnp.asarray(Y), ones, True)
    assert not np.array_equal(plain, shuffled)
    for fold in (plain, shuffled):
        for label in (1, -1):
            sizes = np.bincount(np.asarray(fold)[label == Y], minlength=5)
            assert sizes.max() - sizes.min() <= 1
    # absent examples take no place in a fold
    present = np.arange(N) % 4 > 0
    fold = CrossValidation(5)._fold(jnp.asarray(Y), jnp.asarray(1.0 * present), True)
    expected = reference.stratified_folds(Y[present], 5)
    np.testing.assert_array_equal(np.asarray(fold)[present], expected)


def test_shuffled_cross_validation_and_its_memory():
    model, ones = machine(losses.Hinge), jnp.ones(N)
    criterion = CrossValidation(5, "hinge", key=jax.random.key(3))
    fold = np.asarray(criterion._fold(jnp.asarray(Y), ones, True))
    latent = reference.cross_validation(GRAM, Y, C, False, False, np.ones(N), fold)
    expected = np.mean(np.maximum(1 - Y * latent, 0))
    np.testing.assert_allclose(criterion(model, X, Y), expected, rtol=1e-8)

    data = Data(X, jnp.asarray(Y), ones)
    evaluate = jax.jit(lambda m, memory: criterion.evaluate(m, data, memory))
    zeros = Start(jnp.zeros((5, N)), jnp.zeros(5))
    cold = evaluate(model, zeros)
    warm = evaluate(model, cold.memory)
    assert cold.memory.dual.shape == (5, N)
    np.testing.assert_allclose([cold.value, warm.value], expected, rtol=1e-8)


def check_derivatives(function, vector, offset, forward):
    """Reverse and forward derivatives of a vector of criteria, against central differences."""
    rng = np.random.default_rng(1)
    direction = jnp.asarray(rng.normal(size=vector.shape))

    @jax.jit
    def everything(v):
        values, pull = jax.vjp(function, v)
        rows = jax.vmap(pull)(jnp.eye(values.shape[0]))[0]
        return values, rows, jax.jvp(function, (v,), (direction,))[1] if forward else None

    _, reverse, change = everything(vector)
    step = 1e-5
    plus, minus = (np.asarray(everything(vector + s * direction)[0]) for s in (step, -step))
    expected = (plus - minus) / (2 * step)
    assert np.abs(expected).min() > 1e-4  # a derivative of zero proves nothing
    np.testing.assert_allclose(reverse @ direction, expected, rtol=1e-5)
    if forward:
        np.testing.assert_allclose(change, reverse @ direction, rtol=1e-8)
    # all hyperparameters matter, but for the variance of a constant beside a free offset
    matter = np.array([True, True, True, True, not offset, True])
    assert np.array_equal(np.abs(reverse) > 1e-8, np.tile(matter, (len(reverse), 1)))


@pytest.mark.parametrize("loss, offset", MACHINES)
def test_gradients(loss, offset):
    vector, unravel = ravel_pytree(machine(loss, offset))
    x, y, weights = jnp.asarray(X), jnp.asarray(Y), jnp.asarray(WEIGHTS)
    of_fit = [LinearResponse("smooth"), LinearResponse(probe)]
    if loss is losses.SquaredHinge:
        of_fit += [Span(), Span(c1=2.0, c2=0.3, eta=1e-3)]

    def values(v):
        model = unravel(v)
        gram = exact_gram(model.kernel, x)
        fitted = fit_gram(model, gram, x, y, weights)
        return jnp.stack([criterion.of_fit(gram, fitted) for criterion in of_fit])

    check_derivatives(values, vector, offset, forward=offset)


@pytest.mark.parametrize("loss, offset", [(losses.Hinge, False), (losses.SquaredHinge, True)])
def test_gradients_by_retraining(loss, offset):
    vector, unravel = ravel_pytree(machine(loss, offset))
    criteria = LeaveOneOut("smooth"), CrossValidation(5, probe)

    def values(v):
        return jnp.stack([c(unravel(v), X, Y, weights=WEIGHTS, throw=False) for c in criteria])

    check_derivatives(values, vector, offset, forward=False)


def test_second_derivatives():
    """Second derivatives of criteria that have their own rules; those of a fit are tested elsewhere."""
    fitted = jsvm.fit(machine(losses.SquaredHinge, True), X, Y)
    change = jnp.asarray(0.1 * GRAM * np.outer(PROBE, PROBE))

    @jax.jit
    def slopes(t):
        def value(criterion):
            def score(s):
                return criterion.of_fit(DenseGram(jnp.asarray(GRAM) + s * change), fitted)

            return jax.grad(score)

        return jnp.stack([value(c)(t) for c in (Span(), LinearResponse("smooth"))])

    second = jax.jit(jax.jacfwd(slopes))(0.0)
    expected = (slopes(1e-4) - slopes(-1e-4)) / 2e-4
    assert np.abs(expected).min() > 1e-5
    np.testing.assert_allclose(second, expected, rtol=1e-4)


def test_batches_of_models():
    criteria = Span(), LeaveOneOut(probe)
    models = [
        jsvm.KernelMachine(
            kernels.RBF(jnp.full(3, scale), 1.0) + kernels.Constant(0.5), losses.SquaredHinge(c)
        )
        for scale, c in ((0.7, 3.0), (2.0, 0.3))
    ]
    stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
    batch = jax.jit(jax.vmap(lambda m: jnp.stack([c(m, X, Y, throw=False) for c in criteria])))
    expected = [[c(model, X, Y) for c in criteria] for model in models]
    np.testing.assert_allclose(batch(stack), expected, rtol=1e-10)


def test_one_compilation_for_all_hyperparameters():
    traces = []

    def score(y, f):
        traces.append(None)
        return scores.hinge(y, f)

    criterion = LinearResponse(score)
    values = [criterion(machine(losses.Hinge), X, Y)]
    values += [criterion(jsvm.KernelMachine(KERNEL, losses.Hinge(c)), X, Y) for c in (0.5, 2.0)]
    assert len(traces) == 1
    assert len({float(v) for v in values}) == 3


def test_float32():
    """Against the same functions of fits in double precision."""

    def values():
        kernel = kernels.RBF(jnp.array([1.0, 2.0, 1.5]), 1.3) + kernels.Constant(0.5)
        answers = []
        for loss, criterion in (
            (losses.SquaredHinge, Span()),
            (losses.Hinge, LinearResponse(probe)),
        ):
            fitted = jsvm.fit(jsvm.KernelMachine(kernel, loss(C)), X, Y, weights=WEIGHTS)
            gram = DenseGram(jnp.asarray(GRAM, fitted.dual.dtype))
            answers.append(criterion.of_fit(gram, fitted))
        return answers

    with jax.enable_x64(False):
        single = values()
        assert all(value.dtype == jnp.float32 for value in single)
        single = [float(value) for value in single]
    np.testing.assert_allclose(single, [float(value) for value in values()], rtol=2e-4)


def test_errors():
    hinge, squared = machine(losses.Hinge), machine(losses.SquaredHinge)
    regression = jsvm.KernelMachine(KERNEL, losses.EpsilonInsensitive(1.0, 0.1))
    smooth = jsvm.KernelMachine(KERNEL, losses.Logistic(1.0))
    with pytest.raises(ValueError, match=r"Span needs the loss SquaredHinge.*LinearResponse"):
        Span()(hinge, X, Y)
    with pytest.raises(ValueError, match=r"LinearResponse needs the loss.*Logistic.*LeaveOneOut"):
        LinearResponse()(smooth, X, Y)
    for criterion in (LinearResponse(), LeaveOneOut(), CrossValidation()):
        with pytest.raises(ValueError, match="is for labels"):
            criterion(regression, X, TARGETS)
    for kind in (LinearResponse, LeaveOneOut, CrossValidation):
        with pytest.raises(ValueError, match="must be one of error, hinge"):
            kind(score="accuracy")
    for arguments in ({"c1": 0.0}, {"eta": 0.0}, {"eta": -1.0}):
        with pytest.raises(ValueError, match="must be positive"):
            Span(**arguments)
    with pytest.raises(ValueError, match="batch_size"):
        LeaveOneOut(batch_size=0)
    with pytest.raises(ValueError, match="at least two examples"):
        LeaveOneOut("squared")(regression, X[:1], TARGETS[:1])
    lonely = np.where(np.arange(N) == 3, 1.0, -1.0)
    with pytest.raises(ValueError, match="one class has a single example"):
        LeaveOneOut()(machine(losses.Hinge, True), X, lonely)
    with pytest.raises(ValueError, match="`folds` must be an integer of at least 2"):
        CrossValidation(1)
    with pytest.raises(ValueError, match="at least two folds"):
        CrossValidation(assignment=np.zeros(N, int))
    with pytest.raises(ValueError, match="vector of integers"):
        CrossValidation(assignment=np.linspace(0, 1, N))
    with pytest.raises(ValueError, match="pass only one of them"):
        CrossValidation(assignment=np.arange(N) % 3, key=jax.random.key(0))
    with pytest.raises(ValueError, match="41 folds for only 40 examples"):
        CrossValidation(41)(squared, X, Y)
    with pytest.raises(ValueError, match=r"label \+1 are in one fold"):
        CrossValidation(3)(squared, X, lonely)
    with pytest.raises(ValueError, match=r"label -1 are in one fold"):
        CrossValidation(assignment=(Y > 0) * np.arange(1, N + 1))(squared, X, Y)
    with pytest.raises(ValueError, match="has 12 entries"):
        CrossValidation(assignment=np.arange(12) % 3)(squared, X, Y)
