"""PRESS and its regularization against literal retraining and the formulas of the paper."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from grid import check_gradient

import jaxsvm as jsvm
from jaxsvm import criteria, kernels, losses, priors
from jaxsvm.criteria import PRESS, AbstractCriterion, Regularized, evaluation

EXAMPLES = 24
LENGTHSCALES = (0.8, 1.6, 2.5)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(EXAMPLES, 3))
    y = np.where(x[:, 0] * x[:, 1] + 0.4 * rng.normal(size=EXAMPLES) > 0, 1.0, -1.0)
    return jnp.asarray(x), jnp.asarray(y)


def machine(C=3.0, offset=True, loss=losses.LeastSquares):
    return jsvm.KernelMachine(kernels.RBF(jnp.array(LENGTHSCALES), 1.3), loss(C), offset=offset)


def bordered(gram, C, offset):
    """The matrix of eq. 7: `[[K + I/C, 1], [1', 0]]`."""
    n = gram.shape[0]
    matrix = gram + np.eye(n) / C
    if not offset:
        return matrix
    return np.block([[matrix, np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])


def literal_residuals(gram, y, C, offset):
    """Solve the machine again without each example."""
    n = len(y)
    residuals = []
    for i in range(n):
        rest = [j for j in range(n) if j != i]
        border = [0.0] if offset else []
        system = bordered(gram[np.ix_(rest, rest)], C, offset)
        solution = np.linalg.solve(system, np.concatenate([y[rest], border]))
        prediction = gram[i, rest] @ solution[: n - 1] + (solution[-1] if offset else 0.0)
        residuals.append(y[i] - prediction)
    return np.array(residuals)


@pytest.mark.parametrize("offset", [True, False])
def test_press_is_literal_retraining(data, offset):
    x, y = data
    model = machine(offset=offset)
    gram = np.asarray(model.kernel.gram(x))
    residuals = literal_residuals(gram, np.asarray(y), 3.0, offset)
    np.testing.assert_allclose(PRESS()(model, x, y), np.sum(residuals**2) / 2, rtol=1e-10)


def test_press_of_a_regression(data):
    x, _ = data
    targets = jnp.sin(x[:, 0])
    model = machine(0.2, False, losses.Quadratic)
    gram = np.asarray(model.kernel.gram(x))
    residuals = literal_residuals(gram, np.asarray(targets), 1 / 0.2, False)
    np.testing.assert_allclose(PRESS()(model, x, targets), np.sum(residuals**2) / 2, rtol=1e-10)


def test_an_example_of_weight_zero_is_absent(data):
    x, y = data
    weights = jnp.ones(EXAMPLES).at[3].set(0.0)
    keep = np.arange(EXAMPLES) != 3
    expected = jax.value_and_grad(PRESS())(machine(), x[keep], y[keep])
    found = jax.value_and_grad(lambda m: PRESS()(m, x, y, weights=weights))(machine())
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def paper_derivatives(gram, grams_dot, y, C):
    """The partial derivatives of sec. 1.3.1, with the whole inverse of the bordered matrix."""
    n = len(y)
    inverse = np.linalg.inv(bordered(gram, C, True))
    alpha_b = inverse @ np.concatenate([y, [0.0]])
    alpha, pivots = alpha_b[:n], np.diag(inverse)[:n]
    derivatives = []
    for dot in grams_dot:
        change = np.zeros((n + 1, n + 1))
        change[:n, :n] = dot
        alpha_dot = (-inverse @ change @ alpha_b)[:n]
        pivots_dot = np.diag(-inverse @ change @ inverse)[:n]
        terms = alpha / pivots * (alpha_dot / pivots - alpha / pivots**2 * pivots_dot)
        derivatives.append(terms.sum())
    return np.array(derivatives)


def test_gradient_is_the_papers(data):
    x, y = data
    model = machine()
    gram = np.asarray(model.kernel.gram(x))
    points = np.asarray(x)
    # with respect to ln mu = -ln C, then ln lengthscale_a: dK/dln l = K (difference / l)^2
    dots = [np.eye(EXAMPLES) / 3.0]
    for a, lengthscale in enumerate(LENGTHSCALES):
        difference = points[:, None, a] - points[None, :, a]
        dots.append(gram * difference**2 / lengthscale**2)
    expected = paper_derivatives(gram, dots, np.asarray(y), 3.0)
    gradient = jax.grad(PRESS())(model, x, y)
    np.testing.assert_allclose(-gradient.loss.log_C, expected[0], rtol=1e-9)
    np.testing.assert_allclose(gradient.kernel.log_lengthscale, expected[1:], rtol=1e-9)


@pytest.mark.parametrize("offset", [True, False])
def test_gradient_by_differences(data, offset):
    check_gradient(lambda m, x, y: PRESS()(m, x, y, throw=False), machine(offset=offset), *data)


def test_forward_mode_and_a_large_matrix():
    """Beyond one block the inverse is recursive; forward and reverse derivatives agree."""
    x, y = jsvm.datasets.twonorm(300, key=jax.random.key(0))
    model = jsvm.KernelMachine(kernels.RBF(4.0), losses.LeastSquares(2.0), offset=True)
    gram = np.asarray(model.kernel.gram(x))
    inverse = np.linalg.inv(bordered(gram, 2.0, True))
    residuals = (inverse @ np.append(np.asarray(y), 0.0) / np.diag(inverse))[:300]
    np.testing.assert_allclose(PRESS()(model, x, y), np.sum(residuals**2) / 2, rtol=1e-10)
    gradient = jax.grad(PRESS())(model, x, y)
    _, slope = jax.jvp(lambda m: PRESS()(m, x, y), (model,), (gradient,))
    squares = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient))
    np.testing.assert_allclose(slope, squares, rtol=1e-8)


def regularized(prior, **weights):
    return Regularized(PRESS(), prior, "kernel.lengthscale", priors.relevance, **weights)


def test_bayesian_regularisation_is_equation_15(data):
    model = machine()
    q = float(PRESS()(model, *data))
    eta = 1 / (2 * np.array(LENGTHSCALES) ** 2)
    omega = np.sum(eta**2) / 2
    value = regularized(priors.GaussianPenalty())(model, *data)
    np.testing.assert_allclose(value, EXAMPLES / 2 * np.log(q) + 3 / 2 * np.log(omega), rtol=1e-12)
    # its derivative: n / 2Q dQ + d / 2 Omega dOmega, with dOmega/deta = eta, deta/dln l = -2 eta
    slopes = jax.grad(PRESS())(model, *data).kernel.log_lengthscale
    expected = EXAMPLES / (2 * q) * slopes + 3 / (2 * omega) * eta * (-2 * eta)
    gradient = jax.grad(regularized(priors.GaussianPenalty()))(model, *data)
    np.testing.assert_allclose(gradient.kernel.log_lengthscale, expected, rtol=1e-9)


def heavy_tailed(values):
    return jnp.sum(jnp.log1p(values**2))


def test_fixed_weights_and_other_priors(data):
    model = machine()
    q = float(PRESS()(model, *data))
    eta = 1 / (2 * np.array(LENGTHSCALES) ** 2)
    value = regularized(priors.GaussianPenalty(), zeta=2.0, xi=0.7)(model, *data)
    np.testing.assert_allclose(value, 2 * q + 0.7 * np.sum(eta**2) / 2, rtol=1e-12)
    value = regularized(priors.LaplacePenalty())(model, *data)
    expected = EXAMPLES / 2 * np.log(q) + 3 * np.log(np.sum(eta))
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    value = Regularized(PRESS(), heavy_tailed, ["kernel.lengthscale", "loss.C"])(model, *data)
    expected = q + np.sum(np.log1p(np.array([*LENGTHSCALES, 3.0]) ** 2))
    np.testing.assert_allclose(value, expected, rtol=1e-12)


class Step(criteria.AbstractCriterion):
    """A criterion that falls from 2 to 1 as the second relevance passes one half, and is flat elsewhere."""

    def check(self, model, x, y):
        pass

    def evaluate(self, model, data, memory=None):
        relevances = priors.relevance(jsvm.parameters(model)["kernel.lengthscale"])
        value = 2 - jax.nn.sigmoid(40 * (relevances[1] - 0.5))
        return evaluation(value, jnp.asarray(int(jsvm.RESULTS.successful)), memory)


@pytest.mark.parametrize("weights", [{}, {"zeta": 3.0, "xi": 0.5}], ids=["integrated", "given"])
def test_pruning_keeps_an_input_whose_loss_would_make_things_worse(data, weights):
    """At a relevance of zero all inputs look useless; without the second one the criterion doubles."""
    # the least relevant input is tried first
    kernel = kernels.RBF(1 / jnp.sqrt(2 * jnp.array([1.0, 0.8, 2.0])))
    model = jsvm.KernelMachine(kernel, losses.LeastSquares(), offset=True)
    criterion = Regularized(
        Step(), priors.LaplacePenalty(), "kernel.lengthscale", priors.relevance, **weights
    )
    _, pruned = criteria.prune(criterion, model, *data)
    np.testing.assert_array_equal(pruned, [True, False, True])


def test_pruning_switches_noise_off_and_keeps_what_matters():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 5))
    y = np.where(x[:, 0] + x[:, 1] > 0, 1.0, -1.0)
    model = jsvm.KernelMachine(kernels.RBF(jnp.full(5, 2.0)), losses.LeastSquares(2.0), offset=True)
    model = jsvm.freeze(model, "kernel.variance")
    criterion = regularized(priors.LaplacePenalty())
    bounds = {"kernel.lengthscale": (0.01, 100.0), "loss.C": (1e-3, 1e4)}
    found = jsvm.select(model, x, y, criterion, bounds=bounds, max_steps=60).model
    before = float(PRESS()(found, x, y))
    pruned_model, pruned = criteria.prune(criterion, found, x, y)
    assert not pruned[:2].any()
    assert pruned[2:].any()
    assert float(PRESS()(pruned_model, x, y)) < 1.1 * before
    lengthscales = np.asarray(jsvm.parameters(pruned_model)["kernel.lengthscale"])
    assert (lengthscales[pruned] > 1e14).all()
    # a pruned input has no influence at all, and its gradient is zero, not NaN
    moved = x.copy()
    moved[:, pruned] = rng.normal(size=(60, pruned.sum()))
    np.testing.assert_allclose(PRESS()(pruned_model, moved, y), PRESS()(pruned_model, x, y))
    gradient = jax.grad(criterion)(pruned_model, x, y)
    np.testing.assert_allclose(gradient.kernel.log_lengthscale[pruned], 0.0, atol=1e-12)
    # select and prune until nothing changes: inputs that are off stay so, whatever the bounds
    for _ in range(5):
        found = jsvm.select(pruned_model, x, y, criterion, bounds=bounds, max_steps=60)
        ends = np.asarray(found.history.parameters["kernel.lengthscale"][0, -1])
        assert (ends[pruned] > 1e14).all() and (ends[~pruned] <= 100.1).all()
        before = pruned
        pruned_model, pruned = criteria.prune(criterion, found.model, x, y)
        assert (pruned >= before).all()
        if (pruned == before).all():
            break
    assert (pruned == before).all() and not pruned[:2].any()
    ranges = {"kernel.lengthscale": (1.0, 5.0)}
    for starts in (0.5, ranges):
        found = jsvm.select(
            pruned_model, x, y, criterion, bounds=bounds, starts=starts, restarts=2,
            key=jax.random.key(0), max_steps=2,
        )  # fmt: skip
        begun = np.asarray(found.history.parameters["kernel.lengthscale"])
        np.testing.assert_allclose(begun[:, 0, pruned], 1e15, rtol=1e-9)
        assert (begun[:, 0, ~pruned] < 101).all()


@pytest.mark.parametrize("size", [0.05, 1.0, 20.0])
def test_pruning_counts_examples_by_their_weights(data, size):
    """The two conditions, literally, for the least relevant of the inputs."""
    weights = jnp.full(EXAMPLES, size)
    model = jsvm.replace(machine(), {"kernel.lengthscale": np.array([0.8, 1.6, 6.0])})
    criterion = regularized(priors.LaplacePenalty())
    eta = 1 / (2 * np.array([0.8, 1.6, 6.0]) ** 2)
    without = np.array([eta[0], eta[1], 1e-24])

    def press(eta):
        trial = jsvm.replace(model, {"kernel.lengthscale": 1 / jnp.sqrt(2 * eta)})
        return PRESS()(trial, *data, weights=weights)

    q, (trial_q, slopes) = press(eta), jax.value_and_grad(press)(jnp.asarray(without))
    total = size * EXAMPLES
    change = total / 2 * np.log(trial_q / q) + 3 * np.log(without.sum() / eta.sum())
    threshold = (2 / without.sum()) / (total / (2 * trial_q))
    expected = bool(-slopes[2] < threshold and change <= 0)
    _, pruned = criteria.prune(criterion, model, *data, weights=weights)
    assert bool(pruned[2]) == expected


class Constant(AbstractCriterion):
    """A criterion that is always the same."""

    value: float

    def check(self, model, x, y):
        pass

    def evaluate(self, model, data, memory=None):
        return evaluation(jnp.asarray(self.value), jnp.zeros((), jnp.int32), None)


@pytest.mark.parametrize("value", [0.0, -2.0])
def test_what_is_not_positive_needs_a_weight(data, value):
    constant = Regularized(Constant(value), priors.GaussianPenalty())
    with pytest.raises(jsvm.FitError, match=r"zero or negative.*Set `zeta=`"):
        constant(machine(), *data)
    assert np.isnan(constant(machine(), *data, throw=False))
    weighted = Regularized(Constant(value), priors.GaussianPenalty(), zeta=2.0, xi=1.0)
    penalty = np.sum(np.square(LENGTHSCALES)) / 2
    np.testing.assert_allclose(weighted(machine(), *data), 2 * value + penalty)


@pytest.mark.parametrize("prior", [priors.LaplacePenalty(), heavy_tailed], ids=["laplace", "plain"])
def test_gradients_of_other_priors(data, prior):
    check_gradient(Regularized(PRESS(), prior, transform=priors.relevance), machine(), *data)


def test_bad_input(data):
    with pytest.raises(ValueError, match="LeastSquares or Quadratic"):
        PRESS()(jsvm.KernelMachine(kernels.RBF(), losses.Hinge()), *data)
    with pytest.raises(
        ValueError, match=r"no parameter `kernel.scale`; it has: kernel.lengthscale"
    ):
        Regularized(PRESS(), priors.GaussianPenalty(), "kernel.scale")(machine(), *data)
    with pytest.raises(ValueError, match="`xi` must be positive"):
        regularized(priors.GaussianPenalty(), xi=-1.0)
    with pytest.raises(TypeError, match="prior"):
        Regularized(PRESS(), 3.0)
    with pytest.raises(ValueError, match=r"priors.LaplacePenalty"):
        criteria.prune(regularized(priors.GaussianPenalty()), machine(), *data)
    with pytest.raises(ValueError, match=r"`kernel` matches several: kernel.lengthscale, kernel"):
        several = Regularized(PRESS(), priors.LaplacePenalty(), "kernel", priors.relevance)
        criteria.prune(several, machine(), *data)
    with pytest.raises(ValueError, match=r"negative log likelihood.*zeta=1"):
        evidence = Regularized(criteria.LaplaceEvidence(), priors.GaussianPenalty())
        evidence(machine(offset=False), *data)
    with pytest.raises(jsvm.FitError, match="factorization"):
        singular = jsvm.replace(machine(), {"loss.C": 1e30, "kernel.lengthscale": np.full(3, 1e9)})
        PRESS()(singular, *data)
