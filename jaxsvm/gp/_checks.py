"""Validation shared by the methods of Gaussian process classification."""

from typing import Any

from .._machine import KernelMachine
from ..losses import AbstractLoss, FlipNoise, Logistic, Probit
from ..runtime import is_traced

_LIKELIHOODS = (Probit, FlipNoise, Logistic)


def check_likelihood(loss: AbstractLoss, method: str, flips: bool) -> None:
    """Raise unless the loss is a likelihood of labels that a method can average over a Gaussian.

    **Arguments:** `loss`; `method`, its name in the error; `flips`, whether it can treat `FlipNoise`.

    **Returns:** nothing.
    """
    known = _LIKELIHOODS if flips else (Probit, Logistic)
    if not isinstance(loss, known):
        names = ", ".join(f"losses.{kind.__name__}" for kind in known)
        hint = "" if flips else "; for flipped labels there is `gp.mean_field`"
        raise ValueError(
            f"{method} needs one of the likelihoods {names}, but the model has the loss "
            f"{type(loss).__name__}{hint}"
        )


def check_offset(model: KernelMachine) -> None:
    """Raise if the model has a free offset, which has no prior."""
    if model.offset:
        raise ValueError(
            "a Gaussian process has no free, unpenalized offset: use `offset=False` and add a `Constant` "
            "kernel, whose variance is that of the offset"
        )


def check_tolerance(tolerance: Any) -> None:
    """Raise unless the tolerance is None, for the default, or a share: one would accept a start at zero."""
    if tolerance is None or is_traced(tolerance):
        return
    if not 0 <= tolerance < 1:
        raise ValueError(
            f"`tolerance` must be at least zero and less than one, for it is relative, but is {tolerance}"
        )
