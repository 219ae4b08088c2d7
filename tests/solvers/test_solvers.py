"""Solutions against other programs, against their own KKT conditions, and on hopeless problems."""

from functools import partial

import grid
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR

import jaxsvm as jsvm
from jaxsvm.gram import DenseGram
from jaxsvm.solvers import Options, Problem, Start, solve

N = 60  # the same everywhere, so that each loss is compiled once
KERNEL = jsvm.kernels.RBF(1.5, 2.0) + jsvm.kernels.Constant(0.5)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 3))
    y = np.where(x[:, 0] + 0.5 * rng.normal(size=N) > 0, 1.0, -1.0)
    targets = np.sin(2 * x[:, 0]) + 0.2 * rng.normal(size=N)
    gram = reference.rbf(x, 1.5, 2.0, 0.5)
    return x, y, targets, gram, np.linalg.cholesky(gram + 1e-12 * np.eye(N))


@partial(jax.jit, static_argnames="offset")
def run(gram, y, loss, offset=False, init=None):
    start = Start(jnp.zeros_like(y) if init is None else init, jnp.zeros((), y.dtype))
    problem = Problem(DenseGram(gram), y, jnp.ones_like(y), loss, offset)
    return solve(problem, start, Options(), warm=init is not None)


@pytest.mark.parametrize("C", [0.1, 3.0, 50.0])
def test_hinge_and_squared_hinge_agree_with_liblinear(data, C):
    x, y, _, gram, features = data
    peer = LinearSVC(C=C, loss="hinge", fit_intercept=False, tol=1e-10, max_iter=10**7)
    fitted = jsvm.fit(jsvm.KernelMachine(KERNEL, jsvm.losses.Hinge(C)), x, y)
    np.testing.assert_allclose(fitted.latent, features @ peer.fit(features, y).coef_[0], atol=2e-5)
    np.testing.assert_allclose(fitted.latent, gram @ fitted.dual, atol=1e-12 * (1 + C))
    peer = LinearSVC(C=C / 2, loss="squared_hinge", fit_intercept=False, tol=1e-10, max_iter=10**7)
    fitted = jsvm.fit(jsvm.KernelMachine(KERNEL, jsvm.losses.SquaredHinge(C)), x, y)
    np.testing.assert_allclose(fitted.latent, features @ peer.fit(features, y).coef_[0], atol=2e-5)


@pytest.mark.parametrize("C", [0.3, 5.0])
def test_epsilon_insensitive_agrees_with_liblinear(data, C):
    x, _, targets, _, features = data
    peer = LinearSVR(
        C=C, epsilon=0.1, loss="epsilon_insensitive", fit_intercept=False, tol=1e-10, max_iter=10**7
    )
    model = jsvm.KernelMachine(KERNEL, jsvm.losses.EpsilonInsensitive(C, 0.1))
    fitted = jsvm.fit(model, x, targets)
    np.testing.assert_allclose(
        fitted.latent, features @ peer.fit(features, targets).coef_, atol=2e-5
    )


@pytest.mark.parametrize("C", [0.3, 10.0])
def test_free_offset_agrees_with_libsvm(data, C):
    x, y, targets, gram, _ = data
    svc = SVC(C=C, kernel="precomputed", tol=1e-10).fit(gram, y)
    fitted = jsvm.fit(jsvm.KernelMachine(KERNEL, jsvm.losses.Hinge(C), offset=True), x, y)
    # libsvm keeps its matrix in single precision
    np.testing.assert_allclose(fitted.latent, svc.decision_function(gram), atol=1e-5 * (1 + C))
    np.testing.assert_allclose(float(fitted.offset), svc.intercept_[0], atol=1e-5 * (1 + C))
    assert set(np.flatnonzero(fitted.support)) == set(svc.support_)
    svr = SVR(C=C, epsilon=0.1, kernel="precomputed", tol=1e-10).fit(gram, targets)
    loss = jsvm.losses.EpsilonInsensitive(C, 0.1)
    fitted = jsvm.fit(jsvm.KernelMachine(KERNEL, loss, offset=True), x, targets)
    np.testing.assert_allclose(fitted.latent, svr.predict(gram), atol=1e-5 * (1 + C))


