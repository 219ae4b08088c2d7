"""Sampling the posterior of the latent function: `sample`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._fit import as_data
from .._machine import KernelMachine
from .._parameters import unfreeze
from ..approximations import (
    AbstractApproximation,
    Exact,
    Subspace,
    Whitening,
    require_approximation,
    whiten,
)
from ..runtime import Progress, filter_jit
from ..validation import check_count
from ._chains import Averages, Chains, Traces, draw, kept_places, start_chains, warm_up
from ._diagnostics import diagnose, warn_of_problems
from ._methods import HMC, NUTS, Method
from ._posterior import Posterior
from ._target import Target

_LOOKS, _SHORTEST_PIECE = 20, 50  # of the host at a long run, and draws between two of them
_KEPT = 100  # draws of each chain for predictions, about, unless all are kept


def sample(
    model: KernelMachine,
    x: Any,
    y: Any,
    *,
    key: Any,
    approximation: AbstractApproximation = Exact(),  # noqa: B008, it is immutable
    method: Method = HMC(),  # noqa: B008, it is immutable
    chains: int = 8,
    warmup: int = 200,
    draws: int = 500,
    keep_draws: bool = False,
    weights: Any = None,
    progress: bool | None = None,
) -> Posterior:
    """Draw from the posterior of the latent function.

    Its density is in proportion to `exp(-sum_i L(y_i, theta_i)) N(theta; 0, K)`. BlackJAX moves all chains
    at once, in coordinates in which the prior is white: `theta = V b`, exact or by Nystrom's method.
    [GS03, sec. 4.2; GS05]. The chains begin at the mode, which is the fit but for kinks that are rounded off.

    **Arguments:**

    - `model`, `x`, `y`, `weights`: as for `jaxsvm.fit`; no free offset, whose prior would be improper.
    - `key`: of JAX's random numbers; the same key gives the same draws.
    - `approximation`: of the kernel matrix. `jaxsvm.Exact()`, the default, has as many white coordinates as
      there are examples; `jaxsvm.Nystrom(rank=...)` has fewer.
    - `method`: `jaxsvm.sampling.HMC(...)` or `NUTS(...)`.
    - `chains`, `warmup`, `draws`: how many chains, and of each how many draws to learn the step size
      and the widths of the posterior from, and to average over.
    - `keep_draws`: whether to keep all draws; otherwise about 100 of each chain, and memory does not
      grow with `draws` (but for about ten numbers of each draw, for the diagnostics).
    - `progress`: whether to draw a progress bar; by default if standard error is a terminal.

    **Returns:** a `Posterior`. A `SamplingWarning` says what is wrong with the chains, if anything is, as do
    `diagnostics.problems`: among others fewer than 8 draws of each chain, which cannot be judged, and a low
    rank that loses more than 1 % of the prior's variance.

    **Example:**

    >>> posterior = jsvm.sample(model, x, y, key=jax.random.key(1))
    >>> mean, deviation = posterior.latent(x)
    >>> posterior.probability(x).shape, posterior.diagnostics.problems
    ((30,), [])
    """
    x, y, weights = as_data(model, x, y, weights)
    check_sampler(model, method, chains=chains, draws=draws, warmup=warmup)
    require_approximation(approximation)
    mark_key, warm_key, draw_key = jax.random.split(key, 3)
    subspace = approximation.subspace(model, x, mark_key)
    setup = Setup(unfreeze(model), x, y, weights, subspace)

    count = _pieces(draws)
    length = draws // count
    keep = length if keep_draws else min(length, -(-_KEPT // count))
    pieces = []
    with Progress(warmup + draws, "sampling", progress) as bar:
        whitening, state = begin(setup, method, chains)
        state = _warm_up(setup, whitening, method, state, warm_key, warmup)
        bar.update(warmup, f"step size {float(jnp.exp(state.log_step)):.2g}")
        for number in range(count):
            piece_key = jax.random.fold_in(draw_key, number)
            state, means, traces, kept = _draw(
                setup, whitening, method, state, piece_key, length, keep
            )
            pieces.append((means, traces, kept))
            acceptance = float(jnp.mean(traces.acceptance))
            bar.update(warmup + (number + 1) * length, f"acceptance {acceptance:.2f}")
    means, traces, kept = _join(pieces)
    diagnostics = diagnose(traces, jnp.exp(state.log_step), whitening.error)
    warn_of_problems(diagnostics, "the draws from the posterior should not be trusted as they are")
    b = jnp.swapaxes(kept, 0, 1)
    of_piece = kept_places(length, keep)
    places = np.concatenate([number * length + of_piece for number in range(count)])
    return Posterior(
        model, x, y, weights, whitening, b, means, traces, diagnostics, state, jnp.asarray(places)
    )


class Setup(NamedTuple):
    """Model and data of a run.

    `model` has all hyperparameters free; `x`, `y` and `weights` are the data; `subspace` is the part of the
    kernel matrix that is kept.
    """

    model: KernelMachine
    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    subspace: Subspace


def check_sampler(model: KernelMachine, method: Method, **counts: int) -> None:
    """Raise a clear error where there is no posterior to draw from, or counts make no sense.

    **Arguments:** `model`, the kernel machine; `method`, of sampling; `counts`, by name.
    """
    if model.offset:
        raise ValueError(
            "the posterior is not defined for a free, unpenalized offset: use `offset=False` and add a "
            "`Constant` kernel, whose variance is that of the offset"
        )
    if not isinstance(method, HMC | NUTS):
        raise TypeError(
            f"`method` must be `sampling.HMC(...)` or `sampling.NUTS(...)`, not {method!r}"
        )
    for name, count in counts.items():
        check_count(name, count, 0 if name == "warmup" else 1)


def target_of(setup: Setup, whitening: Whitening) -> Target:
    """The posterior in white coordinates.

    **Arguments:** `setup`, model and data; `whitening`, of its kernel.

    **Returns:** a `Target`.
    """
    return Target(setup.model.loss, whitening.factor, setup.y, setup.weights)


@filter_jit
def begin(setup: Setup, method: Method, chains: int) -> tuple[Whitening, Chains]:
    """The whitening, and all chains at the mode."""
    whitening = whiten(setup.model.kernel, setup.x, setup.subspace)
    return whitening, start_chains(target_of(setup, whitening), method, chains)


@filter_jit
def _warm_up(setup, whitening, method, state, key, draws) -> Chains:
    return warm_up(target_of(setup, whitening), method, state, key, draws)


@filter_jit
def _draw(setup, whitening, method, state, key, draws, keep):
    return draw(target_of(setup, whitening), method, state, key, draws, keep)


def _pieces(draws: int) -> int:
    """In how many equal pieces to draw, between which the host looks; one length is compiled once."""
    most = max(min(_LOOKS, draws // _SHORTEST_PIECE), 1)
    return next(count for count in range(most, 0, -1) if draws % count == 0)


def _join(pieces) -> tuple[Averages, Traces, Any]:
    means = jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *(piece[0] for piece in pieces))
    traces = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *(piece[1] for piece in pieces))
    return means, traces, jnp.concatenate([piece[2] for piece in pieces])
