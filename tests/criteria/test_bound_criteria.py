"""GACV, the Jaakkola-Haussler bound, the support vector count and radius-margin, against loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_criteria as reference
from as_dense import AsDense
from jax.flatten_util import ravel_pytree
from jaxprs import largest_array

import jaxsvm as jsvm
from jaxsvm import RESULTS, kernels, losses
from jaxsvm._fit import fit_gram
from jaxsvm.approximations import Corrected, represent
from jaxsvm.criteria import GACV, Data, JaakkolaHaussler, RadiusMargin, Span, SupportVectorCount
from jaxsvm.criteria._radius import enclosing_ball
from jaxsvm.gram import DenseGram, LowRankGram, exact_gram

N = 40
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
Y = np.where(0.7 * RNG.normal(size=N) + X[:, 0] > 0, 1.0, -1.0)
WEIGHTS = RNG.uniform(0.5, 2.0, size=N)
KERNEL = kernels.RBF(jnp.array([1.0, 2.0, 1.5]), 1.3) + kernels.Constant(0.5)
GRAM = np.asarray(KERNEL.matrix(jnp.asarray(X), jnp.asarray(X), same=True))
C = 2.0
BOTH = [losses.Hinge, losses.SquaredHinge]


def machine(loss):
    return jsvm.KernelMachine(KERNEL, loss(C))


@pytest.fixture(scope="module")
def fits():
    """The fits that the references look at; other tests see that these are right."""
    return {loss: jsvm.fit(machine(loss), X, Y, weights=WEIGHTS) for loss in BOTH}


def parts(fitted):
    return np.asarray(fitted.latent), np.abs(np.asarray(fitted.dual))


def test_gacv(fits):
    latent, alpha = parts(fits[losses.Hinge])
    assert (Y * latent < -1).any() and (alpha == 0).any()
    expected = reference.gacv(GRAM, Y, latent, alpha, WEIGHTS)
    value = GACV()(machine(losses.Hinge), X, Y, weights=WEIGHTS)
    np.testing.assert_allclose(value, expected, rtol=1e-9)


@pytest.mark.parametrize("loss", BOTH)
def test_counts(loss, fits):
    latent, alpha = parts(fits[loss])
    expected = reference.jaakkola_haussler(GRAM, Y, latent, alpha, WEIGHTS)
    assert 0 < expected < 1
    value = JaakkolaHaussler().of_fit(DenseGram(jnp.asarray(GRAM)), fits[loss])
    assert value == pytest.approx(expected, rel=1e-12)
    expected = reference.support_vector_count(Y, latent, alpha, WEIGHTS)
    value = SupportVectorCount().of_fit(DenseGram(jnp.asarray(GRAM)), fits[loss])
    assert value == pytest.approx(expected, rel=1e-12)


def test_stiff_span_is_the_jaakkola_haussler_bound(fits):
    """For `eta` to infinity, below eq. 12 of Gold and Sollich: there non-support vectors have margin one."""

    def score(y, f):
        return jax.nn.sigmoid(-5 * jnp.minimum(y * f, 1))

    fitted, gram = fits[losses.SquaredHinge], DenseGram(jnp.asarray(GRAM))
    expected = JaakkolaHaussler(score).of_fit(gram, fitted)
    np.testing.assert_allclose(Span(eta=1e8).of_fit(gram, fitted), expected, rtol=1e-6)


@pytest.mark.parametrize("loss", BOTH)
def test_radius_margin(loss):
    model = machine(loss)
    fitted = jsvm.fit(model, X, Y)
    gram = GRAM + (np.eye(N) / C if loss is losses.SquaredHinge else 0)
    total = np.abs(np.asarray(fitted.dual)).sum()
    expected = reference.squared_radius(gram) * total / N
    np.testing.assert_allclose(RadiusMargin()(model, X, Y), expected, rtol=1e-8)
    simple = RadiusMargin("bound")(model, X, Y)
    np.testing.assert_allclose(simple, gram[0, 0] * total / N, rtol=1e-9)
    assert simple > expected


@pytest.mark.parametrize("loss", BOTH)
def test_radius_margin_of_weights(loss):
    """A weight of two is a repeated row, a weight of zero an absent one."""
    weights = np.concatenate([np.full(10, 2.0), np.ones(20), np.zeros(10)])
    rows = np.concatenate([np.arange(10), np.arange(30)])
    criterion, model = RadiusMargin(), machine(loss)
    weighted = criterion(model, X, Y, weights=weights)
    np.testing.assert_allclose(weighted, criterion(model, X[rows], Y[rows]), rtol=1e-10)


LOW = jsvm.Nystrom(6, 8, "pivoted")
RANKS = {"low rank": LOW, "corrected": Corrected(LOW)}


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("loss", BOTH)
def test_radius_margin_at_a_low_rank(loss, rank):
    """Value and gradient of the dense criterion on the same numbers; the radius is that of a reference."""
    model, x, y = machine(loss), jnp.asarray(X), jnp.asarray(Y)
    weights = jnp.asarray(np.where(np.arange(N) < 5, 2.0, np.where(np.arange(N) < 35, 1.0, 0.0)))
    representation = represent(RANKS[rank], model, x)
    seen = set()

    def of(representation):
        def value(model):
            data = Data(x, y, weights, representation=representation)
            seen.add(type(data.gram(model.kernel)))
            return RadiusMargin().evaluate(model, data).value

        return ravel_pytree(jax.jit(jax.value_and_grad(value))(model))[0]

    found, expected = of(representation), of(AsDense(representation))
    assert seen == {LowRankGram, DenseGram} and np.abs(expected).min() > 1e-4
    np.testing.assert_allclose(found, expected, rtol=1e-8)

    gram = representation.matrix(model.kernel, x).gram
    dual = fit_gram(model, gram, x, y, weights).dual
    rows = np.concatenate([np.arange(35), np.arange(5)])  # a weight of two is a repeated row
    repeated = np.asarray(gram.dense())[np.ix_(rows, rows)]
    repeated += np.eye(N) / C if loss is losses.SquaredHinge else 0
    radius = reference.squared_radius(repeated)
    np.testing.assert_allclose(found[0], radius * np.abs(dual).sum() / N, rtol=1e-8)


@pytest.mark.parametrize("rank", RANKS)
def test_a_low_rank_forms_no_array_of_n_x_n_numbers(rank):
    examples = 2000  # the matrix of fewer is formed, since their fit is then faster
    x = np.random.default_rng(0).normal(size=(examples, 3))
    y = np.where(x[:, 0] > 0, 1.0, -1.0)
    for loss in BOTH:
        model = machine(loss)
        options = {"approximation": represent(RANKS[rank], model, jnp.asarray(x)), "throw": False}
        gradient = jax.grad(lambda m, o=options: RadiusMargin()(m, x, y, **o))
        assert largest_array(gradient, model) <= 2 * 8 * examples


def points_of(kind):
    """Gram matrices that balls find easy and hard."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N, 2))
    if kind == "few on the ball":
        return x @ x.T
    if kind == "repeated":
        x = np.concatenate([x[:20], x[:20]])
        return x @ x.T
    if kind == "all on the ball":
        return np.eye(N) + 0.1
    if kind == "far away":
        return (x + 100) @ (x + 100).T
    if kind == "long lengthscale":
        return np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / 2 / 30**2)
    return np.ones((N, N))  # all in one place


