"""The log evidence by bridge sampling between the posterior and a Gaussian fitted to it."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..linalg import solve_triangular
from ..runtime import filter_jit
from ..sampling import (
    MCLMC,
    SGLD,
    Diagnostics,
    Method,
    Setup,
    Target,
    begin_chains,
    diagnose,
    linearize_by_draws,
    require_method,
    run_chains,
    total_loss,
)
from ._estimate import LogEvidence, Path, as_log_evidence, check_counts

_MAX_LATENT = 10_000_000  # latent values in memory at a time
_ITERATIONS, _TOLERANCE = 1000, 1e-10
_LARGEST_SPREAD = 1.0  # of the chains' log evidences, in nats


@dataclasses.dataclass(frozen=True)
class Bridge:
    """Bridge sampling between the posterior and a Gaussian: `Z = E_g[h p] / E_p[h g]`.

    Here p is the posterior density without its normalizer, g is the Gaussian, and `h = 1 / (p + Z g)` is the
    best choice, found by iteration (X.-L. Meng and W. H. Wong, "Simulating ratios of normalizing constants
    via a simple identity", 1996). The Gaussian has the mean of half of the chains, and the covariance
    `(I + V' D V)^-1` with the mean curvatures D of the losses over their draws. The other half of the chains
    is compared with it, then the halves are swapped. Each chain gives an estimate. The standard error is
    that of one half, since both halves compare the same two means.

    One pass through the examples serves many draws, so this is the cheapest method for many examples, where
    the posterior is nearly Gaussian. If it is not, the estimates of the chains spread.

    **Arguments:**

    - `chains`: the number of chains, even and at least four.
    - `warmup`, `draws`: the numbers of draws of each chain, before and after it has adapted.
    - `sampler`: `jaxsvm.sampling.MCLMC(...)`, `HMC(...)` or `NUTS(...)`, or `SGLD(...)` for many examples,
      whose draws are biased, and so is the estimate.
    """

    chains: int = 8
    warmup: int = 200
    draws: int = 200
    sampler: Method | SGLD = MCLMC()  # noqa: RUF009, it is immutable

    def __post_init__(self) -> None:
        check_counts(self, chains=4, warmup=0, draws=8)
        if self.chains % 2:
            raise ValueError(f"`chains` must be even, but is {self.chains}: halves are compared")
        require_method("sampler", self.sampler, by_batches=True)


class BridgeDiagnostics(eqx.Module):
    """The quality of the chains, and of the Gaussian.

    `chains` are the `Diagnostics` of the chains, `spread` is the standard deviation of the estimates of the
    chains. `whitening_error` is the share of the prior's variance that a low rank loses.
    """

    chains: Diagnostics
    spread: Float[Array, ""]
    whitening_error: Float[Array, ""]


class _Ratios(NamedTuple):
    """`ln p - ln g` at the draws and at points drawn from g, for each chain."""

    draws: Float[Array, "draws chains"]
    points: Float[Array, "draws chains"]


def bridge(setup: Setup, method: Bridge, key) -> LogEvidence:
    """The log evidence by bridge sampling; problems are recorded without a warning."""
    ratios, loss, traces, step_size, whitening_error, batch_noise = _sampled(setup, method, key)
    chains = diagnose(
        traces,
        step_size,
        whitening_error,
        setup.representation.tolerance,
        batch_noise=batch_noise,
    )
    draws, points = (np.asarray(part, np.float64).T for part in ratios)
    pairs = [_partition(*pair) for pair in zip(draws, points, strict=True)]
    values = np.array([value for value, _ in pairs])
    spread = float(np.std(values, ddof=1))
    problems = chains.problems
    if not spread <= _LARGEST_SPREAD:
        problems.append(
            f"the chains do not agree (their log evidences spread by {spread:.2g} nats), so the posterior "
            'is far from a Gaussian: raise `draws`, or use `method="smc"`'
        )
    if not all(converged for _, converged in pairs):
        problems.append(f"the iteration for the bridge did not end in {_ITERATIONS} steps")
    column = jnp.ones((method.chains, 1), setup.y.dtype)
    return as_log_evidence(
        setup,
        log_partition=float(np.mean(values)),
        # the errors of the halves are not independent: the same two means are compared in both
        standard_error=spread / (method.chains / 2) ** 0.5,
        estimates=values,
        path=Path(column, jnp.mean(loss, axis=0)[:, None], column * values[:, None]),
        diagnostics=BridgeDiagnostics(chains, jnp.asarray(spread), whitening_error),
        problems=problems,
    )


@filter_jit
def _sampled(setup: Setup, method: Bridge, key):
    """The log ratios of each chain, the losses, the traces, and what else the diagnostics need."""
    whitening, target = setup.whiten()
    *run_keys, point_key, mode_key = jax.random.split(key, 4)
    sampler, count = method.sampler, method.chains
    shards = setup.representation.shards
    start = begin_chains(target, sampler, count, mode_key, shards=shards)
    drawn = run_chains(target, sampler, start, run_keys, method.warmup, method.draws, shards=shards)
    b, traces = drawn.b, drawn.complete_traces(_losses(target, drawn.b))
    loss = traces.loss
    halves = [slice(0, count // 2), slice(count // 2, count)]
    keys = jax.random.split(point_key)
    parts = [
        _ratios(target, b[:, one], b[:, other], loss[:, other], half_key)
        for one, other, half_key in zip(halves, halves[::-1], keys, strict=True)
    ]
    ratios = _Ratios(*(jnp.concatenate(columns, axis=1) for columns in zip(*parts, strict=True)))
    # the second half of the chains came first
    loss = jnp.concatenate([loss[:, halves[1]], loss[:, halves[0]]], axis=1)
    step_size = jnp.exp(drawn.chains.log_step)
    return ratios, loss, traces, step_size, whitening.error, drawn.batch_noise


def _ratios(target: Target, fitted, b, loss, key) -> _Ratios:
    """The ratios of some chains for the Gaussian of others; factors of `2 pi` cancel against the prior's."""
    root = linearize_by_draws(target, fitted).scaling.root
    center = jnp.mean(fitted, axis=(0, 1))
    log_volume = jnp.sum(jnp.log(jnp.abs(jnp.diag(root))))

    def ratio(loss, b, c):
        return -loss - jnp.sum(b**2, axis=-1) / 2 + jnp.sum(c**2, axis=-1) / 2 + log_volume

    flat = b.reshape(-1, b.shape[2]) - center[None]
    c = solve_triangular(root.T, flat.T, transposed=True).T.reshape(b.shape)
    noise = jax.random.normal(key, b.shape, b.dtype)
    points = center[None, None] + noise @ root.T
    return _Ratios(ratio(loss, b, c), ratio(_losses(target, points), points, noise))


def _losses(target: Target, b: Float[Array, "draws chains p"]) -> Float[Array, "draws chains"]:
    """The total loss of each draw, for as many draws at a time as fit into memory."""
    flat = b.reshape(-1, b.shape[2])
    size = max(_MAX_LATENT // target.y.shape[0], 1)

    def one(b):
        return total_loss(target, target.factor @ b)

    return jax.lax.map(one, flat, batch_size=min(size, len(flat))).reshape(b.shape[:2])


def _partition(draws: np.ndarray, points: np.ndarray) -> tuple[float, bool]:
    """`ln Z` by the best bridge for equally many draws and points, and whether the iteration has ended."""
    shift = np.median(draws)
    if not np.isfinite(draws).all() or np.isnan(points).any():
        return float("nan"), True
    with np.errstate(over="ignore"):
        above, below = np.exp(points - shift), np.exp(shift - draws)
    log_ratio = 0.0
    for _ in range(_ITERATIONS):
        ratio = np.exp(log_ratio)
        # 1 / (l + r) with l = 1 / below, written so that neither overflows
        top = np.mean(np.where(np.isinf(above), 1.0, above / (above + ratio)))
        bottom = np.mean(below / (1 + ratio * below))
        new = float(np.log(top) - np.log(bottom))
        if abs(new - log_ratio) < _TOLERANCE:
            return float(shift + new), True
        log_ratio = new
    return float(shift + log_ratio), False
