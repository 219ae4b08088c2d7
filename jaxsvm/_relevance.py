"""Which inputs matter, by their lengthscales."""

from typing import Any

import numpy as np

from ._fit import Fit
from ._machine import KernelMachine
from ._parameters import parameters
from .selection import Selection


def relevance(
    model: KernelMachine | Fit | Selection, *, parameter: str | None = None
) -> np.ndarray:
    """The relevance `1 / lengthscale^2` of each input, relative to the largest one.

    A lengthscale counts in the units of its input, so standardize the inputs before comparing.

    **Arguments:**

    - `model`: a kernel machine with one lengthscale for each input, a `Fit`, or the outcome of `select` or
      `evidence_ascent` (its best model).
    - `parameter`: which lengthscales, dotted as in `jaxsvm.parameters`, where the model has several such
      vectors.

    **Returns:** one number for each input, the largest of them one.

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
    lengthscale = _vector(lengthscales(model), parameter)
    return (lengthscale.min() / lengthscale) ** 2  # in this form it cannot overflow


def lengthscales(model: KernelMachine) -> dict[str, np.ndarray]:
    """All lengthscales of a model by their dotted names, be they numbers or vectors."""
    found = parameters(model)
    return {k: np.asarray(v) for k, v in found.items() if k.split(".")[-1] == "lengthscale"}


def _vector(scales: dict[str, np.ndarray], parameter: Any) -> np.ndarray:
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
        raise ValueError(f"choose one of these by `parameter=`: {', '.join(vectors)}")
    return next(iter(vectors.values()))
