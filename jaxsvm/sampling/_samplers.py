"""The samplers: Hamiltonian, no-U-turn, microcanonical and Langevin, and the parts of BlackJAX they use."""

import dataclasses
from functools import cache
from typing import Any, get_args

import jax
import jax.numpy as jnp

from ..validation import check_count, check_number, check_switch

QUARTER_PERIOD = 1.57  # of a direction of unit width
_LONGEST_STEP = 2.0
_FEWEST_STEPS, _MOST_STEPS = 2, 64  # of a trajectory whose number of steps follows the step size


@dataclasses.dataclass(frozen=True)
class HMC:
    """Hamiltonian Monte Carlo with trajectories of a fixed number of leapfrog steps.

    **Arguments:**

    - `integration_steps`: the number of leapfrog steps in a trajectory.
    - `step_size`: the size of a leapfrog step, or None to adapt it during the warm-up.
    - `target_acceptance`: the mean acceptance that the step size is adapted to.
    - `rescale`: whether to adapt to the widths of the posterior as well (a dense mass matrix `I + V' D V`,
      where D holds mean curvatures of the losses).
    - `jitter`: the step size of each trajectory is drawn uniformly within this share of it, so that no
      direction keeps returning to its starting point.
    - `shorten_by_penalty`: whether to divide the step size by C if C is larger than one, as in
      [GS03, sec. 5.3.1].
    """

    integration_steps: int = 8
    step_size: float | None = None
    target_acceptance: float = 0.8
    rescale: bool = True
    jitter: float = 0.2
    shorten_by_penalty: bool = False

    def __post_init__(self) -> None:
        check_count("integration_steps", self.integration_steps)
        _check_common(self)


@dataclasses.dataclass(frozen=True)
class NUTS:
    """The no-U-turn sampler, whose trajectories end when they turn back.

    **Arguments:** `max_doublings`, which limits a trajectory to `2^max_doublings` leapfrog steps;
    `step_size`, `target_acceptance`, `rescale`, `jitter` and `shorten_by_penalty` as for `HMC`. Chains in
    a batch wait for the longest trajectory among them.
    """

    max_doublings: int = 6
    step_size: float | None = None
    target_acceptance: float = 0.8
    rescale: bool = True
    jitter: float = 0.0
    shorten_by_penalty: bool = False

    def __post_init__(self) -> None:
        check_count("max_doublings", self.max_doublings)
        _check_common(self)


@dataclasses.dataclass(frozen=True)
class MCLMC:
    """Microcanonical Monte Carlo with a Metropolis step after each trajectory.

    The velocity has unit length, and the force only turns it (J. Robnik and others, "Metropolis adjusted
    microcanonical Hamiltonian Monte Carlo", 2025). A trajectory is accepted with the probability
    `min(1, exp(-W))`, where W is the error of the energy, so the draws have no bias. Steps are multiplied by
    the root of the number of white coordinates: each coordinate then moves about as far as with `HMC`. A
    single coordinate has no direction to turn to, and moves by `HMC`.

    **Arguments:** `integration_steps`, the number of steps in a trajectory, or None for as many as a quarter
    of a period takes at the adapted step size; `step_size`, `target_acceptance`, `rescale`, `jitter` and
    `shorten_by_penalty` as for `HMC`. Each step needs one gradient.
    """

    integration_steps: int | None = None
    step_size: float | None = None
    target_acceptance: float = 0.7
    rescale: bool = True
    jitter: float = 0.2
    shorten_by_penalty: bool = False

    def __post_init__(self) -> None:
        if self.integration_steps is not None:
            check_count("integration_steps", self.integration_steps)
        _check_common(self)


@dataclasses.dataclass(frozen=True)
class SGLD:
    """Stochastic gradient Langevin dynamics: each step sees a random batch of the examples.

    In coordinates c around the mode, scaled to the widths of the posterior, a step is
    `c <- c + h g + sqrt(2 h T) e`, where e is standard normal. The batch is an estimate of the gradient g
    with a control variate: slopes of the losses are linear in the latent values plus a rest, the linear part
    is summed over all examples once, and the batch only estimates the rest (Baker and others, "Control
    variates for stochastic gradient MCMC", 2019). The temperature T of each direction makes up for the step
    size and for the variance v of the force, `T = 1 - h (1 + v) / 2`, so that a Gaussian posterior is sampled
    without bias. There is no accept/reject step: other posteriors have a bias, which falls with more
    examples, larger batches and shorter steps (`examples/benchmarks/evidence_at_scale.py` measures it). Steps
    longer than 0.3 can give gradients that are wrong by far.

    **Arguments:**

    - `batch`: the number of examples in a batch, drawn with replacement. Each chain has its own batches.
    - `steps`: the number of steps between two draws.
    - `step_size`: the step size h, below 2 (unit width in all directions), or None to adapt it to the noise
      of the batches, at most 0.3.
    """

    batch: int = 1000
    steps: int = 10
    step_size: float | None = None

    def __post_init__(self) -> None:
        check_count("batch", self.batch, 2)
        check_count("steps", self.steps)
        if self.step_size is not None:
            check_number("step_size", self.step_size, above=0, below=2)


Method = HMC | NUTS | MCLMC


def require_method(name: str, method: Any, by_batches: bool = False) -> None:
    """Raise unless an argument is a sampler.

    **Arguments:** `name`, that of the argument; `method`, its value; `by_batches`, whether it may be `SGLD`.
    """
    kinds = (*get_args(Method), *((SGLD,) if by_batches else ()))
    if not isinstance(method, kinds):
        names = [f"`sampling.{kind.__name__}(...)`" for kind in kinds]
        raise TypeError(f"`{name}` must be {', '.join(names[:-1])} or {names[-1]}, not {method!r}")


