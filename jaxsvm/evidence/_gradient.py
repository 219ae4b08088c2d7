"""Exact gradients of the evidence, as averages over the posterior."""

from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._fit import as_data
from .._machine import KernelMachine
from .._parameters import Frozen, unfreeze
from ..approximations import (
    AbstractApproximation,
    Exact,
    Subspace,
    Whitening,
    require_approximation,
    whiten,
)
from ..kernels import AbstractKernel
from ..linalg import eigh
from ..runtime import filter_jit, jit
from ..sampling import (
    HMC,
    Averages,
    Chains,
    Diagnostics,
    Method,
    Setup,
    check_sampler,
    diagnose,
    draw,
    start_chains,
    target_of,
    warm_up,
    warn_of_problems,
)

Route = Literal["kernel", "fisher"]
ROUTES: tuple[str, ...] = get_args(Route)
_MOST_ENTRIES = 200_000  # of the kernel matrix that are held at a time


class EvidenceGradient(eqx.Module):
    """The gradient of the log evidence `ln Q(Y|X)`, and how far it can be trusted.

    `gradient` and `standard_error` are models: one number for each unconstrained leaf, as `jax.grad`
    would give it (of a positive parameter that is its logarithm). The standard error is that of the mean
    over the chains; `chains` tells where they ended, `diagnostics` how they went.
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
    method: Method = HMC(),  # noqa: B008, it is immutable
    chains: int = 8,
    warmup: int = 200,
    draws: int = 500,
    weights: Any = None,
) -> EvidenceGradient:
    """The gradient of the log evidence by all hyperparameters that are not frozen, for any loss.

    For a parameter of the loss: `n d ln kappa - <sum_i dL_i>`, [GS03, eq. 18]. For a parameter of the
    kernel: `-1/2 <u' dK K^-1 theta>` with the slopes `u_i = dL/dtheta_i`, eq. 20. Brackets are posterior
    averages. The average `<u b'>` is taken while sampling; then all derivatives of the kernel come from
    one pass back through it. In nats for the whole data set (the paper divides by n).

    **Arguments:**

    - `model`, `x`, `y`, `weights`, `key`, `approximation`, `method`, `chains`, `warmup`, `draws`: as for
      `jaxsvm.sample`.
    - `route`: `"kernel"` for eq. 20, which needs all `n^2` entries of the kernel (some rows at a time), or
      `"fisher"` for Fisher's identity `<d ln p(y | V b)>` in white coordinates, which needs only those with
      the landmarks: time and memory grow like n. Both are the same at full rank; at a low rank the first
      is what the papers use, the second the exact gradient of the low-rank machine's evidence.

    **Returns:** an `EvidenceGradient`. A `SamplingWarning` says what is wrong with it, if anything is: a
    low rank that loses more than 1 % of the prior's variance, chains that do not mix, or a loss with a wall,
    such as `losses.Trigonometric`, for which standard errors are unreliable.

    **Example:**

    >>> found = jsvm.evidence_gradient(model, x, y, key=jax.random.key(1))
    >>> found.gradient.loss.log_C.shape, bool(found.standard_error.loss.log_C > 0)
    ((), True)
    """
    x, y, weights = as_data(model, x, y, weights)
    check_sampler(model, method, chains=chains, draws=draws, warmup=warmup)
    require_approximation(approximation)
    check_route(route)
    unfreeze(model).loss.require_normalizer()
    if chains < 2:
        raise ValueError("a standard error needs at least two chains: raise `chains`")
    mark_key, run_key = jax.random.split(key)
    subspace = approximation.subspace(model, x, mark_key)
    setup = Setup(unfreeze(model), x, y, weights, subspace)
    plan = Plan(method, chains, warmup, draws, route)
    gradients, state, traces, error = _sampled_gradient(setup, plan, run_key)
    diagnostics = diagnose(traces, jnp.exp(state.log_step), error, model.loss.has_wall)
    warn_of_problems(diagnostics, "the gradient of the evidence should not be trusted as it is")
    mean, deviation = mean_and_error(gradients)
    # frozen parameters are no leaves of the answer
    return EvidenceGradient(project(model, mean), project(model, deviation), diagnostics, state)


class Plan(eqx.Module):
    """How to estimate a gradient; static."""

    method: Method = eqx.field(static=True)
    chains: int = eqx.field(static=True)
    warmup: int = eqx.field(static=True)
    draws: int = eqx.field(static=True)
    route: Route = eqx.field(static=True)


def check_route(route: str) -> None:
    """Raise unless it is one of the two."""
    if route not in ROUTES:
        raise ValueError(f"`route` must be one of {ROUTES}, not {route!r}")


@filter_jit
def _sampled_gradient(setup: Setup, plan: Plan, key):
    whitening = whiten(setup.model.kernel, setup.x, setup.subspace)
    target = target_of(setup, whitening)
    warm_key, draw_key = jax.random.split(key)
    state = start_chains(target, plan.method, plan.chains)
    state = warm_up(target, plan.method, state, warm_key, plan.warmup)
    state, means, traces, _ = draw(target, plan.method, state, draw_key, plan.draws, gradients=True)
    return gradients_of_chains(setup, whitening, means, plan), state, traces, whitening.error


def gradients_of_chains(
    setup: Setup, whitening: Whitening, means: Averages, plan: Plan
) -> KernelMachine:
    """The gradient of the log evidence by each chain's own averages; leaves have a leading axis of chains."""
    assert means.slope_b is not None and means.loss_gradient is not None
    if plan.route == "kernel":
        kernel = _by_kernel(setup.model.kernel, setup.x, whitening, means.slope_b)
    else:
        kernel = _by_fisher(setup.model.kernel, setup.x, setup.subspace, means.slope_b)
    normalizer = jax.grad(lambda loss: jnp.sum(setup.weights) * loss.log_normalizer())(
        setup.model.loss
    )
    loss = jax.tree.map(lambda whole, mean: whole[None] - mean, normalizer, means.loss_gradient)
    return KernelMachine(kernel, loss)


