"""What a low rank loses of a fit, against plain matrices, and fits whose rank is chosen by it."""

import jax
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm.approximations import ApproximationWarning

X, Y = jsvm.datasets.twonorm(60, key=jax.random.key(1))
X = X[:, :3]
KERNEL = jsvm.kernels.RBF(2.0, 1.5) + jsvm.kernels.Constant(7.0) + jsvm.kernels.White(0.2)
MODEL = jsvm.KernelMachine(KERNEL, jsvm.losses.SquaredHinge(2.0))


@pytest.mark.parametrize("correct", [False, True])
@pytest.mark.filterwarnings("ignore::jaxsvm.approximations.ApproximationWarning")
def test_lost_fit_against_plain_matrices(correct):
    weights = np.where(np.arange(60) < 45, 1.5, 0.0)
    low = jsvm.Nystrom(10, list(range(20)))
    low = jsvm.Corrected(low) if correct else low
    fitted = jsvm.fit(MODEL, X, Y, weights=weights, approximation=low)
    exact = np.asarray(KERNEL.gram(X)) @ np.asarray(fitted.dual)
    difference = (exact - np.asarray(fitted.gram().dense()) @ np.asarray(fitted.dual))[:45]
    expected = np.sqrt(np.mean(difference**2)) / np.std(exact[:45])
    assert expected > 0.01
    np.testing.assert_allclose(jsvm.lost_fit(fitted), expected, rtol=1e-9)
    few = [float(jsvm.lost_fit(fitted, examples=20, seed=seed)) for seed in range(30)]
    assert abs(np.mean(few) - expected) < 4 * np.std(few) / 30**0.5 + 0.05 * expected


def test_nothing_of_an_exact_fit_is_lost():
    assert jsvm.lost_fit(jsvm.fit(MODEL, X, Y)) == 0


def test_the_rank_grows_until_little_is_lost():
    fits = [
        jsvm.fit_to_tolerance(MODEL, X, Y, tolerance=tolerance, first_rank=5)
        for tolerance in (0.5, 1e-9)
    ]
    assert fits[0].expansion.coefficients.shape[0] < 60 and jsvm.lost_fit(fits[0]) <= 0.5
    assert fits[1].expansion is None  # no lower rank than that of the whole matrix is enough
    np.testing.assert_allclose(fits[1].dual, jsvm.fit(MODEL, X, Y).dual, atol=1e-9)


def test_a_rank_that_is_too_low_is_reported():
    with pytest.warns(ApproximationWarning, match="a rank of 12 loses .* of the fit, more than"):
        fitted = jsvm.fit_to_tolerance(MODEL, X, Y, tolerance=1e-9, first_rank=5, max_rank=12)
    assert fitted.expansion.coefficients.shape[0] == 12


def test_bad_tolerances_and_ranks():
    with pytest.raises(ValueError, match="`tolerance` must be"):
        jsvm.fit_to_tolerance(MODEL, X, Y, tolerance=0.0)
    with pytest.raises(ValueError, match="`max_rank` must be an integer of at least 100"):
        jsvm.fit_to_tolerance(MODEL, X, Y, max_rank=50)
    with pytest.raises(ValueError, match="`examples` must be"):
        jsvm.lost_fit(jsvm.fit(MODEL, X, Y), examples=0)