def test_a_large_constant_kernel_is_a_free_offset(data):
    x, y, _, gram, _ = data
    svc = SVC(C=2.0, kernel="precomputed", tol=1e-10).fit(gram, y)
    wide = jsvm.kernels.RBF(1.5, 2.0) + jsvm.kernels.Constant(1e6)
    fitted = jsvm.fit(jsvm.KernelMachine(wide, jsvm.losses.Hinge(2.0)), x, y)
    np.testing.assert_allclose(fitted.latent, svc.decision_function(gram), atol=1e-4)


@pytest.mark.parametrize(
    "C, epsilon, beta", [(1.0, 0.2, 0.3), (20.0, 0.05, 0.8), (100.0, 0.1, 0.01)]
)
def test_soft_insensitive_agrees_with_a_general_solver(data, C, epsilon, beta):
    x, _, targets, gram, _ = data
    fitted = jsvm.fit(
        jsvm.KernelMachine(KERNEL, jsvm.losses.SoftInsensitive(C, epsilon, beta)), x, targets
    )
    expected = reference.soft_insensitive_dual(gram, targets, C, epsilon, beta)
    np.testing.assert_allclose(fitted.latent, gram @ expected, atol=1e-7)
    np.testing.assert_allclose(fitted.dual, expected, atol=1e-6 * C)


def test_huber_and_laplacian_agree_with_a_general_solver(data):
    x, _, targets, gram, _ = data
    huber = jsvm.fit(jsvm.KernelMachine(KERNEL, jsvm.losses.Huber(3.0, 0.1)), x, targets)
    expected = reference.box_qp(gram + 2 * 0.1 / 3.0 * np.eye(N), targets, -3.0, 3.0)
    np.testing.assert_allclose(huber.dual, expected, atol=1e-8)
    absolute = jsvm.fit(jsvm.KernelMachine(KERNEL, jsvm.losses.Laplacian(3.0)), x, targets)
    expected = reference.box_qp(gram + 1e-13 * np.eye(N), targets, -3.0, 3.0)
    np.testing.assert_allclose(absolute.latent, gram @ expected, atol=1e-8)


def test_quadratic_losses_have_closed_forms(data):
    x, y, targets, gram, _ = data
    quadratic = jsvm.fit(jsvm.KernelMachine(KERNEL, jsvm.losses.Quadratic(0.3)), x, targets)
    np.testing.assert_allclose(
        quadratic.dual, np.linalg.solve(gram + 0.3 * np.eye(N), targets), atol=1e-10
    )
    fitted = jsvm.fit(jsvm.KernelMachine(KERNEL, jsvm.losses.LeastSquares(4.0), offset=True), x, y)
    one = np.ones((N, 1))  # eq. 7 of Cawley and Talbot, literally
    system = np.block([[gram + np.eye(N) / 4.0, one], [one.T, np.zeros((1, 1))]])
    solution = np.linalg.solve(system, np.append(y, 0.0))
    np.testing.assert_allclose(fitted.dual, solution[:-1], atol=1e-10)
    np.testing.assert_allclose(float(fitted.offset), solution[-1], atol=1e-10)


@pytest.mark.parametrize(
    "loss",
    [
        jsvm.losses.Logistic(2.0),
        jsvm.losses.Probit(0.4),
        jsvm.losses.Trigonometric(),
        jsvm.losses.FlipNoise(),
    ],
    ids=lambda loss: type(loss).__name__,
)
@pytest.mark.parametrize("offset", [False, True])
def test_smooth_losses_are_stationary(data, loss, offset):
    x, y, _, gram, _ = data
    fitted = jsvm.fit(jsvm.KernelMachine(KERNEL, loss, offset=offset), x, y)
    # the objective in whitened coordinates f = root u + offset, whose gradient must vanish
    root = np.linalg.cholesky(gram + 1e-12 * np.eye(N))

    def objective(vector):
        latent = root @ vector[:-1] + offset * vector[-1]
        return jnp.sum(loss.value(jnp.asarray(y), latent)) + jnp.sum(vector[:-1] ** 2) / 2

    solution = np.append(np.linalg.solve(root, fitted.latent - fitted.offset), fitted.offset)
    np.testing.assert_allclose(jax.grad(objective)(jnp.asarray(solution)), 0.0, atol=1e-6)
    np.testing.assert_allclose(
        fitted.dual, -loss.derivative(jnp.asarray(y), fitted.latent), atol=1e-9
    )
    expected = jsvm.RESULTS.successful if loss.is_convex else jsvm.RESULTS.local_optimum
    assert int(fitted.result) == expected
    if isinstance(loss, jsvm.losses.Trigonometric):
        assert np.all(y * np.asarray(fitted.latent) > -1)


