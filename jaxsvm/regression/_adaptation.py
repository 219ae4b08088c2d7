"""Bayesian support vector regression: the paper's model, its starts, and its adaptation to data.

[CKO04], IEEE Transactions on Neural Networks 15, 2004. All of it can be done with `KernelMachine` and
`select`; what is added here are the paper's choices.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from .._machine import KernelMachine
from .._parameters import freeze, parameters, replace
from .._trees import stack
from ..criteria import LaplaceEvidence
from ..kernels import RBF, Constant
from ..losses import AbstractRegression, SoftInsensitive
from ..optimizers import lbfgs
from ..selection import Selection, select
from ..selection.stopping import SmallChange, SmallGradient
from ..validation import as_inputs, as_targets, as_weights, plain
from ._targets import center_and_scale, require_resolution

_EVIDENCE = LaplaceEvidence()
_STOP = (SmallGradient(), SmallChange(1e-6, patience=20))
_OVER_JUMPS = lbfgs(window=5)  # eq. 37 jumps where the set of off-bound support vectors changes


def default_beta(examples: int) -> float:
    """The paper's choice of beta: the more examples, the fewer of them on curved pieces of the loss.

    0.3 below 2000 examples, 0.1 below 4000, 0.05 from there on (section V-C); 0.8 below 100, where few
    examples would be left otherwise (its footnote 9).

    **Arguments:** `examples`, how many there are.

    **Returns:** a number between zero and one.
    """
    if examples < 100:
        return 0.8
    return 0.3 if examples < 2000 else 0.1 if examples < 4000 else 0.05


def machine(
    x: Any,
    y: Any,
    *,
    ard: bool = False,
    beta: float | None = None,
    loss: AbstractRegression | None = None,
    weights: Any = None,
) -> KernelMachine:
    """The model of Bayesian support vector regression, with the paper's initial hyperparameters.

    The covariance is `kappa_0 exp(-1/2 sum_l kappa_l (x_l - x'_l)^2) + kappa_b` (eqs. 3 and 41) with
    `kappa = 1 / lengthscale^2`, the loss `SoftInsensitive`. In units of the standard deviation of the
    targets: `C = 1`, `epsilon = 0.05`, `kappa_b = 100`, and `kappa = 0.5` (footnote 12). The
    amplitude `kappa_0` is frozen at the variance of the targets, with which C would be redundant
    (footnote 5), and so is beta, by `default_beta`. `kappa_b` is at least the squared mean of the targets,
    which need not be centered, unless they are so far from zero that rounding hides how they differ (a
    warning tells). Standardize the inputs, as the paper does.

    **Arguments:**

    - `x`, `y`: inputs, one row for each example, and targets.
    - `ard`: whether each input has a lengthscale of its own.
    - `beta`: of the loss, strictly between zero and one.
    - `loss`: another regression loss, at its initial values; `Quadratic` gives Gaussian process regression,
      whose amplitude is free. Its beta is frozen as well: if free, it may tend to one while C and epsilon
      grow without bound, which is Gaussian noise in the limit.
    - `weights`: one for each example, as for `jaxsvm.fit`.

    **Returns:** a `KernelMachine`.
    """
    points = as_inputs(x)
    targets = as_targets(y, points.shape[0], labels=False)
    counts = np.asarray(as_weights(weights, points.shape[0], targets.dtype), float)
    center, scale = center_and_scale(targets, counts)
    require_resolution(center, scale, targets.dtype)
    lengthscale: Any = jnp.full(points.shape[1] if ard else (), np.sqrt(2.0))
    # An offset of the size of the mean must be likely beforehand, or else the search explains targets far
    # from zero as noise; beyond ten standard deviations the paper's start is too small for that.
    kernel = RBF(lengthscale, scale**2) + Constant(max(100 * scale**2, center**2))
    if loss is not None:
        if not isinstance(loss, AbstractRegression):
            raise TypeError(f"`loss` must be a regression loss, not {type(loss).__name__}")
        if beta is not None:
            raise ValueError("`beta` is of the default loss: set it in the `loss` itself")
        model = KernelMachine(kernel, loss)
    else:
        beta = default_beta(round(counts.sum())) if beta is None else beta
        model = KernelMachine(kernel, SoftInsensitive(1 / scale, 0.05 * scale, beta))
    names = parameters(model)
    fixed = ["kernel.left.variance"] if "loss.C" in names else []
    return freeze(model, *fixed, *(["loss.beta"] if "loss.beta" in names else []))


def starts(model: KernelMachine, inputs: int) -> list[KernelMachine]:
    """The starting points that the paper suggests: the model, and `10 C` or `kappa = 1/d` instead.

    **Arguments:** `model`, made by `machine`; `inputs`, their number d.

    **Returns:** four models; two where the loss has no C, or where `1/d` is the model's own kappa.
    """
    values = parameters(model)
    found = [model]
    length = values["kernel.left.lengthscale"]
    wide = jnp.full(length.shape, np.sqrt(float(inputs)), length.dtype)
    if not np.allclose(wide, length):
        found.append(replace(model, {"kernel.left.lengthscale": wide}))
    if "loss.C" in values:
        found += [replace(other, {"loss.C": 10 * values["loss.C"]}) for other in found]
    return found


def adapt(
    x: Any,
    y: Any,
    *,
    ard: bool = False,
    beta: float | None = None,
    loss: AbstractRegression | None = None,
    weights: Any = None,
    restarts: int | None = None,
    **options: Any,
) -> Selection:
    """Infer all hyperparameters of a regression by the evidence (eq. 37), from the paper's starts.

    L-BFGS on `ln C, ln epsilon, ln kappa_b, ln kappa`; the end point with the highest evidence is the
    selection's `model`. `selection.fit()` is the regression, `jaxsvm.laplace(selection.fit())` has its error
    bars, `jaxsvm.laplace(selection.ensemble("criterion"))` those of a committee of all starts.

    **Arguments:**

    - `x`, `y`: inputs, one row for each example, and targets; standardize the inputs.
    - `ard`, `beta`, `loss`, `weights`: as in `machine`.
    - `restarts`: how many of `starts` to take; by default all of them.
    - `options`: as for `jaxsvm.select`; by default `optimizer=optimizers.lbfgs(window=5)`, which small jumps
      do not stop, and
      `stop=(stopping.SmallGradient(), stopping.SmallChange(1e-6, patience=20))`.

    **Returns:** a `Selection`, whose criterion is minus the logarithm of the evidence.

    **Example:**

    >>> inputs = jnp.linspace(-1, 1, 25)[:, None]
    >>> adapted = jsvm.regression.adapt(inputs, jnp.sin(3 * inputs[:, 0]), max_steps=20, restarts=1)
    >>> bool(adapted.model.loss.noise_variance < 0.1)
    True
    """
    model = machine(x, y, ard=ard, beta=beta, loss=loss, weights=weights)
    begin = starts(model, as_inputs(x).shape[1])
    restarts = len(begin) if restarts is None else restarts
    if not (isinstance(restarts, int) and 1 <= restarts <= len(begin)):
        raise ValueError(f"`restarts` must be from 1 to {len(begin)}, but is {plain(restarts)!r}")
    options = {"optimizer": _OVER_JUMPS, "stop": _STOP, **options}
    options = {"starts": stack(begin[:restarts]), "restarts": restarts, **options}
    return select(model, x, y, _EVIDENCE, weights=weights, **options)
