"""A low-rank Gram matrix against the dense one of the same numbers, plain NumPy, and differences."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr

from jaxsvm.gram import DenseGram, LowRankGram
from jaxsvm.linalg import SolveOptions

N = 50
RNG = np.random.default_rng(3)
FREE = np.arange(N) % 9 == 2  # six of them
MANY = np.arange(N) % 2 == 1
POSITIVE = RNG.uniform(0.5, 1.5, size=N)
SOME = np.where(FREE, 0.0, POSITIVE)
MIXED = np.where(FREE, -0.1, POSITIVE)
VECTOR, OTHER = RNG.normal(size=(2, N))
EXTRAS = {"none": None, "zero": np.zeros(N), "positive": np.where(MANY, 0.0, POSITIVE)}
PROGRAMS = (Jaxpr, ClosedJaxpr)
TOLERANCE = {"float64": 1e-9, "float32": 5e-4}


def factor_of(rank: int) -> np.ndarray:
    factor = np.random.default_rng(rank).normal(size=(N, rank)) / np.sqrt(rank)
    factor[3] = 0.0
    return factor


def pair(rank: int, extra: str, dtype="float64"):
    """The low-rank matrix, and the dense one."""
    own = EXTRAS[extra]
    factor = jnp.asarray(factor_of(rank), dtype)
    gram = LowRankGram(factor, None if own is None else jnp.asarray(own, dtype))
    return gram, DenseGram(gram.dense())


def operations(dtype="float64"):
    """Name -> an operation of a Gram matrix, whose result is an array or several."""

    def array(values):
        return jnp.asarray(values, dtype)

    positive, some, mixed = array(POSITIVE), array(SOME), array(MIXED)
    vector, other, scale = array(VECTOR), array(OTHER), jnp.where(FREE, 0, array(POSITIVE))
    few = jnp.where(FREE, positive, 0)
    named = {
        "diagonal": lambda g: g.diagonal(),
        "row": lambda g: g.row(jnp.asarray(4)),
        "product": lambda g: g.product(vector),
        "squared product": lambda g: g.squared_product(few),
        "squared product, any sign": lambda g: g.squared_product(vector),
        "sparse product": lambda g: g.sparse_product(few * vector),
        "solver": lambda g: jax.tree.map(g.solver(scale, positive), (vector, other)),
        "recentered": lambda g: _spread(
            g.recentered(positive / jnp.sum(positive)), some / jnp.sum(some)
        ),
        "general solve": lambda g: g.general_solve(positive, 0.5 * other, vector),
        "log determinant": lambda g: g.log_determinant(some),
        "general log determinant": lambda g: g.log_determinant(mixed, definite=False),
        "inverse diagonal": lambda g: g.inverse_diagonal(scale, positive),
        "bordered inverse diagonal": lambda g: g.inverse_diagonal(scale, positive, other),
        "solve": lambda g: g.solve_and_inverse_diagonal(positive, vector, False),
        "solve, offset": lambda g: g.solve_and_inverse_diagonal(positive, vector, True),
        "posterior": lambda g: g.posterior_marginals(vector, some),
        "general posterior": lambda g: g.posterior_marginals(vector, mixed, definite=False),
        "response diagonal": lambda g: g.response_diagonal(some),
        "general response diagonal": lambda g: g.response_diagonal(mixed, definite=False),
        "finite": lambda g: 1.0 * g.is_finite(),
        "covariance": lambda g: 1.0 * g.is_covariance(),
    }
    sets = {"few": FREE, "many": MANY, "one": np.arange(N) == 5, "no": np.zeros(N, bool)}
    for amount, free in sets.items():
        own = jnp.where(free, 0.2 * positive, 0)
        spans = partial(_spans, own, free)
        named[f"spans of {amount}"] = partial(spans, False)
        named[f"spans of {amount}, offset"] = partial(spans, True)
    return named


def _spread(gram, share):
    """The variance of a mixture of the examples in feature space, which does not depend on the origin."""
    return share @ gram.diagonal() - share @ (gram @ share)


def _spans(diagonal, free, has_offset, gram):
    return gram.squared_spans(diagonal, jnp.asarray(free), has_offset)


OPERATIONS = operations()
SOLVES = {
    "few": (jnp.where(FREE, POSITIVE, 0.0), SolveOptions()),
    "many": (jnp.where(MANY, POSITIVE, 0.0), SolveOptions()),
    "all": (jnp.asarray(POSITIVE), SolveOptions(coarse=True)),
    "none": (jnp.zeros(N), SolveOptions()),
    "lifted": (jnp.where(MANY, POSITIVE, 0.0), SolveOptions(1e-3, refinements=6)),
}


def close(found, expected, dtype="float64", factor=1.0):
    """Each array equals the expected one, up to a share of its largest entry."""
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        atol = factor * TOLERANCE[dtype] * max(np.abs(other).max(), 1e-300)
        np.testing.assert_allclose(one, other, rtol=0, atol=atol)


@jax.jit
def everything(gram):
    """The results of all operations."""
    results = {name: operation(gram) for name, operation in OPERATIONS.items()}
    for name, (scale, options) in SOLVES.items():
        rights = jnp.asarray(VECTOR), jnp.asarray(OTHER)
        diagonal = 0.1 + jnp.asarray(POSITIVE)
        results[f"solve with {name}"] = gram.reduced_solve(
            scale, diagonal, *rights, options=options
        )
    return results


# ---------------------------------------------------------------------------- values


CASES = [
    (1, "none"),
    (7, "none"),
    (7, "zero"),
    (7, "positive"),
    (N + 20, "none"),
    (N + 20, "positive"),
]


@pytest.mark.parametrize("rank, extra", CASES)
def test_values(rank, extra):
    low, dense = pair(rank, extra)
    found = everything(low)
    close(found, everything(dense))
    close(low.dense(), dense.matrix)
    assert low.dtype == dense.dtype
    for name, (scale, _) in SOLVES.items():
        assert not np.any(np.asarray(found[f"solve with {name}"])[:, np.asarray(scale) == 0])


@pytest.mark.parametrize("definite", [True, False])
@pytest.mark.parametrize("rank", [7, N + 20])
def test_predictions(rank, definite):
    """Means at new points and what the measurements take from their covariances, both ways."""
    low, dense = pair(rank, "positive")
    features = jnp.asarray(np.random.default_rng(1).normal(size=(3, rank)))
    precision = jnp.asarray(SOME if definite else MIXED)

    @jax.jit
    def predict(gram, features):
        mean = features @ gram.coefficients(jnp.asarray(VECTOR))
        return mean, features @ gram.response(precision, definite) @ features.T

    close(predict(low, features), predict(dense, features @ low.factor.T))


def test_single_precision():
    with jax.enable_x64(False):
        low, dense = pair(7, "positive", "float32")
        scale = jnp.asarray(np.where(MANY, POSITIVE, 0.0), "float32")
        named = operations("float32") | {
            "reduced": lambda g: g.reduced_solve(scale, 0.1 + scale, jnp.asarray(OTHER, "float32")),
        }
        run = jax.jit(lambda gram: {name: operation(gram) for name, operation in named.items()})
        close(run(low), run(dense), "float32")
        close(low.response(scale), low.factor.T @ dense.response(scale) @ low.factor, "float32")


def test_against_numpy():
    """A few formulas that share no code with either class."""
    low, _ = pair(7, "positive")
    matrix = factor_of(7) @ factor_of(7).T + np.diag(EXTRAS["positive"])
    whole = np.block(
        [[matrix + np.diag(POSITIVE), np.ones((N, 1))], [np.ones((1, N)), np.zeros((1, 1))]]
    )
    inverse = np.linalg.inv(whole)[:N, :N]
    answer, pivots = low.solve_and_inverse_diagonal(POSITIVE, jnp.asarray(VECTOR), True)
    close((answer, pivots), (inverse @ VECTOR, np.diag(inverse)))
    sign, value = np.linalg.slogdet(np.eye(N) + MIXED[:, None] * matrix)
    assert sign > 0
    close(low.log_determinant(jnp.asarray(MIXED), definite=False), value)
    taken = np.linalg.solve(np.eye(N) + MIXED[:, None] * matrix, np.diag(MIXED))
    close(low.response_diagonal(jnp.asarray(MIXED), definite=False), np.diag(taken))
    close(low.response(jnp.asarray(MIXED), definite=False), factor_of(7).T @ taken @ factor_of(7))
    covariance = matrix - matrix @ taken @ matrix
    solved = low.solver(jnp.asarray(SOME), jnp.asarray(POSITIVE))(jnp.asarray(VECTOR))
    scaled = np.diag(POSITIVE) + np.outer(SOME, SOME) * matrix
    close(solved, np.linalg.solve(scaled, VECTOR))
    share = POSITIVE / POSITIVE.sum()
    moved = np.asarray(low.recentered(jnp.asarray(share)).dense()) - np.diag(EXTRAS["positive"])
    np.testing.assert_allclose(share @ moved, 0, atol=1e-14)  # the mean is the origin
    some = SOME / SOME.sum()
    expected = some @ np.diag(matrix) - some @ matrix @ some
    np.testing.assert_allclose(OPERATIONS["recentered"](low), expected, rtol=1e-12)
    mean, variance = low.posterior_marginals(
        jnp.asarray(VECTOR), jnp.asarray(MIXED), definite=False
    )
    close((mean, variance), (covariance @ VECTOR, np.diag(covariance)))


def test_a_batch():
    low, _ = pair(7, "positive")
    grams = [_moved(low, step) for step in (0.0, 0.3)]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *grams)
    expected = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(everything, grams))
    close(jax.jit(jax.vmap(everything))(batch), expected)


# ---------------------------------------------------------------------------- limits


@pytest.mark.parametrize("exponent", [0, 4, 8, 12])
@pytest.mark.parametrize("kind", ["random", "decaying", "constant"])
def test_a_nearly_singular_solve_is_as_exact_as_a_factorization(dtype, kind, exponent):
    """Right-hand sides in the range of the factor and others, with a diagonal far below the amplitude."""
    rng = np.random.default_rng(exponent)
    factor = rng.normal(size=(200, 12))
    factor *= np.logspace(0, -6, 12) if kind == "decaying" else 1.0
    factor[:, 0] = 10.0 if kind == "constant" else factor[:, 0]
    amplitude = np.mean(np.sum(factor**2, axis=1))
    epsilon = float(jnp.finfo(dtype).eps)
    tiny = max(10.0**-exponent, 4 * 200 * epsilon) * amplitude  # the least that solvers use
    rights = (
        rng.normal(size=200),
        factor @ rng.normal(size=12),
        factor @ (factor.T @ rng.normal(size=200)),
    )
    low = LowRankGram(jnp.asarray(factor, dtype))
    matrix = np.asarray(low.factor, float) @ np.asarray(low.factor, float).T
    ones = jnp.ones(200, dtype)
    answers = low.reduced_solve(ones, tiny * ones, *(jnp.asarray(r, dtype) for r in rights))
    for answer, right in zip(answers, rights, strict=True):
        right, answer = np.asarray(jnp.asarray(right, dtype), float), np.asarray(answer, float)
        diagonal = float(jnp.asarray(tiny, dtype))
        residual = right - matrix @ answer - diagonal * answer
        size = np.linalg.norm(matrix, 2) * np.linalg.norm(answer) + np.linalg.norm(right)
        assert np.linalg.norm(residual) < 20 * epsilon * size


@pytest.mark.parametrize("coarse", [False, True])
def test_each_size_of_a_reduced_solve(coarse):
    """Many examples, of which none, few, more and all are active, against NumPy."""
    rng = np.random.default_rng(0)
    examples, rank = 600, 5
    factor, extra = rng.normal(size=(examples, rank)), rng.uniform(size=examples)
    gram = LowRankGram(jnp.asarray(factor), jnp.asarray(extra))
    rights = [jnp.asarray(right) for right in rng.normal(size=(2, examples))]
    options = SolveOptions(coarse=coarse)
    solve = jax.jit(lambda gram, *args: gram.reduced_solve(*args, options=options))
    for share in (0.0, 0.005, 0.1, 0.2, 0.3, 0.7, 1.0):
        active = rng.uniform(size=examples) < share
        scale, diagonal = np.where(active, rng.uniform(0.5, 2, examples), 0), 0.01 + extra
        found = solve(gram, jnp.asarray(scale), jnp.asarray(diagonal), *rights)
        part = np.ix_(active, active)
        matrix = np.diag(diagonal) + np.outer(scale, scale) * np.asarray(gram.dense())
        for answer, right in zip(found, rights, strict=True):
            assert not np.any(np.asarray(answer)[~active])
            expected = np.linalg.solve(matrix[part], np.asarray(right)[active])
            np.testing.assert_allclose(np.asarray(answer)[active], expected, rtol=1e-9, atol=1e-9)


def test_a_solve_that_is_not_positive_definite_is_nan():
    low, _ = pair(7, "positive")
    ones = jnp.ones(N)
    for scale in (ones, jnp.where(FREE, 1.0, 0.0)):
        (answer,) = low.reduced_solve(scale, -100 * ones, ones)
        assert np.isnan(answer[np.asarray(scale) > 0]).all()
    assert np.isnan(low.inverse_diagonal(ones, -100 * ones)).all()


def test_the_sign_of_a_determinant():
    """NaN if it is negative, whichever of its two factors is."""
    low, dense = pair(7, "positive")
    curvatures = jnp.asarray(np.random.default_rng(4).normal(size=(12, N)))

    @jax.jit
    def run(gram):
        return jax.lax.map(lambda c: gram.log_determinant(c, definite=False), curvatures)

    found, expected = run(low), run(dense)
    assert 2 < np.isnan(found).sum() < 10
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_extreme_scales(size):
    """K and everything that is added to it in other units."""
    low, _ = pair(7, "positive")
    other = LowRankGram(low.factor * size, low.extra * size**2)
    args = jnp.asarray(POSITIVE), jnp.asarray(SOME), jnp.asarray(VECTOR)

    @jax.jit
    def run(gram, unit, positive, some, vector):
        free = jnp.asarray(MANY)
        return {
            "determinant": gram.log_determinant(some / unit),
            "inverse": gram.inverse_diagonal(some, positive * unit, positive) * unit,
            "spans": gram.squared_spans(jnp.where(free, positive, 0.0) * unit, free, True) / unit,
            "few": gram.squared_spans(0.0 * positive, jnp.asarray(FREE), False) / unit,
            "posterior": gram.posterior_marginals(vector / unit, some / unit)[1] / unit,
            "response": gram.response_diagonal(some / unit) * unit,
            "solve": gram.reduced_solve(some, positive * unit, vector)[0] * unit,
        }

    close(run(other, size**2, *args), run(low, 1.0, *args))


def literal_squared_span(factor, place, free, has_offset):
    """The squared distance of a row from the linear or affine span of the other free ones, and `l' l`."""
    others = factor[free & (np.arange(len(factor)) != place)]
    row, directions = factor[place], others
    if has_offset:
        row, directions = factor[place] - others[0], others[1:] - others[0]
    coefficients = np.linalg.lstsq(directions.T, row, rcond=1e-10)[0]
    vector = [1.0, *-coefficients, *([sum(coefficients) - 1] if has_offset else [])]
    return np.sum((row - coefficients @ directions) ** 2), np.sum(np.square(vector))


@pytest.mark.parametrize("has_offset", [False, True])
@pytest.mark.parametrize("count", [2, 5, 7, 8, 9, 20])
def test_spans_without_a_diagonal(count, has_offset):
    """The distance from the span of the other free examples; zero where these span the space."""
    factor = factor_of(7)
    factor[3] = 0.5
    free = np.isin(np.arange(N), np.random.default_rng(count).permutation(N)[:count])
    gram = LowRankGram(jnp.asarray(factor))
    found = gram.squared_spans(jnp.zeros(N), jnp.asarray(free), has_offset)
    literal = [literal_squared_span(factor, place, free, has_offset) for place in range(N)]
    expected, squares = np.transpose(literal)
    if count > 7 + has_offset:
        assert np.abs(expected).max() < 1e-12
        lift = 4 * np.finfo(float).eps * np.sum(2 * factor[free] ** 2)
        assert np.all(np.abs(found) < 2 * lift * (1 + squares))
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    gradient = jax.grad(
        lambda factor: jnp.sum(
            LowRankGram(factor).squared_spans(jnp.zeros(N), jnp.asarray(free), has_offset)
        )
    )(gram.factor)
    assert np.isfinite(gradient).all()


def test_a_matrix_of_zeros():
    gram = LowRankGram(jnp.zeros((N, 7)), jnp.zeros(N))
    for name, result in everything(gram).items():
        assert np.isfinite(np.concatenate([np.ravel(r) for r in jax.tree.leaves(result)])).all(), (
            name
        )


def test_checks():
    gram, _ = pair(7, "positive")
    assert gram.is_finite() and gram.is_covariance()
    for broken in (
        LowRankGram(gram.factor.at[3, 4].set(jnp.nan), gram.extra),
        LowRankGram(gram.factor.at[3, 4].set(1e200)),
        LowRankGram(gram.factor, gram.extra.at[3].set(jnp.inf)),
    ):
        assert not broken.is_finite() and not broken.is_covariance()
    negative = LowRankGram(gram.factor, gram.extra.at[3].set(-1e-3))
    assert negative.is_finite() and not negative.is_covariance()


# ---------------------------------------------------------------------------- derivatives


def _moved(gram, step):
    """The matrix after a step along a direction, in the factor and in the extra variances."""
    columns = np.cos(np.arange(gram.factor.shape[1]))
    factor = gram.factor * (1 + 0.3 * step * np.outer(OTHER, columns))
    return LowRankGram(factor, None if gram.extra is None else gram.extra * (1 + step * VECTOR / 4))


# what solvers use need not have derivatives in reverse mode
DIFFERENTIABLE = [
    name
    for name in OPERATIONS
    if name not in ("finite", "covariance", "sparse product") and "squared product" not in name
]


# where p is at least n, only these do not leave all work to the dense matrix
WIDE = ["diagonal", "row", "product", "log determinant", "spans of few", "spans of many, offset"]


@pytest.mark.parametrize("rank, names", [(7, DIFFERENTIABLE), (N + 20, WIDE)])
def test_derivatives(rank, names):
    """First derivatives in both modes, and second ones, are those of the dense matrix."""
    low, _ = pair(rank, "positive")

    def derivatives(name, is_dense):
        def total(step):
            gram = _moved(low, step)
            found = OPERATIONS[name](DenseGram(gram.dense()) if is_dense else gram)
            return sum(jnp.sum(jnp.sin(part)) for part in jax.tree.leaves(found))

        slope, second = jax.jvp(jax.grad(total), (0.1,), (1.0,))
        return jax.jvp(total, (0.1,), (1.0,))[1], slope, second

    found, expected = jax.jit(
        lambda: [{name: derivatives(name, kind) for name in names} for kind in (0, 1)]
    )()
    for name in names:
        forward, reverse, second = found[name]
        np.testing.assert_allclose(forward, expected[name][0], rtol=1e-8, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(reverse, forward, rtol=1e-8, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(second, expected[name][2], rtol=1e-7, atol=1e-8, err_msg=name)


def test_derivatives_with_respect_to_precisions_of_zero():
    """They are finite and right: the mean changes by `-S_ij mean_j` with `precision_j`."""
    low, dense = pair(7, "positive")
    precision, shift = jnp.asarray(SOME), jnp.asarray(VECTOR)
    mean, _ = dense.posterior_marginals(shift, precision)
    covariance = dense.matrix - dense.matrix @ dense.response(precision) @ dense.matrix

    def means(precision):
        return low.posterior_marginals(shift, precision)[0]

    close(jax.jacrev(means)(precision), -covariance * mean[None, :])
    close(jax.grad(low.log_determinant)(precision), jnp.diag(covariance))
    of_scale = partial(low.inverse_diagonal, diagonal=jnp.ones(N))
    for operation in (low.response_diagonal, low.response, of_scale):
        assert np.isfinite(jax.jacrev(operation)(jnp.zeros(N))).all()


# ---------------------------------------------------------------------------- memory


def _shapes(program):
    """The shapes of all arrays that a program makes, also in the programs within it."""
    for equation in program.eqns:
        yield from (variable.aval.shape for variable in equation.outvars)
        parts = jax.tree.leaves(equation.params, is_leaf=lambda part: isinstance(part, PROGRAMS))
        for part in parts:
            if isinstance(part, PROGRAMS):
                yield from _shapes(part.jaxpr if isinstance(part, ClosedJaxpr) else part)


def _largest(function, *args):
    """The second-longest axis of any array that a function makes."""
    shapes = _shapes(jax.make_jaxpr(function)(*args).jaxpr)
    return max(sorted((0, 0, *shape))[-2] for shape in shapes)


def _solved(scale, options, gram):
    """As in the derivatives of a solution."""

    def product(vector):
        return vector + scale * (gram @ (scale * vector))

    def solve(_, right):
        return gram.reduced_solve(scale, jnp.ones(N), right, options=options)[0]

    return jax.lax.custom_linear_solve(product, jnp.asarray(VECTOR), solve, symmetric=True)


def test_no_operation_makes_an_array_of_n_x_n_numbers():
    low, _ = pair(7, "positive")
    solves = {f"solve with {name}": partial(_solved, *case) for name, case in SOLVES.items()}
    responses = {"response": lambda g: g.response(jnp.asarray(SOME))}
    for name, operation in (OPERATIONS | solves | responses).items():

        def total(gram, operation=operation):
            return sum(jnp.sum(jnp.sin(part)) for part in jax.tree.leaves(operation(gram)))

        assert _largest(operation, low) < N, name
        assert _largest(jax.grad(total), low) < N, name
    assert _largest(lambda g: g.dense(), low) == N
    assert _largest(lambda g: OPERATIONS["solve"](DenseGram(g.dense())), low) == N