def test_logistic_agrees_with_a_general_minimizer(data):
    from scipy.optimize import minimize

    x, y, _, _, features = data

    def objective(u):
        margin = y * (features @ u)
        slope = -y / (1 + np.exp(margin))
        return np.sum(np.log1p(np.exp(-margin))) + u @ u / 2, features.T @ slope + u

    best = minimize(objective, np.zeros(N), jac=True, method="BFGS", options={"gtol": 1e-10})
    fitted = jsvm.fit(jsvm.KernelMachine(KERNEL, jsvm.losses.Logistic()), x, y)
    np.testing.assert_allclose(fitted.latent, features @ best.x, atol=1e-6)


SIZES = (2, 7, 40, 150, 400, 1000)


def check_random_problems(n, count, allowed, failures=0):
    """Problems of one size from trivial to hopeless, with an allowed violation and number of failures."""
    precision = jnp.zeros(()).dtype
    singular = 0
    for seed in range(SIZES.index(n), len(SIZES) * count, len(SIZES)):
        x, y, C, lengthscale, variance = reference.random_problem(seed, n)
        kernel = jsvm.kernels.RBF(lengthscale, variance) + jsvm.kernels.Constant(0.1)
        gram = kernel.gram(jnp.asarray(x, precision))
        solution = run(gram, jnp.asarray(y, precision), jsvm.losses.Hinge(C))
        matrix = np.asarray(gram, np.float64)
        if int(solution.result) == jsvm.RESULTS.precision_limit and failures > 0:
            failures -= 1  # honest: what rounding does to a margin of one can be seen
            assert np.finfo(precision).eps * C * variance * n > 1e-3, (seed, solution)
            continue
        assert int(solution.result) == jsvm.RESULTS.successful, (seed, solution)
        dual = np.asarray(solution.dual)
        bound = float(jsvm.losses.Hinge(C).C)
        violation = reference.hinge_violation(matrix, y, dual.astype(float), bound)
        assert violation <= allowed and float(solution.residual) <= allowed, (seed, violation)
        if singular < 5:  # the problems are as bad as they claim
            singular += np.linalg.eigvalsh(matrix)[0] < 1e-13 * matrix.max() * n
    assert n < 40 or singular == 5


@pytest.mark.parametrize("n", [n for n in SIZES if n != 7])  # that one is for single precision
def test_random_problems_to_machine_precision(n):
    """Two hundred of them."""
    check_random_problems(n, {1000: 12, 2: 56}.get(n, 44), 1e-9)


@pytest.mark.parametrize("n", [7, 150])
def test_random_problems_in_single_precision(n):
    """Many more: a success means margins right to two digits, whatever the coefficients."""
    with jax.enable_x64(False):
        check_random_problems(n, 80, 0.011, failures=16)


@pytest.mark.parametrize("n", [3, 150])
def test_random_problems_with_a_free_offset(n):
    for seed in range(40):
        x, y, C, lengthscale, variance = reference.random_problem(seed, n)
        gram = (jsvm.kernels.RBF(lengthscale, variance) + jsvm.kernels.Constant(0.1)).gram(x)
        solution = run(gram, jnp.asarray(y), jsvm.losses.Hinge(C), offset=True)
        assert int(solution.result) == jsvm.RESULTS.successful, (seed, solution)
        dual, offset = np.asarray(solution.dual), float(solution.offset)
        violation = reference.hinge_violation(
            np.asarray(gram), y, dual, float(jsvm.losses.Hinge(C).C), offset
        )
        assert violation <= 1e-9 and abs(dual.sum()) <= 1e-9 * max(1, np.abs(dual).max())


@pytest.mark.parametrize("name", grid.PIECEWISE)
def test_random_problems_with_every_piecewise_loss(name):
    loss = grid.LOSSES[name]
    for seed in range(40):
        x, y, C, lengthscale, variance = reference.random_problem(seed, N)
        loss = jsvm.replace(loss, {"noise_variance": 1 / C} if name == "Quadratic" else {"C": C})
        targets = y if loss.is_classifier else y + x[:, 0]
        gram = (jsvm.kernels.RBF(lengthscale, variance) + jsvm.kernels.Constant(0.1)).gram(x)
        solution = run(gram, jnp.asarray(targets), loss)
        assert int(solution.result) == jsvm.RESULTS.successful, (seed, solution)
        # Fenchel: the primal and the dual objective of an optimal pair are the same number
        dual = solution.dual
        latent = gram @ dual
        primal = jnp.sum(loss.value(jnp.asarray(targets), latent)) + dual @ latent / 2
        conjugate = jnp.sum(loss.conjugate(jnp.asarray(targets), dual, jnp.ones(N)))
        assert abs(float(primal + conjugate + dual @ latent / 2)) <= 1e-9 * (1 + float(primal))
        assert float(solution.residual) <= 1e-9 * (1 + np.abs(targets).max())


