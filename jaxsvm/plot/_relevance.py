"""Which inputs matter, by their lengthscales."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from .._parameters import parameters
from ..fit import Fit
from ..machine import KernelMachine
from ..selection import Selection
from ._figure import one_axes


def relevance(
    model: KernelMachine | Fit | Selection,
    names: Sequence[str] | None = None,
    *,
    parameter: str | None = None,
    sort: bool = True,
    ax: Any = None,
) -> Axes:
    """Draw the relevance `1 / lengthscale^2` of each input, relative to the largest one.

    A lengthscale counts in the units of its input, so standardize the inputs before comparing.

    **Arguments:**

    - `model`: a kernel machine with one lengthscale for each input, a `Fit`, or a `Selection` (its best
      model).
    - `names`: of the inputs; by default their numbers.
    - `parameter`: which lengthscales, dotted as in `jaxsvm.parameters`, where the model has several such
      vectors.
    - `sort`: the most relevant input on top; otherwise the first one.
    - `ax`: Axes to draw in; by default those of a new figure.

    **Returns:** the Axes.
    """
    if isinstance(model, Fit | Selection):
        model = model.model
    if not isinstance(model, KernelMachine):
        raise TypeError(
            f"`model` must be a KernelMachine, a Fit or a Selection, not {type(model).__name__}"
        )
    lengthscale = _lengthscale(model, parameter)
    shares = (lengthscale.min() / lengthscale) ** 2  # in this form it cannot overflow
    shown = [f"input {i}" for i in range(len(shares))] if names is None else list(names)
    if isinstance(names, str) or len(shown) != len(shares):
        raise ValueError(f"`names` must hold {len(shares)} names, one for each lengthscale")
    order = np.argsort(-shares, kind="stable") if sort else np.arange(len(shares))

    ax = one_axes(ax, (5.0, min(1.1 + 0.24 * len(shares), 14.0)))
    places = np.arange(len(shares))
    ax.barh(places, shares[order], height=0.7, color="C0")
    ax.set_yticks(places, [str(shown[int(i)]) for i in order])
    ax.set_ylim(len(shares) - 0.4, -0.6)  # from top to bottom
    ax.set_xlim(0, 1.02)
    ax.set_xlabel("relative relevance $1/\\mathrm{lengthscale}^2$")
    return ax


def _lengthscale(model: KernelMachine, parameter: str | None) -> np.ndarray:
    known = parameters(model)
    scales = {k: np.asarray(v) for k, v in known.items() if k.split(".")[-1] == "lengthscale"}
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
