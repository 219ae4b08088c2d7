"""The exact evidence as the objective of a search: its gradient comes from chains that are carried along."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._machine import KernelMachine
from ..approximations import (
    AbstractApproximation,
    Nystrom,
    Representation,
    check_lost_variance,
    represent_in_white,
    require_approximation,
)
from ..criteria import AbstractObjective, Data, Observation, Traits
from ..hyperparameters import unfreeze
from ..linalg import cholesky, solve_by_factor
from ..results import RESULTS
from ..runtime import count_row_shards
from ..sampling import (
    MCLMC,
    SGLD,
    Chains,
    Method,
    SamplingWarning,
    Setup,
    Thresholds,
    begin_chains,
    check_batch_noise,
    check_batches,
    check_sampler,
    check_wall,
    largest_rhat,
    run_chains,
)
from ..validation import check_number
from ._bridge import Bridge, bridge
from ._by_rows import Route, gradients_of_chains
from ._gradient import check_gradient, check_route, mean_and_error, require_local_rows
from ._tempered import TemperedSMC, temper
from ._thermodynamic import InfiniteLossError, Thermodynamic, integrate

_AGE = 40.0  # the step size carried over counts as adapted over this many draws
_LEAST_ACCEPTANCE = 0.02
_MANY_EXAMPLES = 1000
_RANK = 20  # of the default approximation
_FEW_STEPS = 0.1  # share of bad steps that noisy gradients tolerate


class CarriedChains(NamedTuple):
    """Chains between two kernels: their latent values replace the white coordinates of `Chains`."""

    latent: Float[Array, "chains n"]
    curvature: Float[Array, " n"]
    log_step: Float[Array, ""]


class Sampled(AbstractObjective):
    """Minus the log evidence `-ln Q(Y|X)`, with a gradient that chains estimate.

    At each step of a search chains sample the posterior in white coordinates and give the gradient with
    its standard error, as `jaxsvm.evidence_gradient` does. The chains, their step size and their scaling are
    carried over to the next kernel [GS03, sec. 4.3; GS05]. Values are not known; `jaxsvm.log_evidence`
    estimates them if several starts have to be compared.

    **Arguments:**

    - `approximation`: how to represent the kernel matrix, `jaxsvm.Exact()`, `jaxsvm.Nystrom(...)` or
      `jaxsvm.RandomFourier(...)`. By default Nystrom's method of rank 20, as in the paper, or of full rank
      with fewer examples.
    - `route`: how to compute the gradient, as for `jaxsvm.evidence_gradient`; by default `"kernel"` for fewer
      than 1,000 examples on one device, and `"fisher"`, whose time does not grow like their square,
      otherwise.
    - `method`: `jaxsvm.sampling.MCLMC(...)`, `HMC(...)` or `NUTS(...)`, or `SGLD(...)` for chains that see a
      batch of the examples at each step. These begin at the mode in each step of the search.
    - `chains`: the number of chains, at least two.
    - `warmup`, `draws`: the numbers of draws of each chain at each step, before and after it has adapted.
    - `first_warmup`: the number of draws of each chain before the first step.
    - `averaged`: a search ends at the mean, in unconstrained coordinates, of all models on its path whose
      log evidence is within this number of nats of the largest; zero stands for the last model.

    **Example:**

    >>> best = jsvm.select(
    ...     model, x, y, jsvm.evidence.Sampled(jsvm.Exact()), key=jax.random.key(1), max_steps=3
    ... )
    >>> best.history.standard_error["loss.C"].shape
    (1, 3)
    """

    approximation: AbstractApproximation | None = None
    route: Route | None = eqx.field(static=True, default=None, kw_only=True)
    method: Method | SGLD = eqx.field(static=True, default=MCLMC(), kw_only=True)
    chains: int = eqx.field(static=True, default=8, kw_only=True)
    warmup: int = eqx.field(static=True, default=20, kw_only=True)
    draws: int = eqx.field(static=True, default=80, kw_only=True)
    first_warmup: int = eqx.field(static=True, default=200, kw_only=True)
    averaged: float = eqx.field(static=True, default=0.5, kw_only=True)

    def __check_init__(self) -> None:
        if self.approximation is not None:
            require_approximation(self.approximation)
        if self.route is not None:
            check_route(self.route)
        check_number("averaged", self.averaged, least=0)

    @property
    def traits(self) -> Traits:
        """A gradient with noise and no value; chains that do not move are started again."""
        return Traits(
            has_value=False,
            is_random=True,
            steps_at_once=1,
            attempts=3,
            max_failures=0,
            default_steps=60,
            warning=SamplingWarning,
            scale="total",
            chains=self.chains,
            averaged=self.averaged,
        )

    def check(self, model: KernelMachine, x: Array, y: Array) -> None:
        counts = {"chains": self.chains, "draws": self.draws, "warmup": self.warmup}
        check_sampler(model, self.method, True, **counts, first_warmup=self.first_warmup)
        if isinstance(self.method, SGLD):
            check_batches(model, x, self.method)
        check_gradient(unfreeze(model), self.chains)

    def prepare(self, model: KernelMachine, data: Data, key: Any) -> Self:
        examples, shards = data.x.shape[0], count_row_shards(data.x)
        approximation = self.approximation
        if approximation is None:
            approximation = Nystrom(min(_RANK, examples))
        route = self.route
        if route is None:
            is_small = examples < _MANY_EXAMPLES and shards == 1
            route = "kernel" if is_small else "fisher"
        require_local_rows(route, data.x)
        representation = represent_in_white(approximation, model, data.x, key)
        return dataclasses.replace(self, approximation=representation, route=route)

    def init(self, model: KernelMachine, data: Data, key: Any) -> Any:
        setup = self._setup(model, data)
        whitening, target = setup.whiten()
        shards = setup.representation.shards
        chains = begin_chains(target, self.method, self.chains, key, self.first_warmup, shards)
        return _without_kernel(chains, whitening.factor)

    def observe(self, model: KernelMachine, data: Data, memory: Any, key: Any) -> Observation:
        assert self.route is not None
        setup = self._setup(model, data)
        whitening, target = setup.whiten()
        start, keys = _with_kernel(memory, whitening.factor), [*jax.random.split(key)]
        counts, shards = (self.warmup, self.draws), setup.representation.shards
        drawn = run_chains(target, self.method, start, keys, *counts, _AGE, shards)
        found = gradients_of_chains(setup, whitening.factor, drawn.b, self.route)
        # with respect to the hyperparameters that are searched, without the frozen ones
        _, pull_back = jax.vjp(data.complete, model)
        by_chain = jax.vmap(lambda g: jax.tree.map(jnp.negative, pull_back(g)[0]))(found.gradient)
        gradient, error = mean_and_error(by_chain)
        traces = drawn.complete_traces(found.loss)
        acceptances = jnp.mean(traces.acceptance, axis=0)
        acceptance = jnp.mean(acceptances)
        moves = acceptance >= _LEAST_ACCEPTANCE
        finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(gradient)]
        sound = moves & jnp.all(jnp.stack(finite))
        dtype, noise = acceptance.dtype, drawn.batch_noise
        return Observation(
            value=jnp.full((), jnp.nan, dtype),
            gradient=gradient,
            standard_error=error,
            result=jnp.where(sound, RESULTS.successful, RESULTS.sampling_failed).astype(jnp.int32),
            memory=_without_kernel(drawn.carried(), whitening.factor),
            info={
                "acceptance": acceptance,
                "least_acceptance": jnp.min(acceptances),
                "rhat": largest_rhat(traces),
                "divergences": jnp.sum(traces.divergent).astype(dtype),
                "step_size": jnp.exp(drawn.chains.log_step),
                "whitening_error": whitening.error,
                **({} if noise is None else {"batch_noise": noise}),
            },
            by_chain=by_chain,
        )

    def compare(self, model: KernelMachine, data: Data, key: Any) -> float:
        """Minus the log evidence of the same low-rank machine; NaN if it cannot be estimated.

        By thermodynamic integration or, for a loss with a wall, by sequential Monte Carlo; if the chains see
        batches, by bridge sampling.
        """
        setup = self._setup(model, data)
        run_key = jax.random.split(jax.random.fold_in(key, 1))[1]
        if isinstance(self.method, SGLD):
            return -float(bridge(setup, Bridge(sampler=self.method), run_key).value)
        try:
            estimate = integrate(setup, Thermodynamic(), run_key, False)
        except InfiniteLossError:  # the loss has a wall
            estimate = temper(setup, TemperedSMC(), run_key, False)
        return -float(estimate.value)

    def problems(
        self, model: KernelMachine, info: Mapping[str, np.ndarray], end: int
    ) -> tuple[str, ...]:
        limits = Thresholds()
        present = np.isfinite(info["acceptance"])
        steps = {name: np.asarray(column)[present] for name, column in info.items()}
        problems = _problems_of_chains(steps, end, self.chains, self.draws, limits)
        if "batch_noise" in steps:
            noise, divergent = steps["batch_noise"].max(), steps["divergences"].sum()
            problems += check_batch_noise(float(noise), int(divergent))
        if self.draws < limits.fewest_draws:
            problems.append(
                f"{self.draws} draws of each chain in a step are too few to judge it: raise `draws` to at "
                f"least {limits.fewest_draws}"
            )
        assert isinstance(self.approximation, Representation)
        lost = float(steps["whitening_error"][end])
        problems += check_lost_variance(lost, self.approximation.tolerance)
        return tuple(problems + check_wall(model.loss.has_wall))

    def _setup(self, model: KernelMachine, data: Data) -> Setup:
        assert isinstance(self.approximation, Representation)  # after `prepare`
        return Setup(data.complete(model), data.x, data.y, data.weights, self.approximation)


def _without_kernel(chains: Chains, factor: Float[Array, "n p"]) -> CarriedChains:
    return CarriedChains(chains.b @ factor.T, chains.curvature, chains.log_step)


def _with_kernel(carried: CarriedChains, factor: Float[Array, "n p"]) -> Chains:
    """Chains at the white coordinates nearest to the latent values: `b = (V'V)^-1 V' theta`."""
    gram = factor.T @ factor
    ridge = gram.shape[0] * jnp.finfo(gram.dtype).eps * jnp.trace(gram)
    gram = gram + ridge * jnp.eye(gram.shape[0], dtype=gram.dtype)
    b = solve_by_factor(cholesky(gram), factor.T @ carried.latent.T).T
    return Chains(b, carried.curvature, carried.log_step)


def _problems_of_chains(
    steps: Mapping[str, np.ndarray], end: int, chains: int, draws: int, limits: Thresholds
) -> list[str]:
    """Report chains that went badly at the end of a start, or often on the way there."""
    acceptance, least = steps["acceptance"], steps["least_acceptance"]
    low = acceptance < limits.least_acceptance
    stuck = least < limits.stuck
    wild = steps["divergences"] > limits.divergences * chains * draws
    enough = draws >= limits.fewest_draws
    apart = ~(steps["rhat"] <= limits.step_rhat) & enough
    bad = low | stuck | wild | apart
    if not bad.any() or not (bad[end] or bad.mean() > _FEW_STEPS):
        return []
    parts = [
        f"in {bad.sum()} of {len(bad)} steps{', the last among them,' if bad[end] else ''} the chains "
        "went badly"
    ]
    if low.any():
        parts.append(
            f"in {low.sum()} less than {limits.least_acceptance:.0%} of the trajectories were accepted, "
            f"{acceptance.min():.0%} at worst (of one chain {least.min():.0%})"
        )
    if stuck.any():
        parts.append(f"in {stuck.sum()} a chain did not move")
    if wild.any():
        parts.append(
            f"in {wild.sum()} more than {limits.divergences:.0%} of the trajectories diverged"
        )
    if apart.any():
        parts.append(
            f"in {apart.sum()} the chains hardly moved or did not agree (R-hat above {limits.step_rhat})"
        )
    if (acceptance[bad] > limits.timid).all():
        advice = "Raise the method's `step_size`, or let it adapt (`step_size=None`)"
    else:
        advice = (
            "Lengthen `warmup`, raise the method's `target_acceptance` or lower its `step_size`, or bound "
            "the hyperparameters (a large C times the kernel's amplitude makes a posterior with hard walls)"
        )
    return ["; ".join(parts) + ". " + advice]
