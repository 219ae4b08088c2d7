"""Errors on other data along the way, by fits that each start from the one before."""

import jax.numpy as jnp

from .._fit import fit_gram
from .._machine import KernelMachine
from .._parameters import unfreeze
from ..criteria import scores
from ..gram import exact_gram
from ..solvers import Start


def measure(model: KernelMachine, x, y, weights, start: Start, test, validation):
    """Where the next fit can start, and the errors on test and validation data.

    Shares of wrong labels, or mean squared errors of a regression; NaN where there are no such data.
    """
    nan = jnp.full((), jnp.nan, x.dtype)
    if test is None and validation is None:
        return start, nan, nan
    free = unfreeze(model)
    fitted = fit_gram(free, exact_gram(free.kernel, x), x, y, weights, start)

    def error(data):
        if data is None:
            return nan
        points, targets = data
        latent = free.kernel.matrix(points, x, same=False) @ fitted.dual + fitted.offset
        score = scores.error if free.loss.is_classifier else scores.squared
        return jnp.mean(score(targets, latent))

    return Start(fitted.dual, fitted.offset), error(test), error(validation)
