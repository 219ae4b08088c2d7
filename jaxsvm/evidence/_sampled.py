"""The exact evidence as the objective of a search: a gradient from chains that are carried along."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._machine import KernelMachine
from .._parameters import unfreeze
from .._results import RESULTS
from ..approximations import (
    AbstractApproximation,
    Nystrom,
    Subspace,
    Whitening,
    require_approximation,
    whiten,
)
from ..criteria import AbstractObjective, Data, Observation, Traits
from ..linalg import cholesky, solve_by_factor
from ..sampling import (
    HMC,
    Chains,
    Method,
    SamplingWarning,
    Setup,
    check_sampler,
    draw,
    split_rhat,
    start_chains,
    target_of,
    warm_up,
)
from ._gradient import Plan, Route, check_route, gradients_of_chains, mean_and_error
from ._log_evidence import estimate_evidence
from ._problems import problems_of_search
from ._tempered import TemperedSMC
from ._thermodynamic import InfiniteLossError, Thermodynamic

_AGE = 40.0  # how settled the step size is that comes from the step before
_LEAST_ACCEPTANCE = 0.02
_MANY_EXAMPLES = 1000
_RANK = 20  # unless another is asked for


class Walker(NamedTuple):
    """The chains as they are carried from one kernel to the next: by their latent values."""

    latent: Float[Array, "chains n"]
    curvature: Float[Array, " n"]
    log_step: Float[Array, ""]


class Sampled(AbstractObjective):
    """Minus the log evidence `-ln Q(Y|X)`, of which chains estimate the gradient.

    At each step of a search chains sample the posterior in white coordinates and give the gradient with
    its standard error, as `jaxsvm.evidence_gradient` does. The chains, their step size and their scaling are
    carried over to the next kernel [GS03, sec. 4.3; GS05]. Values are not known; `jaxsvm.log_evidence`
    estimates them where several starts have to be compared.

    **Arguments:**

    - `approximation`: of the kernel matrix, `jaxsvm.Exact()` or `jaxsvm.Nystrom(...)`. By default Nystrom's
      method of rank 20, as in the paper, or of full rank with fewer examples.
    - `route`: of the gradient, as for `jaxsvm.evidence_gradient`; by default `"kernel"` with less than 1,000
      examples, and `"fisher"`, whose time does not grow like their square, with more.
    - `method`: `jaxsvm.sampling.HMC(...)` or `NUTS(...)`.
    - `chains`: at least two.
    - `warmup`, `draws`: of each chain at each step.
    - `first_warmup`: of each chain before the first step.

    **Example:**

    >>> found = jsvm.select(
    ...     model, x, y, jsvm.evidence.Sampled(jsvm.Exact()), key=jax.random.key(1), max_steps=3
    ... )
    >>> found.history.standard_error["loss.C"].shape
    (1, 3)
    """

    approximation: AbstractApproximation | None
    method: Method = eqx.field(static=True)
    chains: int = eqx.field(static=True)
    warmup: int = eqx.field(static=True)
    draws: int = eqx.field(static=True)
    first_warmup: int = eqx.field(static=True)
    route: Route | None = eqx.field(static=True)
    subspace: Subspace | None

    def __init__(
        self,
        approximation: AbstractApproximation | None = None,
        *,
        route: Route | None = None,
        method: Method = HMC(),  # noqa: B008, it is immutable
        chains: int = 8,
        warmup: int = 20,
        draws: int = 80,
        first_warmup: int = 200,
    ):
        if approximation is not None:
            require_approximation(approximation)
        if route is not None:
            check_route(route)
        self.approximation = approximation
        self.method = method
        self.chains, self.warmup, self.draws = chains, warmup, draws
        self.first_warmup = first_warmup
        self.route = route
        self.subspace = None  # chosen for each search

    @property
    def traits(self) -> Traits:
        """A gradient with noise and no value; chains that stand still are started again."""
        return Traits(
            has_value=False,
            is_random=True,
            steps_at_once=1,
            attempts=3,
            most_failures=0,
            default_steps=60,
            warning=SamplingWarning,
        )

    def check(self, model, x, y):
        """The evidence needs a proper prior, a loss that is a likelihood, and at least two chains."""
        counts = {"chains": self.chains, "draws": self.draws, "warmup": self.warmup}
        check_sampler(model, self.method, **counts, first_warmup=self.first_warmup)
        unfreeze(model).loss.require_normalizer()
        if self.chains < 2:
            raise ValueError("a standard error needs at least two chains: raise `chains`")

    def prepare(self, model, data, key):
        """Choose the landmarks and the route."""
        examples = data.x.shape[0]
        approximation = self.approximation
        if approximation is None:
            approximation = Nystrom(min(_RANK, examples))
        route = self.route
        if route is None:
            route = "kernel" if examples < _MANY_EXAMPLES else "fisher"
        subspace = approximation.subspace(model, data.x, key)
        prepared = Sampled(
            approximation,
            route=route,
            method=self.method,
            chains=self.chains,
            warmup=self.warmup,
            draws=self.draws,
            first_warmup=self.first_warmup,
        )
        return eqx.tree_at(lambda o: o.subspace, prepared, subspace, is_leaf=lambda n: n is None)

    def init(self, model, data, key):
        """All chains at the mode, then warmed up."""
        setup, whitening = self._at(model, data)
        target = target_of(setup, whitening)
        chains = start_chains(target, self.method, self.chains)
        chains = warm_up(target, self.method, chains, key, self.first_warmup)
        return _as_walker(chains, whitening)

    def observe(self, model, data, memory, key):
        """Move the chains, and average the gradient over them."""
        setup, whitening = self._at(model, data)
        target = target_of(setup, whitening)
        warm_key, draw_key = jax.random.split(key)
        chains = _carried_over(memory, whitening.factor)
        chains = warm_up(target, self.method, chains, warm_key, self.warmup, _AGE)
        chains, means, traces, _ = draw(
            target, self.method, chains, draw_key, self.draws, gradients=True
        )
        by_chain = gradients_of_chains(setup, whitening, means, self._plan())
        # of the hyperparameters that are searched, frozen ones left out
        _, pull_back = jax.vjp(data.complete, model)
        mean, error = (pull_back(part)[0] for part in mean_and_error(by_chain))
        acceptances = jnp.mean(traces.acceptance, axis=0)
        acceptance = jnp.mean(acceptances)
        moves = acceptance >= _LEAST_ACCEPTANCE
        finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(mean)]
        sound = moves & jnp.all(jnp.stack(finite))
        dtype = acceptance.dtype
        return Observation(
            value=jnp.full((), jnp.nan, dtype),
            gradient=jax.tree.map(jnp.negative, mean),
            standard_error=error,
            result=jnp.where(sound, RESULTS.successful, RESULTS.sampling_failed).astype(jnp.int32),
            memory=_as_walker(chains, whitening),
            info={
                "acceptance": acceptance,
                "least_acceptance": jnp.min(acceptances),
                "rhat": split_rhat(traces),
                "divergences": jnp.sum(traces.divergent).astype(dtype),
                "step_size": jnp.exp(chains.log_step),
                "whitening_error": whitening.error,
            },
        )

    def compare(self, model, data, key):
        """Minus the log evidence of the same low-rank machine; NaN if it was not found."""
        run_key = jax.random.split(jax.random.fold_in(key, 1))[1]
        return minus_log_evidence(self._setup(model, data), run_key)

    def problems(self, model, info, end):
        """Whether the chains went badly, the rank was too low, or draws were too few."""
        return problems_of_search(model.loss, info, end, self.chains, self.draws)

    def _plan(self) -> Plan:
        assert self.route is not None
        return Plan(self.method, self.chains, self.warmup, self.draws, self.route)

    def _setup(self, model: KernelMachine, data: Data) -> Setup:
        assert self.subspace is not None
        return Setup(data.complete(model), data.x, data.y, data.weights, self.subspace)

    def _at(self, model: KernelMachine, data: Data) -> tuple[Setup, Whitening]:
        setup = self._setup(model, data)
        return setup, whiten(setup.model.kernel, setup.x, setup.subspace)


def minus_log_evidence(setup: Setup, key: Any) -> float:
    """Minus the log evidence, by thermodynamic integration or, for a loss with a wall, by SMC."""
    try:
        found = estimate_evidence(setup, Thermodynamic(), key, False)
    except InfiniteLossError:  # the loss has a wall
        found = estimate_evidence(setup, TemperedSMC(), key, False)
    return -float(found.value)


def _as_walker(chains: Chains, whitening: Whitening) -> Walker:
    return Walker(chains.b @ whitening.factor.T, chains.curvature, chains.log_step)


def _carried_over(walker: Walker, factor: Float[Array, "n p"]) -> Chains:
    """The white coordinates that come nearest to the latent values: `b = (V'V)^-1 V' theta`."""
    gram = factor.T @ factor
    ridge = gram.shape[0] * jnp.finfo(gram.dtype).eps * jnp.trace(gram)
    gram = gram + ridge * jnp.eye(gram.shape[0], dtype=gram.dtype)
    lower = cholesky(gram)
    b = solve_by_factor(lower, factor.T @ walker.latent.T).T
    return Chains(b, walker.curvature, walker.log_step)
