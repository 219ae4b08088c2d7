"""`sample_jointly`: draws of the latent function and the hyperparameters together."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from .._machine import KernelMachine
from ..approximations import AbstractApproximation, Exact, smoothed
from ..hyperparameters import restore_frozen, split_frozen
from ..priors import AbstractDistribution, AbstractPrior, Default, as_prior, unnamed
from ..results import FitError
from ..runtime import Progress
from ..selection import draw_starts
from ..validation import check_count
from ._chains import COORDINATES, Traces, kept_numbers
from ._diagnostics import diagnose, warn_of_problems
from ._joint_chains import JointChains, Rows, advance, rescale, rounds, start
from ._joint_posterior import JointPosterior, diagnose_jointly
from ._joint_target import JointTarget
from ._sample import KEPT
from ._samplers import HMC, Method
from ._setup import Setup, set_up

_SPREAD = 0.3  # of the chains' starts, so that they do not agree before they have moved


def sample_jointly(
    model: KernelMachine,
    x: Any,
    y: Any,
    *,
    key: Any,
    prior: AbstractPrior | Mapping[str, AbstractDistribution] | Callable[..., Any] | None = None,
    approximation: AbstractApproximation = Exact(),  # noqa: B008, it is immutable
    method: Method = HMC(integration_steps=10),  # noqa: B008, it is immutable
    chains: int = 4,
    warmup: int = 500,
    draws: int = 1000,
    keep_draws: bool = False,
    weights: Any = None,
    progress: bool | None = None,
) -> JointPosterior:
    """Draw the latent function and all hyperparameters that are not frozen from their joint posterior.

    With the unconstrained leaves h of the model, latent values `theta = V(h) b` at the examples, and
    `V(h) V(h)' = K(h)`, the density is

    `p(h, b | D) ~ p(h) exp(sum_i w_i ln Q(y_i | theta_i, h)) N(b; 0, I)`,

    where `ln Q(y | f, h) = log_normalizer(h) - L(y, f)`. So the normalizer of a noise model, which depends on
    its hyperparameters, is part of the density. Nothing is approximated but the kernel matrix if it is of low
    rank, unlike in `jaxsvm.sample_hyperparameters`, and no fit is needed.

    V is a Cholesky factor, so that theta is smooth in h (`approximations.CholeskySubspace`). Landmarks are
    chosen once. BlackJAX moves all chains at once, in coordinates that the warm-up adapts: given h, b is
    shifted and scaled by its posterior for Gaussian measurements of the latent values.

    **Arguments:**

    - `model`: the kernel machine, at hyperparameters near which chains begin; `jaxsvm.freeze` those that
      should not change. It must not have a free offset.
    - `x`, `y`, `weights`: the data, as for `jaxsvm.fit`.
    - `key`: a random key; the same key gives the same draws.
    - `prior`: as for `jaxsvm.select`, and proper; by default `jaxsvm.priors.Default()`.
    - `approximation`: as for `jaxsvm.sample`.
    - `method`: `jaxsvm.sampling.HMC(...)`, `NUTS(...)` or `MCLMC(...)`. With `rescale=False` the chains move
      in (h, b) as they are, which can be very slow.
    - `chains`: the number of chains.
    - `warmup`: the number of draws of each chain that adapt the step size and the coordinates.
    - `draws`: the number of draws of each chain after that.
    - `keep_draws`: whether to keep all draws of the function; otherwise about 100 of each chain are kept. All
      draws of the hyperparameters are kept. Memory for each chain is about 12 matrices of n x n numbers (8 of
      n x rank for a low rank) and a vector of rank numbers for each kept draw.
    - `progress`: whether to draw a progress bar; by default if standard error is a terminal.

    **Returns:** a `JointPosterior`. If anything is wrong with the chains, a `SamplingWarning` and
    `diagnostics.problems` say so.

    **Example:**

    >>> logistic = jsvm.KernelMachine(jsvm.kernels.RBF(), jsvm.losses.Logistic())
    >>> full = jsvm.sample_jointly(
    ...     jsvm.freeze(logistic, "loss.C"), x, y, key=jax.random.key(1), chains=2, draws=300
    ... )
    >>> sorted(full.parameters), full.parameters["kernel.lengthscale"].shape
    (['kernel.lengthscale', 'kernel.variance'], (2, 300))
    >>> full.probability(x).shape, full.diagnostics.problems
    ((30,), [])
    """
    setup, (start_key, chain_key) = set_up(
        model, x, y, weights, approximation=approximation, method=method, key=key, keys=2,
        chains=chains, warmup=warmup, draws=draws,
    )  # fmt: skip
    check_count("warmup", warmup, 20)
    _check(model, method)
    setup.model.loss.require_normalizer()
    target = _target(model, setup, prior)
    started = _start(target, method, chains, start_key)
    keep = draws if keep_draws else min(draws, KEPT)
    numbers = kept_numbers(draws, keep)
    with Progress(warmup + draws, "sampling", progress) as bar:
        state = _warm_up(target, method, started, jax.random.fold_in(chain_key, 0), warmup, bar)
        draw_key = jax.random.fold_in(chain_key, 1)
        rows, b = _draw(target, method, state, draw_key, draws, numbers, warmup, bar)
    _, unravel = ravel_pytree(target.empty)
    models = jax.vmap(jax.vmap(unravel))(jnp.asarray(np.swapaxes(rows.h, 0, 1)))
    models = restore_frozen(models, model)
    traces = _traces(rows)
    lost = jnp.asarray(np.nanmean(rows.lost))
    diagnostics = diagnose_jointly(models, diagnose(traces, jnp.exp(state.log_step), lost))
    warn_of_problems(diagnostics, "the joint draws should not be trusted as they are")
    return JointPosterior(
        models=models,
        b=jnp.asarray(np.swapaxes(b, 0, 1)),
        draw_numbers=jnp.asarray(numbers),
        log_posterior=jnp.asarray(rows.log_density.T),
        traces=traces,
        diagnostics=diagnostics,
        subspace=target.subspace,
        x=setup.x,
        y=setup.y,
        weights=setup.weights,
    )


def _check(model: KernelMachine, method: Method) -> None:
    if not jax.tree.leaves(model):
        raise ValueError(
            "all hyperparameters are frozen: there is nothing to sample but the function, which "
            "`jaxsvm.sample` does"
        )
    if method.shorten_by_penalty:
        raise ValueError(
            "`shorten_by_penalty` is for a penalty C that does not change: leave it out here"
        )


def _target(model: KernelMachine, setup: Setup, prior: Any) -> JointTarget:
    """The joint density, with all numbers in the precision of the data."""
    prior = Default() if prior is None else as_prior(prior)
    prepared = prior.prepare(model, setup.x, setup.y, setup.weights)
    missing = unnamed(prepared, model)
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        raise ValueError(
            f"the joint posterior needs a proper prior, but {names} {'have' if missing[1:] else 'has'} "
            "none: name all in the `prior`, or freeze them"
        )

    def cast(leaf):
        return jnp.asarray(leaf, setup.x.dtype)

    empty, fixed = split_frozen(model)
    kernel = jax.tree.map(cast, setup.model.kernel)
    return JointTarget(
        empty=jax.tree.map(cast, empty),
        fixed=jax.tree.map(cast, fixed),
        prior=jax.tree.map(cast, prepared),
        subspace=smoothed(setup.subspace, kernel, setup.x),
        x=setup.x,
        y=setup.y,
        weights=setup.weights,
    )


def _start(target: JointTarget, method: Method, chains: int, key: Any) -> JointChains:
    """All chains around the model, each where its density is not zero."""
    models = draw_starts(target.empty, _SPREAD, None, chains, key)
    h = jax.vmap(lambda model: ravel_pytree(model)[0])(models)
    for spread in (1.0, 0.1, 0.0):  # the first is the model itself
        begun = start(target, method, h[:1] + spread * (h - h[:1]))
        if np.isfinite(np.asarray(begun.state.logdensity)).all():
            return begun
    raise FitError(
        "no chain can start here: the density of the model is zero or not finite. Check the `prior` and "
        "the kernel matrix, or begin with another model"
    )


def _warm_up(
    target: JointTarget, method: Method, state: JointChains, key: Any, warmup: int, bar: Progress
) -> JointChains:
    """The chains after they have adapted their step size and their coordinates."""
    lengths, done = rounds(warmup, method), 0
    for number, length in enumerate(lengths):
        pieces, sums = [], 0.0
        round_key = jax.random.fold_in(key, number)
        for after, rows, part in advance(target, method, state, round_key, length, True):
            state, sums, done = after, sums + part, done + len(rows.h)
            pieces.append((rows.h, rows.log_size, rows.noise_variance))
            bar.update(done, f"step size {float(jnp.exp(state.log_step)):.2g}")
        if number + 1 < len(lengths):
            h, log_size, noise = map(np.concatenate, zip(*pieces, strict=True))
            noise = noise.mean().astype(h.dtype)
            columns = [jnp.asarray(array) for array in (h, log_size, sums / length, noise)]
            state = rescale(target, state, *columns)
    return state


def _draw(
    target: JointTarget, method: Method, state: JointChains, key: Any, draws: int,
    numbers: np.ndarray, done: int, bar: Progress,
) -> tuple[Rows, np.ndarray]:  # fmt: skip
    """The rows of all draws, with the leading entries of b, and b of the draws with these numbers."""
    pieces, kept, first = [], [], 0
    for _, rows, _ in advance(target, method, state, key, draws, False):
        here = numbers[(numbers >= first) & (numbers < first + len(rows.b))] - first
        kept.append(rows.b[here])
        pieces.append(rows._replace(b=rows.b[..., :COORDINATES]))
        first += len(rows.h)
        bar.update(done + first, f"acceptance {rows.acceptance.mean():.2f}")
    return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces), np.concatenate(kept)


def _traces(rows: Rows) -> Traces:
    return Traces(
        jnp.asarray(rows.loss),
        jnp.asarray(rows.penalty),
        jnp.asarray(rows.b),
        jnp.asarray(rows.energy),
        jnp.asarray(rows.acceptance),
        jnp.asarray(rows.divergent),
        jnp.asarray(rows.steps),
    )
