"""BlackJAX, imported when chains first move: importing it takes as long as all the rest of the library."""

from functools import cache
from typing import Any

import jax


@cache
def blackjax() -> Any:
    """The package, whole."""
    # constants that it makes must not belong to whoever is traced at the moment
    with jax.ensure_compile_time_eval():
        import blackjax
        import blackjax.adaptation.step_size
        import blackjax.smc.from_mcmc
        import blackjax.smc.resampling
        import blackjax.smc.solver
    return blackjax


@cache
def hmc() -> Any:
    """The kernel of Hamiltonian Monte Carlo."""
    return blackjax().hmc.build_kernel()


@cache
def nuts() -> Any:
    """The kernel of the no-U-turn sampler."""
    return blackjax().nuts.build_kernel()


def first_state(position: Any, log_density: Any) -> Any:
    """The state of a chain at a position.

    **Arguments:** `position`, any pytree; `log_density`, a function of it.

    **Returns:** a state of BlackJAX.
    """
    return blackjax().hmc.init(position, log_density)


@cache
def dual_averaging(target_acceptance: float) -> Any:
    """Dual averaging of step sizes: how it begins, and how it goes on."""
    adaptation = blackjax().adaptation.step_size.dual_averaging_adaptation
    begin, update, _ = adaptation(target_acceptance)
    return begin, update
