"""Comparison of machines: against exact marginal likelihoods, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from reference import rbf

import jaxsvm as jsvm
from jaxsvm.evidence import Bridge

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(20, 2))
Y = np.sin(2 * X[:, 0]) + 0.3 * RANDOM.normal(size=20)
SHORT = Bridge(chains=16, warmup=60, draws=60)
KEY = jax.random.key(0)


def machine(lengthscale, noise=0.1):
    return jsvm.KernelMachine(jsvm.kernels.RBF(lengthscale, 2.0), jsvm.losses.Quadratic(noise))


def exact(lengthscale, noise=0.1):
    covariance = rbf(X, lengthscale, 2.0, 0.0) + noise * np.eye(20)
    return scipy.stats.multivariate_normal.logpdf(Y, np.zeros(20), covariance)  # pyright: ignore


@pytest.fixture(scope="module")
def compared():
    search = jsvm.select(machine(1.0), X, Y, jsvm.criteria.LaplaceEvidence(), max_steps=20)
    machines = {"short": machine(0.3), "medium": machine(1.2), "selected": search}
    return search.model, jsvm.compare(machines, X, Y, key=KEY, method=SHORT)


def test_the_values_are_those_of_a_gaussian_process(compared):
    selected, found = compared
    values = jsvm.parameters(selected)
    covariance = rbf(X, float(values["kernel.lengthscale"]), float(values["kernel.variance"]), 0.0)
    covariance += float(values["loss.noise_variance"]) * np.eye(20)
    true = {
        "short": exact(0.3),
        "medium": exact(1.2),
        "selected": scipy.stats.multivariate_normal.logpdf(Y, np.zeros(20), covariance),  # pyright: ignore
    }
    wanted = np.array([true[name] for name in found.names])
    error = np.asarray(found.standard_error)
    assert np.all((error > 0) & (error < 0.2))
    assert np.all(np.abs(found.log_evidence - wanted) < 4 * error)
    assert not found.problems


def test_fitted_hyperparameters_count_and_the_best_is_first(compared):
    _, found = compared
    assert dict(zip(found.names, found.fitted, strict=True)) == {
        "short": 0, "medium": 0, "selected": 3,
    }  # fmt: skip
    score = np.asarray(found.log_evidence) - found.fitted
    np.testing.assert_allclose(found.score, score)
    assert np.all(np.diff(score) <= 0) and found.best == found.names[0]
    np.testing.assert_allclose(found.behind, score[0] - score)
    np.testing.assert_allclose(found.probability, np.exp(score) / np.exp(score).sum())
    squared = np.asarray(found.standard_error) ** 2
    np.testing.assert_allclose(found.behind_error[1:] ** 2, squared[1:] + squared[0])


def test_the_table_names_each_machine_once(compared):
    _, found = compared
    lines = str(found).splitlines()
    assert len(lines) == 4
    assert [line.split()[0] for line in lines[1:]] == list(found.names)
    assert len({len(line) for line in lines}) == 1, "columns are aligned"


def test_problems_name_their_machine():
    few = Bridge(chains=4, warmup=0, draws=8)
    with pytest.warns(jsvm.sampling.SamplingWarning):
        found = jsvm.compare({"rough": machine(0.5)}, X, Y, key=KEY, method=few)
    assert found.problems and all(line.startswith("rough: ") for line in found.problems)
    assert f"PROBLEM: {found.problems[0]}" in str(found)


def test_errors_say_what_to_do():
    hinge = jsvm.KernelMachine(jsvm.kernels.RBF(1.0), jsvm.losses.Hinge(1.0))
    with pytest.raises(TypeError, match="dictionary of machines by name"):
        jsvm.compare([hinge], X, Y, key=KEY)  # pyright: ignore
    with pytest.raises(TypeError, match="not 'one' to float"):
        jsvm.compare({"one": 1.0}, X, Y, key=KEY)  # pyright: ignore
    with pytest.raises(ValueError, match="labels with losses of targets"):
        jsvm.compare({"one": hinge, "two": machine(1.0)}, X, np.sign(Y), key=KEY)


def test_a_frozen_hyperparameter_is_not_fitted():
    model = jsvm.freeze(machine(1.0), "loss")
    search = jsvm.select(model, X, Y, jsvm.criteria.LaplaceEvidence(), max_steps=2)
    assert jsvm.compare({"one": search}, X, Y, key=KEY, method=SHORT).fitted == (2,)
    assert jnp.isclose(
        1.0, jsvm.compare({"one": search}, X, Y, key=KEY, method=SHORT).probability[0]
    )
