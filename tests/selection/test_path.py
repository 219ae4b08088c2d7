"""Noisy gradients: their integral along the path, rules that end a search, and the mean of models."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats
from jax.flatten_util import ravel_pytree

import jaxsvm as jsvm
from jaxsvm import RESULTS, criteria, kernels, losses, stopping
from jaxsvm.criteria import Observation, Traits

X = jnp.linspace(-1, 1, 6)[:, None]
Y = jnp.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
MODEL = jsvm.KernelMachine(kernels.RBF(2.0, 3.0), losses.Hinge(0.5))  # three leaves
CHAINS = 6


def parabola(model):
    """A function of the leaves with a minimum of zero at zero, where all hyperparameters are one."""
    leaves = ravel_pytree(model)[0]
    return jnp.sum(jnp.array([1.0, 4.0, 9.0]) * leaves**2) / 2


class Noisy(criteria.AbstractObjective):
    """The gradient of a parabola, as chains estimate it whose noise carries over from step to step."""

    noise: float = eqx.field(static=True, default=0.0)
    averaged: float = eqx.field(static=True, default=0.0)

    @property
    def traits(self) -> Traits:
        return Traits(
            has_value=False, is_random=True, steps_at_once=5, chains=CHAINS, averaged=self.averaged
        )

    def check(self, model: Any, x: Any, y: Any) -> None:
        pass

    def prepare(self, model: Any, data: Any, key: Any) -> "Noisy":
        return self

    def init(self, model: Any, data: Any, key: Any) -> Any:
        return self.noise * jax.random.normal(key, (CHAINS, 3))

    def observe(self, model: Any, data: Any, memory: Any, key: Any) -> Observation:
        fresh = self.noise * jax.random.normal(key, (CHAINS, 3))
        noise = 0.8 * memory + 0.6 * fresh  # keeps its variance
        flat, unravel = ravel_pytree(jax.grad(parabola)(model))
        by_chain = flat[None] + noise
        error = jnp.std(by_chain, axis=0, ddof=1) / CHAINS**0.5
        return Observation(
            value=jnp.full((), jnp.nan),
            gradient=unravel(jnp.mean(by_chain, axis=0)),
            standard_error=unravel(error),
            result=jnp.zeros((), jnp.int32),
            memory=noise,
            info={},
            by_chain=jax.vmap(unravel)(by_chain),
        )

    def compare(self, model: Any, data: Any, key: Any) -> float:
        return float(parabola(model))

    def problems(self, model: Any, info: Mapping[str, Any], end: int) -> tuple[str, ...]:
        return ()


SGD = optax.sgd(0.05)


def search(objective, key=0, **options):
    given = {"optimizer": SGD, "stop": (), "max_steps": 20} | options
    return jsvm.select(MODEL, X, Y, objective, key=jax.random.key(key), **given)


def values_along(found):
    """The parabola at each step."""
    rows = found.history.parameters
    logs = np.stack([np.log(np.asarray(column)[0]) for column in rows.values()], axis=1)
    order = [list(rows).index(name) for name in jsvm.parameters(MODEL)]
    return logs[:, order] ** 2 @ np.array([1.0, 4.0, 9.0]) / 2


def test_the_integral_of_a_linear_gradient_is_exact():
    """With detours, as of steps that an optimizer discards."""
    for optimizer in (SGD, jsvm.optimizers.adaptive_rates(first_move=1.0)):
        found = search(Noisy(), optimizer=optimizer)
        values = values_along(found)
        np.testing.assert_allclose(found.history.change[0], values - values[0], atol=1e-12)
        np.testing.assert_allclose(found.history.change_error[0], 0.0, atol=1e-12)


def deviation_and_error(found):
    """By how much the integral to the end is wrong, and its standard error."""
    values, record = values_along(found), found.history
    wrong = np.asarray(record.change)[0, -1] - (values[-1] - values[0])
    return wrong, np.asarray(record.change_error)[0, -1]


def test_the_error_of_the_integral_holds_for_noise_that_carries_over():
    """Over 60 keys the deviations in standard errors have Student's distribution, on a given path."""
    blind = optax.stateless(lambda _, model: jax.tree.map(lambda leaf: -0.05 * leaf, model))
    pairs = [deviation_and_error(search(Noisy(0.5), key, optimizer=blind)) for key in range(60)]
    scores = [wrong / error for wrong, error in pairs]
    assert scipy.stats.kstest(scores, scipy.stats.t(CHAINS - 1).cdf).pvalue > 0.01