KINDS = [
    "few on the ball",
    "repeated",
    "all on the ball",
    "far away",
    "long lengthscale",
    "one point",
]


def factor_of(gram):
    """V with `V V' = gram`, without the directions that are null."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > 1e-13 * values[-1]
    return vectors[:, kept] * np.sqrt(values[kept])


@pytest.mark.parametrize("is_low", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_ball(kind, is_low):
    gram = points_of(kind)
    matrix = LowRankGram(factor_of(gram)) if is_low else DenseGram(gram)
    ball = jax.jit(enclosing_ball)(matrix, np.zeros(N), np.ones(N))
    assert ball.result == RESULTS.successful
    assert 4 < ball.iterations < 30 or kind in ("one point", "all on the ball")
    share = np.asarray(ball.share)
    assert share.min() >= 0 and share.sum() == pytest.approx(1, abs=1e-14)
    squared = share @ np.diag(gram) - share @ gram @ share
    farthest = np.max(np.diag(gram) - 2 * gram @ share + share @ gram @ share)
    noise = 1e-15 * N * gram.max()
    assert farthest - squared <= 1e-12 * squared + noise  # all are in it, and no ball is smaller
    expected = reference.squared_radius(gram - gram.mean(0) - gram.mean(1)[:, None] + gram.mean())
    np.testing.assert_allclose(squared, expected, rtol=1e-7, atol=noise)


def test_ball_in_float32():
    gram = points_of("few on the ball")
    expected = reference.squared_radius(gram)
    with jax.enable_x64(False):
        gram = gram.astype(np.float32)
        ball = jax.jit(enclosing_ball)(DenseGram(gram), np.zeros(N), np.ones(N))
        assert ball.result == RESULTS.successful and ball.share.dtype == jnp.float32
        share = np.asarray(ball.share)
    squared = share @ np.diag(gram) - share @ gram @ share
    np.testing.assert_allclose(squared, expected, rtol=1e-5)


def test_ball_reports_its_iteration_limit():
    gram = points_of("few on the ball")
    ball = enclosing_ball(DenseGram(gram), np.zeros(N), np.ones(N), 2)
    assert ball.result == RESULTS.iteration_limit and ball.gap > 1e-6
    criterion, model = RadiusMargin(max_iterations=2), machine(losses.Hinge)
    with pytest.raises(jsvm.FitError, match="max_iterations"):
        criterion(model, X, Y)
    assert np.isnan(criterion(model, X, Y, throw=False))


def smooth_bound(y, f):
    return jax.nn.sigmoid(-2 * y * f)


@pytest.mark.parametrize("loss", BOTH)
def test_gradients(loss):
    vector, unravel = ravel_pytree(machine(loss))
    x, y, weights = jnp.asarray(X), jnp.asarray(Y), jnp.asarray(WEIGHTS)
    direction = jnp.asarray(np.random.default_rng(1).normal(size=vector.shape))
    of_fit = [JaakkolaHaussler("smooth"), JaakkolaHaussler(smooth_bound)]
    if loss is losses.Hinge:
        of_fit.append(GACV())

    def values(v):
        model = unravel(v)
        gram = exact_gram(model.kernel, x)
        fitted = fit_gram(model, gram, x, y, weights)
        several = [criterion.of_fit(gram, fitted) for criterion in of_fit]
        data = Data(x, y, weights)
        several += [RadiusMargin(b).evaluate(model, data)[0] for b in ("exact", "bound")]
        return jnp.stack(several)

    @jax.jit
    def everything(v):
        value, pull = jax.vjp(values, v)
        return value, jax.vmap(pull)(jnp.eye(value.shape[0]))[0]

    _, gradients = everything(vector)
    plus, minus = (np.asarray(everything(vector + s * direction)[0]) for s in (1e-5, -1e-5))
    expected = (plus - minus) / 2e-5
    assert np.abs(expected).min() > 1e-4  # a derivative of zero proves nothing
    np.testing.assert_allclose(gradients @ direction, expected, rtol=1e-5)


def test_counts_have_no_gradient():
    model = machine(losses.Hinge)
    gradient = jax.jit(jax.grad(SupportVectorCount()))(model, X, Y, weights=WEIGHTS)
    assert all(np.all(np.asarray(leaf) == 0) for leaf in jax.tree.leaves(gradient))


def test_batches_of_models():
    criterion = RadiusMargin()
    models = [
        jsvm.KernelMachine(
            kernels.RBF(jnp.full(3, scale), 1.0) + kernels.Constant(0.5), losses.Hinge(c)
        )
        for scale, c in ((0.7, 3.0), (2.0, 0.3))
    ]
    stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
    batch = jax.jit(jax.vmap(lambda m: criterion(m, X, Y, throw=False)))(stack)
    np.testing.assert_allclose(batch, [criterion(m, X, Y) for m in models], rtol=1e-10)


def test_errors():
    squared = machine(losses.SquaredHinge)
    least = machine(losses.LeastSquares)
    free = jsvm.KernelMachine(KERNEL, losses.Hinge(1.0), offset=True)
    with pytest.raises(ValueError, match=r"GACV needs the loss Hinge.*Span"):
        GACV()(squared, X, Y)
    for criterion in (JaakkolaHaussler(), SupportVectorCount(), RadiusMargin()):
        name = type(criterion).__name__
        with pytest.raises(ValueError, match=f"{name} needs the loss Hinge or SquaredHinge"):
            criterion(least, X, Y)
    with pytest.raises(ValueError, match="does not hold for a free, unpenalized offset"):
        JaakkolaHaussler()(free, X, Y)
    with pytest.raises(ValueError, match="must be one of error, hinge"):
        JaakkolaHaussler("zero-one")
    with pytest.raises(ValueError, match='"exact" or "bound"'):
        RadiusMargin("smallest")
