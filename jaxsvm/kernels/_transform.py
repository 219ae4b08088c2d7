"""Kernels on transformed inputs: `k(g(x), g(x'))`."""

import operator
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ..fields import Natural, Values, natural, positive
from ..persistence import check_fields
from ._algebra import AbstractKernel, AbstractSpectral, require_kernel, waves_of
from ._custom import UserFunction
from ._distances import scale_inputs
from ._spectrum import Waves


class ARD(AbstractSpectral):
    """A kernel whose inputs are divided by one lengthscale each (automatic relevance determination).

    `k(x, x') = kernel(x / lengthscale, x' / lengthscale)`. It is for kernels without lengthscales, or with
    one for all inputs; keep that one frozen, since only the product of the two matters.

    **Arguments:** `kernel`; `lengthscale`, a positive vector with one entry for each input.
    """

    kernel: AbstractKernel
    log_lengthscale: Float[Array, " d"]

    def __init__(self, kernel: AbstractKernel, lengthscale: Values):
        self.kernel = require_kernel(kernel)
        self.log_lengthscale = positive(lengthscale, "lengthscale", max_axes=1)
        if self.log_lengthscale.ndim != 1:
            raise ValueError("`lengthscale` must be a vector with one entry for each input")

    lengthscale: ClassVar[Natural] = natural(
        "log_lengthscale", "The distance in each input over which the function varies."
    )

    def matrix(self, x1: Array, x2: Array, same: bool) -> Array:
        return self.kernel.matrix(self._scaled(x1), self._scaled(x2), same)

    def diagonal(self, x: Array) -> Array:
        return self.kernel.diagonal(self._scaled(x))

    def waves(self) -> tuple[Waves, ...]:
        return tuple(waves.after(self._scaled) for waves in waves_of(self.kernel))

    def _scaled(self, x):
        return scale_inputs(x, self.lengthscale)


class Subspace(AbstractSpectral):
    """A kernel that uses only some of the inputs: `k(x, x') = kernel(x[inputs], x'[inputs])`.

    **Arguments:** `kernel`; `inputs`, the column numbers of the inputs it uses, counted from 0.
    """

    kernel: AbstractKernel
    inputs: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, kernel: AbstractKernel, inputs: Sequence[int]):
        self.kernel = require_kernel(kernel)
        try:
            self.inputs = tuple(operator.index(i) for i in inputs)
        except TypeError as error:
            raise TypeError(f"`inputs` must be whole numbers, but are {inputs!r}") from error
        if (problem := _problem_of_inputs(self)) is not None:
            raise ValueError(problem)

    def matrix(self, x1: Array, x2: Array, same: bool) -> Array:
        return self.kernel.matrix(self._selected(x1), self._selected(x2), same)

    def diagonal(self, x: Array) -> Array:
        return self.kernel.diagonal(self._selected(x))

    def waves(self) -> tuple[Waves, ...]:
        return tuple(waves.after(self._selected) for waves in waves_of(self.kernel))

    def _selected(self, x):
        if max(self.inputs) >= x.shape[1]:
            raise ValueError(
                f"the kernel uses input {max(self.inputs)}, but the points have {x.shape[1]} inputs"
            )
        return x[:, np.array(self.inputs)]


def _problem_of_inputs(kernel: Subspace) -> str | None:
    inputs = kernel.inputs
    whole = isinstance(inputs, tuple) and all(type(i) is int and i >= 0 for i in inputs)
    if not whole or not inputs or len(set(inputs)) != len(inputs):
        return f"`inputs` must be distinct column numbers, at least one, counted from 0, not {inputs!r}"
    return None


check_fields(Subspace, _problem_of_inputs)


class Transform(AbstractSpectral):
    """A kernel on features: `k(x, x') = kernel(g(x), g(x'))`, for instance with a neural network `g`.

    **Arguments:** `kernel`; `function`, a map from one point to a vector of features: a function
    `(x)`, a function `(parameters, x)` with `parameters`, or any `eqx.Module`.
    """

    kernel: AbstractKernel
    function: UserFunction

    def __init__(self, kernel: AbstractKernel, function: Any, parameters: Any = None):
        self.kernel = require_kernel(kernel)
        self.function = UserFunction(function, parameters)

    def matrix(self, x1: Array, x2: Array, same: bool) -> Array:
        features1 = self._features(x1)
        return self.kernel.matrix(features1, features1 if same else self._features(x2), same)

    def diagonal(self, x: Array) -> Array:
        return self.kernel.diagonal(self._features(x))

    def waves(self) -> tuple[Waves, ...]:
        return tuple(waves.after(self._features) for waves in waves_of(self.kernel))

    def _features(self, x):
        features = jax.vmap(self.function)(x)
        if features.ndim != 2:
            raise ValueError(
                "`function` must map a point to a vector of features, but one point gives shape "
                f"{features.shape[1:]}"
            )
        return features