def test_moves_that_follow_noise_seem_to_gain_a_little():
    """A move `-rate (g + e)` with the noise e seems to gain at most `rate |e|^2` more than it does."""
    wrong = np.array([deviation_and_error(search(Noisy(0.5), key))[0] for key in range(60)])
    mean, error = wrong.mean(), wrong.std(ddof=1) / 60**0.5
    most = 19 * 0.05 * 3 * 0.5**2 / CHAINS
    assert -most - 3 * error < mean < 3 * error


def test_changes_of_a_criterion_are_differences_of_its_values():
    found = jsvm.select(MODEL, X, Y, criteria.LaplaceEvidence(), max_steps=6, throw=False)
    value = np.asarray(found.history.value)[0]
    np.testing.assert_allclose(found.history.change[0], value - value[0], atol=1e-12)
    np.testing.assert_array_equal(found.history.change_error[0], np.zeros(len(value)))


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_small_gain_literally(noise):
    """The first step whose gain over the last five is small, or hidden by noise, from the eleventh on."""
    rule = stopping.SmallGain(gain=0.05, steps=5)
    found = search(Noisy(noise), stop=rule, max_steps=200)
    change = np.asarray(search(Noisy(noise), max_steps=200).history.change)[0]
    gains = change[:-5] - change[5:]
    steps = int(found.history.steps[0])
    assert RESULTS(int(found.result)) == RESULTS.small_gain and 10 < steps < 200
    if noise == 0:
        first = np.flatnonzero((gains <= 0.05) & (np.arange(5, 200) >= 10))[0]
        assert steps == first + 6
    else:  # well before the gain itself is so small, which noise does not allow to be seen
        assert gains[steps - 6] <= max(
            0.05, 3 * np.asarray(found.history.change_error)[0, steps - 1]
        )


def test_a_gain_of_zero_ends_only_in_noise():
    still_falling = search(Noisy(), stop=stopping.SmallGain(gain=0.0), max_steps=100)
    assert RESULTS(int(still_falling.result)) == RESULTS.iteration_limit
    hidden = search(Noisy(1.0), stop=stopping.SmallGain(gain=0.0), max_steps=200)
    assert RESULTS(int(hidden.result)) == RESULTS.small_gain


def test_each_component_has_its_own_peak():
    """[GS05, sec. IV] with gradients normalized one by one, against a loop over the history."""
    found = search(Noisy(), stop=stopping.GradientFallen(0.15, each=True), max_steps=100)
    columns = [np.abs(np.asarray(column)[0]) for column in found.history.gradient.values()]
    magnitudes = np.stack(columns, axis=1)
    ratios = magnitudes / np.maximum.accumulate(magnitudes, axis=0)
    assert np.all(ratios[:-1].mean(axis=1) > 0.15) and ratios[-1].mean() <= 0.15
    shared = search(Noisy(), stop=stopping.GradientFallen(0.15), max_steps=100)
    assert int(shared.history.steps[0]) < int(found.history.steps[0])


def test_the_end_is_the_mean_of_models_near_the_minimum():
    """It is nearer to the minimum than the models are, on the average over keys."""
    last, mean = [], []
    options = {"max_steps": 80, "optimizer": optax.sgd(0.1)}
    for key in range(20):
        averaged = search(Noisy(0.7, averaged=0.5), key, **options)
        assert float(parabola(averaged.model)) < float(parabola(MODEL))
        mean.append(float(parabola(averaged.model)))
        last.append(float(values_along(averaged)[-1]))
        change = np.asarray(averaged.history.change)[0]
        near = np.flatnonzero(change <= change.min() + 0.5)
        assert int(averaged.history.end[0]) == near[-1]
        for name, column in averaged.history.parameters.items():
            expected = np.exp(np.mean(np.log(np.asarray(column)[0, near])))
            np.testing.assert_allclose(jsvm.parameters(averaged.model)[name], expected, rtol=1e-10)
    assert np.mean(mean) < np.mean(last) / 2


def test_with_validation_data_their_error_chooses_the_end():
    found = search(Noisy(0.5, averaged=0.5), validation=(X, Y), max_steps=5)
    end = int(found.history.end[0])
    assert end == np.argmin(np.asarray(found.history.validation_error)[0])
    for name, column in found.history.parameters.items():
        np.testing.assert_allclose(jsvm.parameters(found.model)[name], column[0, end], rtol=1e-10)
