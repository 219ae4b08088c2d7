"""Exact gradients of the evidence, as averages over the posterior."""

from typing import Any, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._machine import KernelMachine
from ..approximations import AbstractApproximation, Exact
from ..fields import Frozen
from ..runtime import count_row_shards, filter_jit, jit
from ..sampling import (
    MCLMC,
    SGLD,
    Chains,
    Diagnostics,
    Method,
    Setup,
    begin_chains,
    diagnose,
    run_chains,
    set_up,
    warn_of_problems,
)
from ._by_rows import Route, gradients_of_chains


class EvidenceGradient(eqx.Module):
    """The gradient of the log evidence `ln Q(Y|X)`, and how far it can be trusted.

    `gradient` and `standard_error` are models, with one number for each unconstrained leaf, as from
    `jax.grad` (the leaf of a positive parameter is its logarithm). The standard error is that of the mean
    over the chains. `diagnostics` has the quality of the chains, and `chains` are the chains after the last
    draw.
    """

    gradient: KernelMachine
    standard_error: KernelMachine
    diagnostics: Diagnostics
    chains: Chains


def evidence_gradient(
    model: KernelMachine,
    x: Any,
    y: Any,
    *,
    key: Any,
    approximation: AbstractApproximation = Exact(),  # noqa: B008, it is immutable
    route: Route = "kernel",
    method: Method | SGLD = MCLMC(),  # noqa: B008, it is immutable
    chains: int = 8,
    warmup: int = 200,
    draws: int = 500,
    weights: Any = None,
) -> EvidenceGradient:
    """The gradient of the log evidence with respect to all hyperparameters that are not frozen, for any loss.

    For a parameter of the loss it is `n d ln kappa - <sum_i dL_i>` [GS03, eq. 18]. For a parameter of the
    kernel it is `-1/2 <u' dK K^-1 theta>` with the slopes `u_i = dL/dtheta_i` [GS03, eq. 20], which loses
    fewer digits than eq. 19. Brackets are posterior averages. All draws are kept, in white coordinates b.
    Then `<u b'>` and a reverse pass through the kernel, which gives all its derivatives, are computed for
    some examples at a time. The gradient is in nats for the whole data set (the paper divides by n).

    **Arguments:**

    - `model`, `x`, `y`, `weights`, `key`, `approximation`, `chains`, `warmup`, `draws`: as for
      `jaxsvm.sample`.
    - `method`: `jaxsvm.sampling.MCLMC(...)`, `HMC(...)` or `NUTS(...)`, or `SGLD(...)` for chains that see a
      batch of the examples at each step. All examples are then needed only a few times: to find the mode, to
      linearize the slopes, and once for `<u b'>` over all draws. The standard errors contain the noise of the
      batches, since each chain has its own.
    - `route`: `"kernel"` for eq. 20, which needs all `n^2` entries of the kernel matrix, some rows at a time,
      or `"fisher"` for Fisher's identity `<d ln p(y | V b)>` in white coordinates, which needs only the
      entries between examples and landmarks, so that time and memory grow like n. Both agree at full rank;
      at a low rank the papers use the first, and the second is the exact gradient of the low-rank machine's
      evidence.

    **Returns:** an `EvidenceGradient`. If anything is wrong, a `SamplingWarning` says so: a low rank that
    loses more than 1 % of the prior's variance, or than the tolerance of `jaxsvm.Nystrom`, chains that do not
    mix, or a loss with a wall, such as `losses.Trigonometric`, for which standard errors are unreliable.

    **Example:**

    >>> estimate = jsvm.evidence_gradient(model, x, y, key=jax.random.key(1))
    >>> estimate.gradient.loss.log_C.shape, bool(estimate.standard_error.loss.log_C > 0)
    ((), True)
    """
    setup, (run_key,) = set_up(
        model, x, y, weights, approximation=approximation, method=method, key=key, keys=1,
        by_batches=True, chains=chains, draws=draws, warmup=warmup,
    )  # fmt: skip
    check_route(route)
    require_local_rows(route, setup.x)
    check_gradient(setup.model, chains)
    gradients, state, traces, error, batch_noise = _sampled_gradient(
        setup, method, chains, warmup, draws, route, run_key
    )
    diagnostics = diagnose(
        traces,
        jnp.exp(state.log_step),
        error,
        setup.representation.tolerance,
        model.loss.has_wall,
        batch_noise,
    )
    warn_of_problems(diagnostics, "the gradient of the evidence should not be trusted as it is")
    mean, deviation = mean_and_error(gradients)
    return EvidenceGradient(
        gradient=_without_frozen(model, mean),
        standard_error=_without_frozen(model, deviation),
        diagnostics=diagnostics,
        chains=state,
    )


def check_route(route: Route) -> None:
    """Raise unless the route exists."""
    if route not in get_args(Route):
        raise ValueError(f"`route` must be one of {get_args(Route)}, not {route!r}")


def require_local_rows(route: Route, x: Float[Array, "n d"]) -> None:
    """Raise if a route needs the covariances of all pairs of examples, and devices share the examples."""
    if route == "kernel" and count_row_shards(x) > 1:
        raise ValueError(
            'the route "kernel" needs the covariances of all pairs of examples, which are divided among '
            'devices here: use `route="fisher"`'
        )


def check_gradient(model: KernelMachine, chains: int) -> None:
    """Raise unless the loss is a likelihood and the chains give a standard error."""
    model.loss.require_normalizer()
    if chains < 2:
        raise ValueError("a standard error needs at least two chains: raise `chains`")


@filter_jit
def _sampled_gradient(
    setup: Setup,
    method: Method | SGLD,
    chains: int,
    warmup: int,
    draws: int,
    route: Route,
    key: PRNGKeyArray,
):
    """The gradient by each chain, the chains, their traces, the lost variance, and the noise of batches."""
    whitening, target = setup.whiten()
    *run_keys, mode_key = jax.random.split(key, 3)
    shards = setup.representation.shards
    start = begin_chains(target, method, chains, mode_key, shards=shards)
    drawn = run_chains(target, method, start, run_keys, warmup, draws, shards=shards)
    by_chain = gradients_of_chains(setup, whitening.factor, drawn.b, route)
    traces = drawn.complete_traces(by_chain.loss)
    return by_chain.gradient, drawn.chains, traces, whitening.error, drawn.batch_noise


@jit
def mean_and_error(gradients: KernelMachine) -> tuple[KernelMachine, KernelMachine]:
    """The mean over chains, and its standard error."""
    chains = jax.tree.leaves(gradients)[0].shape[0]
    mean = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), gradients)
    error = jax.tree.map(lambda leaf: jnp.std(leaf, axis=0, ddof=1) / chains**0.5, gradients)
    return mean, error


def _without_frozen(model: KernelMachine, everything: KernelMachine) -> KernelMachine:
    """The unfrozen model `everything` in the structure of `model`, where frozen parameters are not leaves."""
    leaves, structure = jax.tree.flatten(model, is_leaf=lambda node: isinstance(node, Frozen))
    values = jax.tree.leaves(everything)
    kept = [
        leaf if isinstance(leaf, Frozen) else value
        for leaf, value in zip(leaves, values, strict=True)
    ]
    return structure.unflatten(kept)
