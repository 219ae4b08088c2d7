"""The greedy random walk."""

import equinox as eqx

from ..validation import check_number


class GreedyWalk(eqx.Module):
    """The greedy random walk, or Monte Carlo search at temperature zero.

    Each hyperparameter in turn makes a Gaussian step, which is kept if and only if the criterion improves.
    Its step size is multiplied by `factor` after a kept step and divided by it otherwise, so that about half
    of the steps are kept. The walk needs no gradient, so it suits criteria that jump. The first step of
    `select` evaluates the start; each later step is one round through all hyperparameters
    [GS03, sec. 4.1].

    **Arguments:** `step`, the first step size, in unconstrained coordinates (logarithms) or natural units;
    `linear`, the names of positive parameters that step in natural units, such as `("loss.C",)` in the
    paper; `factor`, above one; `step_tolerance`, the step size below which the walk ends.
    """

    step: float = eqx.field(static=True, default=0.5)
    linear: tuple[str, ...] = eqx.field(static=True, default=())
    factor: float = eqx.field(static=True, default=1.3)
    step_tolerance: float = eqx.field(static=True, default=1e-3)

    def __check_init__(self) -> None:
        for name in ("step", "step_tolerance"):
            check_number(name, getattr(self, name), above=0)
        check_number("factor", self.factor, above=1)
        if isinstance(self.linear, str):
            raise TypeError(f'`linear` must be a tuple of names, such as ("{self.linear}",)')
