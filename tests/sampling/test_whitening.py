"""White coordinates: exact, by Nystrom's method, their derivatives, and the choice of landmarks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm.approximations import Exact, Nystrom, Subspace, choose_landmarks, whiten

X = jax.random.normal(jax.random.key(0), (12, 3))
KERNEL = jsvm.kernels.RBF(1.2, 2.0) + jsvm.kernels.Constant(0.3)
MARKS = jnp.array([0, 2, 3, 7, 8, 11])
MODEL = jsvm.KernelMachine(KERNEL, jsvm.losses.Hinge())


def test_exact_whitening_is_a_root_of_the_kernel_matrix():
    white = whiten(KERNEL, X, Subspace(None, 12))
    np.testing.assert_allclose(white.factor @ white.factor.T, KERNEL.gram(X), atol=1e-12)
    assert float(white.error) < 1e-12


def test_nystrom_against_its_formula():
    gram = np.asarray(KERNEL.gram(X))
    marks = np.asarray(MARKS)
    values, vectors = np.linalg.eigh(gram[np.ix_(marks, marks)])
    for rank in (2, 4, 6):
        kept = vectors[:, -rank:]
        inverse = kept @ np.diag(1 / values[-rank:]) @ kept.T
        literal = gram[:, marks] @ inverse @ gram[marks]
        white = whiten(KERNEL, X, Subspace(MARKS, rank))
        assert white.factor.shape == (12, rank)
        np.testing.assert_allclose(white.factor @ white.factor.T, literal, atol=1e-10)
        assert float(white.error) == pytest.approx(
            1 - np.trace(literal) / np.trace(gram), abs=1e-12
        )


def test_all_examples_as_landmarks_are_exact():
    white = whiten(KERNEL, X, Subspace(jnp.arange(12), 12))
    np.testing.assert_allclose(white.factor @ white.factor.T, KERNEL.gram(X), atol=1e-10)


def test_features_continue_the_factor_to_new_points():
    white = whiten(KERNEL, X, Subspace(MARKS, 4))
    rows, residual = white.features(KERNEL, X)
    np.testing.assert_allclose(rows, white.factor, atol=1e-12)
    np.testing.assert_allclose(residual, 2.3 - jnp.sum(rows**2, axis=1), atol=1e-12)
    new = jnp.array([[0.1, 0.2, -0.3]])
    exact = whiten(KERNEL, X, Subspace(None, 12))
    rows, residual = exact.features(KERNEL, new)
    cross, gram = np.asarray(KERNEL.cross(new, X))[0], np.asarray(KERNEL.gram(X))
    assert float(residual[0]) == pytest.approx(2.3 - cross @ np.linalg.solve(gram, cross), abs=1e-9)


def test_white_noise_belongs_to_the_examples_themselves():
    noisy = KERNEL + jsvm.kernels.White(0.5)
    white = whiten(noisy, X, Subspace(MARKS, 6))
    rows = np.asarray(white.factor)[np.asarray(MARKS)]
    expected = noisy.gram(X)[MARKS][:, MARKS]
    np.testing.assert_allclose(rows @ rows.T, expected, atol=1e-10)
    exact = whiten(noisy, X, Subspace(None, 12)).factor
    np.testing.assert_allclose(exact @ exact.T, noisy.gram(X), atol=1e-10)


def triangle():
    """Three points at equal distances, twice: two pairs of equal eigenvalues."""
    corners = jnp.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.75**0.5]])
    return jnp.concatenate([corners, corners + 50.0])


@pytest.mark.parametrize(
    "points, subspace",
    [
        (X, Subspace(None, 12)),
        (X, Subspace(MARKS, 4)),
        (triangle(), Subspace(None, 6)),
        (triangle(), Subspace(None, 2)),
        (jnp.concatenate([X[:5], X[:5]]), Subspace(None, 10)),
    ],
    ids=["exact", "nystrom", "equal eigenvalues", "equal and cut between groups", "duplicates"],
)
def test_derivatives_of_what_the_factor_stands_for(points, subspace):
    weight = jax.random.normal(jax.random.key(1), (points.shape[0],) * 2)

    def value(logs):
        kernel = jsvm.replace(KERNEL, {"left.lengthscale": jnp.exp(logs[0])})
        kernel = jsvm.replace(kernel, {"left.variance": jnp.exp(logs[1])})
        factor = whiten(kernel, points, subspace).factor
        return jnp.sum(weight * (factor @ factor.T))

    value = jax.jit(value)
    at = jnp.array([0.2, 0.5])
    gradient = jax.jit(jax.grad(value))(at)
    step = 1e-5
    for place in range(2):
        move = step * jnp.eye(2)[place]
        difference = (value(at + move) - value(at - move)) / (2 * step)
        assert float(gradient[place]) == pytest.approx(float(difference), rel=1e-6, abs=1e-7)


def test_pivoted_landmarks_against_a_loop():
    gram = np.asarray(KERNEL.gram(X))
    chosen = []
    for _ in range(5):
        if chosen:
            block = gram[np.ix_(chosen, chosen)]
            residual = np.diag(gram - gram[:, chosen] @ np.linalg.solve(block, gram[chosen]))
        else:
            residual = np.diag(gram)
        residual = np.where(np.isin(np.arange(12), chosen), -1, residual)
        chosen.append(int(np.argmax(residual)))
    found = choose_landmarks(MODEL, X, 5, "pivoted", jax.random.key(0))
    assert sorted(chosen) == found.tolist()


@pytest.mark.parametrize("choice", ["random", "kmeans++", "pivoted"])
def test_landmarks_are_different_examples(choice):
    doubled = jnp.concatenate([X, X])
    found = choose_landmarks(MODEL, doubled, 12, choice, jax.random.key(3))
    assert len(set(found.tolist())) == 12
    if choice != "random":  # these two take one of each pair first
        assert len({place % 12 for place in found.tolist()}) == 12


def test_bad_subspaces_are_refused():
    key = jax.random.key(0)
    for rank, landmarks, choice, message in (
        (7, 5, "random", "a rank of 7 needs at least as many landmarks"),
        (5, 13, "random", "13 landmarks are more than the 12 examples"),
        (0, None, "random", "`rank` must be a positive integer"),
        (2, [0, 0, 1], "random", "must be different indices of examples"),
        (2, [0, 12], "random", "0 to 11"),
        (2, 5, "best", "`choice` of landmarks must be one of"),
    ):
        with pytest.raises(ValueError, match=message):
            Nystrom(rank, landmarks, choice).subspace(MODEL, X, key)
    with pytest.raises(ValueError, match="needs a `rank`, or `landmarks`, or both"):
        Nystrom()


def test_subspaces():
    key = jax.random.key(0)
    for approximation, rank in ((Exact(), 12), (Nystrom(3), 3), (Nystrom(landmarks=12), 12)):
        found = approximation.subspace(MODEL, X, key)
        assert found.landmarks is None and found.rank == rank
    listed = Nystrom(landmarks=[1, 4]).subspace(MODEL, X, key)
    assert listed.landmarks is not None and listed.landmarks.tolist() == [1, 4]
    assert listed.rank == 2
    few = Nystrom(rank=2, landmarks=5).subspace(MODEL, X, key)
    assert few.landmarks is not None and few.landmarks.shape == (5,) and few.rank == 2