def test_smooth_losses_on_random_problems():
    for loss in (jsvm.losses.Logistic(3.0), jsvm.losses.Probit(0.1), jsvm.losses.Trigonometric()):
        for seed in range(30):
            x, y, _, lengthscale, variance = reference.random_problem(seed, N)
            gram = (jsvm.kernels.RBF(lengthscale, 10 * variance) + jsvm.kernels.Constant(0.1)).gram(
                x
            )
            solution = run(gram, jnp.asarray(y), loss)
            assert int(solution.result) == jsvm.RESULTS.successful, (type(loss), seed)
            latent = gram @ solution.dual
            slope = loss.derivative(jnp.asarray(y), latent)
            np.testing.assert_allclose(gram @ (solution.dual + slope), 0.0, atol=1e-8)


def test_a_warm_start_needs_few_steps(data):
    x, y, *_ = data
    model = jsvm.KernelMachine(KERNEL, jsvm.losses.Hinge(2.0))
    fitted = jsvm.fit(model, x, y)
    again = jsvm.fit(model, x, y, init=fitted)
    assert int(again.stats.iterations) == 0
    np.testing.assert_array_equal(again.dual, fitted.dual)
    near = jsvm.replace(model, {"loss.C": 2.02})
    warm, cold = jsvm.fit(near, x, y, init=fitted), jsvm.fit(near, x, y)
    np.testing.assert_allclose(warm.dual, cold.dual, atol=1e-9)
    assert int(warm.stats.iterations) <= 4
    from_vector = jsvm.fit(near, x, y, init=fitted.dual)
    np.testing.assert_array_equal(from_vector.dual, warm.dual)


@pytest.mark.parametrize("change", [0.95, 1.05, 3.0])
def test_random_problems_from_the_solution_of_a_neighbor(change):
    for seed in range(30):
        x, y, C, lengthscale, variance = reference.random_problem(seed, 150)
        grams = [
            (jsvm.kernels.RBF(scale * lengthscale, variance) + jsvm.kernels.Constant(0.1)).gram(x)
            for scale in (1.0, change)
        ]
        near = run(grams[0], jnp.asarray(y), jsvm.losses.Hinge(C))
        loss = jsvm.losses.Hinge(change * C)
        solution = run(grams[1], jnp.asarray(y), loss, init=near.dual)
        assert int(solution.result) == jsvm.RESULTS.successful, (seed, solution)
        dual = np.asarray(solution.dual)
        assert reference.hinge_violation(np.asarray(grams[1]), y, dual, float(loss.C)) <= 1e-9


def test_a_start_far_away_ends_at_the_same_solution(data):
    x, y, targets, *_ = data
    rng = np.random.default_rng(1)
    for loss, goal in (
        (jsvm.losses.Hinge(5.0), y),
        (jsvm.losses.SoftInsensitive(5.0, 0.1, 0.3), targets),
    ):
        model = jsvm.KernelMachine(KERNEL, loss)
        cold = jsvm.fit(model, x, goal)
        for scale in (1.0, 1e6):
            far = jsvm.fit(model, x, goal, init=scale * rng.normal(size=N))
            np.testing.assert_allclose(far.latent, cold.latent, atol=1e-8)


def test_jax_lockstep_batches_agree_with_sequential_ones(data, monkeypatch):
    """On an accelerator the members of a batch run in lockstep: the same code under a plain vmap."""
    _, y, _, gram, _ = data
    penalties = jnp.array([0.1, 1.0, 30.0])

    def batch(C):
        return run(jnp.asarray(gram), jnp.asarray(y), jsvm.losses.Hinge(C))

    sequential = jax.vmap(batch)(penalties)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    run.clear_cache()
    lockstep = jax.vmap(batch)(penalties)
    run.clear_cache()
    np.testing.assert_allclose(lockstep.dual, sequential.dual, atol=1e-9)
    np.testing.assert_array_equal(lockstep.result, 0)
