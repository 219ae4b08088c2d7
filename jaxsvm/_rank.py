"""How much of a fit a low rank loses, and fits whose rank is chosen by that."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ._fit import Fit, as_data, fit
from ._machine import Machine
from .approximations import ApproximationWarning, Exact, Nystrom, Representation, represent
from .hyperparameters import unfreeze
from .runtime import gather_rows, jit, warn_user
from .validation import check_count, check_number

_ROWS = 16  # of the kernel matrix at a time


def lost_fit(fit: Fit, *, examples: int = 256, seed: int = 0) -> Float[Array, ""]:
    """The share of a fit that its low rank loses.

    With the coefficients of the fit, the exact machine has the latent values `K dual`, and the low rank
    `V V' dual`. This is the root mean square of their difference, divided by the standard deviation of the
    former, over random examples. It tends to zero as the fit tends to that of the exact machine. A fit may
    lose much more than the prior (`fit.stats.lost_variance`), since many examples also determine directions
    in which the prior has little variance. Each of the random examples takes time in proportion to n.

    **Arguments:** `fit`, from `jaxsvm.fit`; `examples`, the number of random examples; `seed`, for their
    choice.

    **Returns:** a number without a derivative, zero for an exact fit.

    **Example:**

    >>> low = jsvm.fit(model, x, y, approximation=jsvm.Nystrom(29))
    >>> bool(jsvm.lost_fit(low) < 0.1)
    True
    """
    check_count("examples", examples)
    check_count("seed", seed, 0)
    if fit.expansion is None:
        return jnp.zeros((), fit.latent.dtype)
    some = _some_present(fit.weights, examples, np.random.default_rng(seed))
    return _lost_fit(jax.lax.stop_gradient(unfreeze(fit.model).kernel), fit, jnp.asarray(some))


def _some_present(
    weights: Float[Array, " n"], count: int, random: np.random.Generator
) -> Int[np.ndarray, " m"]:
    """Random examples of positive weight, or all of them if there are fewer than `count`.

    Weights may be divided among processes, so only those of random rows are read.
    """
    examples = weights.shape[0]
    tried = min(2 * count, examples)
    while True:
        rows = random.choice(examples, tried, replace=False)
        present = rows[gather_rows(weights, rows) > 0]
        if len(present) >= count or tried == examples:
            return present[:count]
        tried = min(4 * tried, examples)


@jit
def _lost_fit(kernel, fit: Fit, some: Int[Array, " m"]) -> Float[Array, ""]:
    def exact(index):
        # an example with itself: only there is white noise
        point = fit.x[index][None, :]
        row = kernel.matrix(point, fit.x, same=False)[0]
        return row.at[index].set(kernel.diagonal(point)[0]) @ fit.dual

    values = jax.lax.map(exact, some, batch_size=_ROWS)
    difference = values - (fit.latent[some] - fit.offset)
    deviation = jnp.std(values)
    share = jnp.sqrt(jnp.mean(difference**2)) / jnp.where(deviation > 0, deviation, 1.0)
    return jax.lax.stop_gradient(share)


def fit_to_tolerance(
    model: Machine,
    x: Any,
    y: Any,
    *,
    tolerance: float = 0.05,
    first_rank: int = 100,
    max_rank: int = 2000,
    seed: int = 0,
    weights: Any = None,
    **options: Any,
) -> Fit[Machine]:
    """Fit with a rank so large that little of the fit is lost.

    The rank is doubled until `lost_fit` is at most the tolerance. Landmarks are chosen by randomly pivoted
    Cholesky, and each fit starts from the one before. No warning says what the prior loses;
    `stats.lost_variance` has it.

    **Arguments:**

    - `model`, `x`, `y`, `weights`: as for `jaxsvm.fit`.
    - `tolerance`: the largest value of `lost_fit`, positive.
    - `first_rank`, `max_rank`: the smallest and the largest rank. If the largest loses more than the
      tolerance, an `ApproximationWarning` says so.
    - `seed`: for the choice of landmarks and of the examples by which `lost_fit` is measured.
    - `options`: others of `jaxsvm.fit`.

    **Returns:** a `Fit`, exact if the rank has reached the number of examples.

    **Example:**

    >>> fitted = jsvm.fit_to_tolerance(model, x, y, tolerance=0.1, first_rank=8)
    >>> bool(jsvm.lost_fit(fitted) <= 0.1)
    True
    """
    check_number("tolerance", tolerance, above=0)
    check_count("first_rank", first_rank)
    check_count("max_rank", max_rank, first_rank)
    x, y, weights = as_data(model, x, y, weights)
    rank, init = first_rank, options.pop("init", None)
    run = partial(fit, model, x, y, weights=weights, **options)
    while True:
        if rank >= x.shape[0]:
            return run(approximation=Exact(), init=init)
        low = represent(Nystrom(rank, choice="randomly pivoted", seed=seed), model, x)
        fitted = run(
            approximation=Representation(low.kept, tolerance=1.0, shards=low.shards), init=init
        )
        lost = float(lost_fit(fitted, seed=seed))
        if lost <= tolerance:
            return fitted
        if rank == max_rank:
            warn_user(
                f"a rank of {rank} loses {lost:.1%} of the fit, more than the tolerance of {tolerance:.1%}: "
                "raise `max_rank` or `tolerance`",
                ApproximationWarning,
            )
            return fitted
        rank, init = min(2 * rank, max_rank), fitted
