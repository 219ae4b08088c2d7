"""The relevance of inputs, from their lengthscales."""

from typing import Any

import numpy as np

from ._fit import Fit
from ._machine import KernelMachine
from .hyperparameters import parameters
from .selection import Selection


def relevance(
    model: KernelMachine | Fit | Selection, *, parameter: str | None = None
) -> np.ndarray:
    """The relevance `1 / lengthscale^2` of each input, normalized so that the largest is 1.

    Lengthscales have the units of their inputs, so standardize the inputs before comparing.

    **Arguments:**

    - `model`: a kernel machine with one lengthscale for each input, a `Fit`, or the result of `select` or
      `evidence_ascent` (its best model).
    - `parameter`: the lengthscales to use, dotted as in `jaxsvm.parameters`, if the model has several
      vectors of them.

    **Returns:** one number for each input.

    **Example:**

    >>> three = jsvm.KernelMachine(jsvm.kernels.RBF(jnp.array([1.0, 2.0, 10.0])), jsvm.losses.Hinge())
    >>> jsvm.relevance(three).round(3).tolist()
    [1.0, 0.25, 0.01]
    """
    if isinstance(model, Fit | Selection):
        model = model.model
    if not isinstance(model, KernelMachine):
        raise TypeError(
            f"`model` must be a KernelMachine, a Fit or a Selection, not {type(model).__name__}"
        )
    lengthscale = _lengthscales(model, parameter)
    return (lengthscale.min() / lengthscale) ** 2  # in this form it cannot overflow


def _lengthscales(model: KernelMachine, parameter: Any) -> np.ndarray:
    """The vector of lengthscales with the name `parameter`, or the only one."""
    values = parameters(model).items()
    scales = {k: np.asarray(v) for k, v in values if k.split(".")[-1] == "lengthscale"}
    vectors = {name: value for name, value in scales.items() if value.ndim == 1}
    if parameter is not None:
        if parameter not in vectors:
            raise ValueError(
                f"`parameter` must name a vector of lengthscales, not {parameter!r}; the model has: "
                f"{', '.join(vectors) or 'none'}"
            )
        return vectors[parameter]
    if not vectors:
        what = "one lengthscale for all inputs" if scales else "no lengthscales"
        raise ValueError(
            f"the model has {what}: relevance needs one for each input, such as "
            "`kernels.RBF(jnp.ones(d))`"
        )
    if len(vectors) > 1:
        raise ValueError(f"choose one of these with `parameter=`: {', '.join(vectors)}")
    return next(iter(vectors.values()))