def _check_common(method) -> None:
    if method.step_size is not None:
        check_number("step_size", method.step_size, above=0)
    check_number("target_acceptance", method.target_acceptance, above=0, below=1)
    check_number("jitter", method.jitter, least=0, below=1)
    for name in ("rescale", "shorten_by_penalty"):
        check_switch(name, getattr(method, name))


def paper_setting() -> dict[str, Any]:
    """The setting of the papers, as arguments of `sample`: `sample(model, x, y, key=key, **paper_setting())`.

    One chain of 40,000 draws, the first half dropped, with ten leapfrog steps of 0.05 (divided by C if C is
    larger than one) and unit masses [GS05, sec. II].
    """
    method = HMC(10, step_size=0.05, rescale=False, jitter=0.0, shorten_by_penalty=True)
    return {"method": method, "chains": 1, "warmup": 20_000, "draws": 20_000}


# ---------------------------------------------------------------------------- BlackJAX


@cache
def blackjax() -> Any:
    """The package, imported at first use: importing it takes as long as importing the rest of the library."""
    # its constants must not be traced by a function that is being compiled at the moment
    with jax.ensure_compile_time_eval():
        import blackjax
        import blackjax.adaptation.step_size
        import blackjax.mcmc.adjusted_mclmc
        import blackjax.mcmc.integrators
        import blackjax.sgmcmc.sgld
        import blackjax.smc.from_mcmc
        import blackjax.smc.resampling
        import blackjax.smc.solver
    return blackjax


@cache
def _kernel(kind: type[Method]) -> Any:
    package = blackjax()
    if kind is MCLMC:
        integrator = package.mcmc.integrators.isokinetic_velocity_verlet
        return package.mcmc.adjusted_mclmc.build_kernel(integrator)
    return (package.hmc if kind is HMC else package.nuts).build_kernel()


def longest_step(method: Method) -> float:
    """The step size at which a trajectory covers a quarter of the period of scaled coordinates.

    A longer trajectory would be on its way back: if the posterior is nearly Gaussian, adaptation alone could
    increase the step size until trajectories end where they began.

    **Arguments:** `method`, such as `HMC`.

    **Returns:** a number.
    """
    if isinstance(method, NUTS) or not method.rescale:
        return _LONGEST_STEP
    steps = method.integration_steps
    return min(QUARTER_PERIOD / (_FEWEST_STEPS if steps is None else steps), _LONGEST_STEP)


def count_steps(method: HMC | MCLMC, step_size: Any) -> Any:
    """The number of steps in a trajectory: as given, or as many as a quarter of a period takes.

    **Arguments:** `method`; `step_size`, the typical size of a step.

    **Returns:** an integer, or an array with one.
    """
    if method.integration_steps is not None:
        return method.integration_steps
    return jnp.clip(jnp.round(QUARTER_PERIOD / step_size), 1, _MOST_STEPS).astype(int)


def trajectory(
    method: Method,
    key: Any,
    state: Any,
    log_density: Any,
    step_size: Any,
    inverse_masses: Any,
    typical_size: Any = None,
    has_wall: bool = False,
) -> tuple[Any, Any]:
    """Move one chain along one trajectory.

    **Arguments:** `method`, `HMC`, `NUTS` or `MCLMC`; `key`, a random key; `state`, that of the chain;
    `log_density`, a function of its position; `step_size`, the size of a step; `inverse_masses`, a vector or,
    except for `MCLMC`, a matrix; `typical_size`, the step size that determines the number of steps, by
    default `step_size`; `has_wall`, whether the density is zero somewhere. Trajectories that end there are
    not divergent.

    **Returns:** the next state, and BlackJAX's record of the trajectory.
    """
    if isinstance(method, NUTS):
        doublings = method.max_doublings
        return _kernel(NUTS)(key, state, log_density, step_size, inverse_masses, doublings)
    steps = count_steps(method, step_size if typical_size is None else typical_size)
    if isinstance(method, MCLMC) and len(inverse_masses) > 1:
        kernel, steps = _kernel(MCLMC), (steps,)
        step_size = step_size * len(inverse_masses) ** 0.5
        new, info = kernel(key, state, log_density, step_size, steps, inverse_masses)
    else:
        new, info = _kernel(HMC)(key, state, log_density, step_size, inverse_masses, steps)
    if has_wall:
        # behind a wall the energy is infinite, which is not a failure of the integrator
        info = info._replace(is_divergent=info.is_divergent & ~jnp.isposinf(info.energy))
    return new, info


def langevin_step(key: Any, position: Any, force: Any, step_size: Any, temperature: Any) -> Any:
    """One step of Langevin dynamics.

    **Arguments:** `key`, a random key; `position`, that of all chains; `force`, an estimate of the gradient
    of the log density; `step_size`; `temperature`, one number for each of its entries.

    **Returns:** the new position.
    """
    kernel = blackjax().sgmcmc.sgld.build_kernel()
    # the force is known: it was computed together with its variance
    return kernel(key, position, lambda position, batch: force, None, step_size, temperature)


def first_state(position: Any, log_density: Any) -> Any:
    """The state of a chain at a position.

    **Arguments:** `position`, any pytree; `log_density`, a function of it.

    **Returns:** a state of BlackJAX.
    """
    return blackjax().hmc.init(position, log_density)


@cache
def dual_averaging(target_acceptance: float) -> Any:
    """Dual averaging of step sizes: the functions that begin and that update it."""
    adaptation = blackjax().adaptation.step_size.dual_averaging_adaptation
    begin, update, _ = adaptation(target_acceptance)
    return begin, update
