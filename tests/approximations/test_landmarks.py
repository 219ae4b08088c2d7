"""Nystrom's method: its options, and the choice of landmarks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compilations

import jaxsvm as jsvm
from jaxsvm.approximations import ApproximationWarning, Exact, Nystrom, choose_landmarks
from jaxsvm.approximations._landmarks import _add_pivots

X = jax.random.normal(jax.random.key(0), (12, 3))
KERNEL = jsvm.kernels.RBF(1.2, 2.0) + jsvm.kernels.Constant(0.3)
MODEL = jsvm.KernelMachine(KERNEL, jsvm.losses.Hinge())


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


@pytest.mark.parametrize("choice", ["random", "kmeans++", "pivoted", "randomly pivoted"])
def test_landmarks_are_different_examples(choice):
    doubled = jnp.concatenate([X, X])
    found = choose_landmarks(MODEL, doubled, 12, choice, jax.random.key(3))
    assert len(set(found.tolist())) == 12
    if choice != "random":  # the others take one of each pair first
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


def test_without_a_key_the_seed_decides():
    def chosen(approximation, key=None):
        return approximation.subspace(MODEL, X, key).landmarks.tolist()

    for choice in ("random", "kmeans++"):
        first = chosen(Nystrom(landmarks=6, choice=choice))
        assert first == chosen(Nystrom(landmarks=6, choice=choice, seed=0))
        assert first == chosen(Nystrom(landmarks=6, choice=choice, seed=5), jax.random.key(0))
        assert any(
            first != chosen(Nystrom(landmarks=6, choice=choice, seed=seed)) for seed in (1, 2, 3)
        )
    assert Exact().subspace(MODEL, X).whiten(KERNEL, X).factor.shape == (12, 12)
    for seed in (-1, 0.5, None, True):
        with pytest.raises(ValueError, match="`seed` must be an integer of at least 0"):
            Nystrom(5, seed=seed)


# ---------------------------------------------------------------------------- automatic rank


def automatic(kernel, x, **options):
    return Nystrom("auto", **options).subspace(jsvm.KernelMachine(kernel, jsvm.losses.Hinge()), x)


@pytest.mark.parametrize("tolerance", [0.1, 0.01, 1e-4])
def test_an_automatic_rank_meets_its_tolerance(tolerance, dtype):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(500, 2)), dtype)
    kernel = jsvm.kernels.Matern32(1.5, 2.0) + jsvm.kernels.Constant(0.1)
    subspace = automatic(kernel, x, tolerance=tolerance)
    unreachable = 0.002 if dtype == "float32" else 0.0  # as the docstring says
    assert float(subspace.whiten(kernel, x).error) <= max(tolerance, unreachable)
    assert subspace.landmarks.shape == (subspace.rank,) and subspace.rank % 32 == 0
    assert len(set(subspace.landmarks.tolist())) == subspace.rank
    # no block of landmarks too many: the best approximation needs half as many
    if subspace.rank > 32:
        values = np.linalg.eigvalsh(np.asarray(kernel.gram(x), float))[::-1]
        best = int(np.argmax(1 - np.cumsum(values) / values.sum() <= tolerance)) + 1
        assert subspace.rank <= 32 * -(-2 * best // 32)
    again = automatic(kernel, x, tolerance=tolerance)
    assert again.landmarks.tolist() == subspace.landmarks.tolist()


def test_an_automatic_rank_ends_where_the_kernel_does():
    x = jnp.asarray(np.random.default_rng(1).normal(size=(100, 3)))
    assert automatic(jsvm.kernels.Linear(2.0), x).rank == 3
    rough = automatic(jsvm.kernels.White(1.0), x[:40])  # all examples are needed
    assert rough.landmarks is None and rough.rank == 40


def test_few_programs_for_an_automatic_rank(keep_programs):
    x = jnp.asarray(np.random.default_rng(2).normal(size=(701, 4)))
    before = compilations(_add_pivots)
    rank = automatic(jsvm.kernels.Matern12(2.0), x, tolerance=0.1).rank
    assert 256 < rank <= 512 and compilations(_add_pivots) - before == 2  # for 256 and 512 pivots


def test_a_rank_that_is_too_low_is_reported():
    x = jnp.asarray(np.random.default_rng(3).normal(size=(200, 4)))
    message = (
        r"largest rank allowed, 50, loses \d\d\.\d+% of the prior's variance, .* raise `max_rank`"
    )
    with pytest.warns(ApproximationWarning, match=message):
        assert automatic(jsvm.kernels.Matern12(1.0), x, max_rank=50).rank == 50


def test_an_automatic_rank_needs_numbers():
    @jax.jit
    def factor(kernel, x):
        return automatic(kernel, x).whiten(kernel, x).factor

    with pytest.raises(ValueError, match=r"not known inside `jax\.jit`.*: give a number as `rank`"):
        factor(KERNEL, X)


def test_bad_options_of_an_automatic_rank():
    for options in ({"landmarks": 5}, {"choice": "random"}):
        with pytest.raises(ValueError, match="chooses its landmarks itself"):
            Nystrom("auto", **options)
    with pytest.raises(ValueError, match='`rank` must be a positive integer or "auto"'):
        Nystrom("all")
    assert Nystrom("auto", choice="randomly pivoted") == Nystrom("auto")


def test_a_large_offset_hides_no_loss():
    """Any low rank keeps an offset, whose variance would make the lost share as small as one likes."""
    x = np.random.default_rng(0).normal(size=(80, 2))
    y = np.where(x[:, 0] > 0, 1.0, -1.0)

    def lost(kernel):
        model = jsvm.KernelMachine(kernel, jsvm.losses.SquaredHinge())
        low = Nystrom(landmarks=tuple(range(10)))
        return float(jsvm.fit(model, x, y, approximation=low).stats.lost_variance)

    with pytest.warns(ApproximationWarning, match="loses"):
        without = lost(jsvm.kernels.RBF(0.7))
        large = lost(jsvm.kernels.Constant(1e4) + jsvm.kernels.RBF(0.7))
    assert without > 0.2
    assert without <= large < 1.3 * without  # it takes one of the ten landmarks to keep the offset


def test_a_large_offset_does_not_end_an_automatic_rank():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(300, 2)))

    def rank(kernel):
        model = jsvm.KernelMachine(kernel, jsvm.losses.SquaredHinge())
        return Nystrom("auto", tolerance=0.02).subspace(model, x).rank

    without = rank(jsvm.kernels.RBF(0.5))
    assert without > 32
    assert rank(jsvm.kernels.RBF(0.5) + jsvm.kernels.Constant(1e4)) >= without


@pytest.mark.parametrize("choice", ["kmeans++", "pivoted", "randomly pivoted"])
def test_the_last_rows_are_candidates(choice):
    """Nearly twice as many rows as candidates: the second half of them must not be left out."""
    rows = 39_999
    x = jnp.where(jnp.arange(rows) < rows // 2, 0.0, 5.0)[:, None]
    landmarks = choose_landmarks(MODEL, x, 2, choice, jax.random.key(0))
    assert np.asarray(x)[landmarks, 0].tolist() == [0.0, 5.0]
