"""Invalid options of samplers, optimizers, searches and criteria raise an error at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm import criteria, evidence, optimizers, priors, sampling, stopping

X = jnp.array([[0.0], [0.7], [1.1], [1.5]])
Y = jnp.array([1.0, -1.0, 1.0, -1.0])
MODEL = jsvm.KernelMachine(jsvm.kernels.RBF(0.8), jsvm.losses.SquaredHinge())
KEY = jax.random.key(0)


def select(**options):
    return jsvm.select(MODEL, X, Y, criteria.Span(), key=KEY, **options)


def sample(**options):
    return jsvm.sample(MODEL, X, Y, key=KEY, **options)


def ascend(**options):
    return jsvm.evidence_ascent(MODEL, X, Y, key=KEY, **options)


def draw(**options):
    return jsvm.sample_hyperparameters(MODEL, X, Y, key=KEY, **options)


COUNTS = {
    sampling.HMC: ["integration_steps"],
    sampling.NUTS: ["max_doublings"],
    sampling.MCLMC: ["integration_steps"],
    sampling.SGLD: ["batch", "steps"],
    evidence.Thermodynamic: ["temperatures", "chains", "warmup", "draws"],
    evidence.TemperedSMC: ["particles", "runs", "moves", "max_temperatures"],
    evidence.Bridge: ["chains", "warmup", "draws"],
    optimizers.lbfgs: ["memory_size", "window"],
    criteria.CrossValidation: ["folds"],
    criteria.LeaveOneOut: ["batch_size"],
    select: ["restarts", "max_steps"],
    sample: ["chains", "warmup", "draws"],
    jsvm.Nystrom: ["rank", "landmarks", "max_rank"],
    jsvm.RandomFourier: ["features"],
    stopping.SmallChange: ["patience"],
    stopping.ValidationStalled: ["patience"],
    stopping.Settled: ["steps"],
    ascend: ["chains", "warmup", "draws", "first_warmup", "restarts", "max_steps"],
    draw: ["chains", "warmup", "draws", "integration_steps"],
}  # fmt: skip
NUMBERS = {
    sampling.HMC: ["step_size", "target_acceptance", "jitter"],
    sampling.NUTS: ["step_size", "target_acceptance", "jitter"],
    sampling.MCLMC: ["step_size", "target_acceptance", "jitter"],
    sampling.SGLD: ["step_size"],
    evidence.Thermodynamic: ["power"],
    evidence.TemperedSMC: ["target_ess"],
    optimizers.lbfgs: ["max_move", "first_move"],
    optimizers.adaptive_rates: ["first_move", "max_move", "grow", "shrink", "decline", "rise", "turn"],
    optimizers.GreedyWalk: ["step", "factor", "step_tolerance"],
    criteria.Span: ["c1", "eta"],
    criteria.LaplaceEvidence: ["smoothing", "hinge_steepness"],
    select: ["starts", "seconds"],
    ascend: ["starts", "seconds"],
    jsvm.Nystrom: ["tolerance"],
    stopping.SmallGradient: ["tolerance"],
    stopping.SmallChange: ["tolerance"],
    stopping.GradientFallen: ["share"],
    stopping.Settled: ["share"],
}  # fmt: skip
ZERO_IS_FINE = ["warmup", "jitter", "turn", "smoothing", "starts", "tolerance", "seconds"]


def refused(make, name, value, error=ValueError):
    with pytest.raises(error, match=f"`{name}` must be"):
        make(**{name: value})


@pytest.mark.parametrize("make", COUNTS, ids=lambda make: make.__name__)
def test_counts_are_integers(make):
    for name in COUNTS[make]:
        values = [-1, 1.5, np.nan, np.inf, True, "3", 2.0]
        for value in values if name in ZERO_IS_FINE else [0, *values]:
            refused(make, name, value)


@pytest.mark.parametrize("make", NUMBERS, ids=lambda make: make.__name__)
def test_numbers_are_finite_and_in_their_range(make):
    for name in NUMBERS[make]:
        values = [np.nan, np.inf, -np.inf, -1.5, True, "3", 1j]
        for value in values if name in ZERO_IS_FINE else [0, 0.0, *values]:
            refused(make, name, value)


def test_weights_of_a_prior_are_positive():
    for name in ("zeta", "xi"):
        for value in (0.0, -1.0, np.nan, np.inf):
            refused(
                lambda **o: criteria.Regularized(criteria.PRESS(), priors.GaussianPenalty(), **o),
                name,
                value,
            )


@pytest.mark.parametrize("kind", [sampling.HMC, sampling.NUTS, sampling.MCLMC])
def test_switches_are_truth_values(kind):
    for name in ("rescale", "shorten_by_penalty"):
        refused(kind, name, 1.0, TypeError)


def test_numbers_of_numpy_are_numbers():
    method = sampling.HMC(np.int64(4), step_size=np.float32(0.1), jitter=np.float64(0.0))
    assert method.integration_steps == 4
    evidence.Thermodynamic(temperatures=np.int32(8), power=3)


def test_rules_are_those_of_the_library():
    with pytest.raises(TypeError, match=r"`stop` must hold rules of `jaxsvm\.stopping`"):
        select(stop=(stopping.SmallGradient(), 1e-5))
    with pytest.raises(ValueError, match="`share` must be"):
        stopping.GradientFallen(1.0)
