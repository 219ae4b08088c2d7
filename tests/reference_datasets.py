"""Shared by the tests of data sets: the generators, and statistics of a sample against their formulas."""

import math

import jax
import numpy as np

from jaxsvm import datasets

N = 20_000
ERRORS = 5.0  # how many standard errors are tolerated


class Laplace:
    """A stub of a noise model."""

    def sample_noise(self, shape, *, key):
        return 0.1 * jax.random.laplace(key, shape)


def _sinc(n, *, key):
    return datasets.sinc(n, noise=Laplace(), key=key)


def _robot_arm_six(n, *, key):
    return datasets.robot_arm(n, key=key, inputs=6)


GENERATORS = {
    "twonorm": (datasets.twonorm, 20, ()),
    "ringnorm": (datasets.ringnorm, 20, ()),
    "waveform": (datasets.waveform, 21, ()),
    "noisy_xor": (datasets.noisy_xor, 10, ()),
    "sinc": (_sinc, 1, ()),
    "robot_arm": (datasets.robot_arm, 2, (2,)),
    "robot_arm_six": (_robot_arm_six, 6, (2,)),
}
CLASSIFICATION = {"twonorm": 1 / 2, "ringnorm": 1 / 2, "waveform": 1 / 3, "noisy_xor": 1 / 2}


def draw(generator, seed=0, n=N, **options):
    x, y = generator(n, key=jax.random.key(seed), **options)
    return np.asarray(x, np.float64), np.asarray(y, np.float64)


def check_mean(sample, mean, variance):
    """The mean over rows is `mean` up to its standard error, column by column."""
    error = np.sqrt(np.asarray(variance) / len(sample))
    assert np.all(np.abs(sample.mean(axis=0) - mean) < ERRORS * error)


def check_gaussian(sample, mean, variance):
    check_mean(sample, mean, variance)
    # The squared deviation of a Gaussian has mean σ² and variance 2σ⁴.
    check_mean((sample - mean) ** 2, variance, 2 * np.asarray(variance) ** 2)


def check_uniform(sample, low, high):
    assert sample.min() >= low - 1e-6 and sample.max() <= high + 1e-6
    width = high - low
    check_mean(sample, (low + high) / 2, width**2 / 12)
    check_mean((sample - (low + high) / 2) ** 2, width**2 / 12, width**4 / 180)


def check_uncorrelated(a, b):
    assert abs(np.corrcoef(a, b)[0, 1]) < ERRORS / math.sqrt(len(a))


def arm(x):
    first, both = x[:, 0], x[:, 0] + x[:, 1]
    return np.stack(
        [2 * np.cos(first) + 1.3 * np.cos(both), 2 * np.sin(first) + 1.3 * np.sin(both)], axis=1
    )


def wave(peak):
    return np.array([max(6 - abs(i - peak), 0) for i in range(1, 22)], dtype=float)