def _by_kernel(
    kernel: AbstractKernel,
    x: Float[Array, "n d"],
    whitening: Whitening,
    slope_b: Float[Array, "chains n p"],
) -> AbstractKernel:
    """`-1/2 sum_ij dK_ij G_ij` with `G = <u b'> (V'V)^-1 V'`, some rows at a time.

    The matrix `V (V'V)^-1 b` is what `K^-1 theta` becomes at a low rank.
    """
    examples = x.shape[0]
    factor = whitening.factor
    dual = factor @ _pseudo_inverse(factor.T @ factor)
    rows = min(max(_MOST_ENTRIES // examples, 1), examples)
    blocks = -(-examples // rows)
    padding = blocks * rows - examples
    places = jnp.arange(blocks * rows).reshape(blocks, rows)
    left = jnp.pad(slope_b, ((0, 0), (0, padding), (0, 0)))

    def add_block(total, places):
        inside = jnp.minimum(places, examples - 1)
        points = x[inside]

        def entries(kernel):
            return kernel.matrix(points, x, same=False), kernel.diagonal(points)

        _, pull_back = jax.vjp(entries, kernel)
        right = dual[inside]

        def pull(part):
            weight = part[places] @ dual.T
            # an example with itself: white noise is there, and nowhere else
            own = jnp.sum(part[places] * right, axis=1)
            weight = weight.at[jnp.arange(rows), inside].set(0.0)
            return pull_back((-weight / 2, -own / 2))[0]

        # one chain after the other: all at once would hold as many matrices, out of the caches
        return jax.tree.map(jnp.add, total, jax.lax.map(pull, left)), None

    zero = jax.tree.map(lambda leaf: jnp.zeros((left.shape[0], *leaf.shape), leaf.dtype), kernel)
    return jax.lax.scan(add_block, zero, places)[0]


def _pseudo_inverse(matrix):
    values, vectors = eigh(matrix)
    null = values <= values[-1] * matrix.shape[0] * jnp.finfo(matrix.dtype).eps
    return (vectors * jnp.where(null, 0.0, 1 / jnp.where(null, 1.0, values))[None, :]) @ vectors.T


def _by_fisher(kernel, x, subspace: Subspace, slope_b) -> AbstractKernel:
    """`-sum_ik dV_ik <u_i b_k>`."""
    _, pull_back = jax.vjp(lambda kernel: whiten(kernel, x, subspace).factor, kernel)
    return jax.lax.map(lambda part: pull_back(-part)[0], slope_b)


@jit
def mean_and_error(gradients: KernelMachine) -> tuple[KernelMachine, KernelMachine]:
    """The mean over chains, and its standard error."""
    chains = jax.tree.leaves(gradients)[0].shape[0]
    mean = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), gradients)
    error = jax.tree.map(lambda leaf: jnp.std(leaf, axis=0, ddof=1) / chains**0.5, gradients)
    return mean, error


def project(model: KernelMachine, everything: KernelMachine) -> KernelMachine:
    """A model of the same structure as `model`, with the leaves of its unfrozen counterpart."""
    leaves, structure = jax.tree.flatten(model, is_leaf=lambda node: isinstance(node, Frozen))
    values = jax.tree.leaves(everything)
    chosen = [
        leaf if isinstance(leaf, Frozen) else value
        for leaf, value in zip(leaves, values, strict=True)
    ]
    return structure.unflatten(chosen)
