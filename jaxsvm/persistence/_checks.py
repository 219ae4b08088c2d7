"""Whether the fields of a module are of the kind that its class says."""

import dataclasses
import inspect
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import AbstractArray

from .._fit import Fit, Stats
from .._parameters import Frozen
from ..kernels import AbstractKernel, Polynomial, Subspace
from ..losses import AbstractLoss


def problem_of(module: Any) -> str | None:
    """What is wrong with the fields of a module of this library, in words; None if nothing is.

    Types are those of the annotations. Shapes are compared within fits only: a batch of models has more
    axes than one model.
    """
    for field in dataclasses.fields(cast(Any, module)):
        value = getattr(module, field.name)
        wanted = field.type
        if inspect.isclass(wanted) and issubclass(wanted, AbstractArray):
            if isinstance(value, Frozen):
                if not isinstance(module, AbstractKernel | AbstractLoss):
                    return f"`{field.name}` is frozen, but only parameters of kernels and losses can be"
                value = value.constant.array
            kind = getattr(value, "dtype", np.dtype(object)).name
            if kind not in wanted.dtypes:
                return f"`{field.name}` must be an array of type {wanted.__name__}, but is {kind}"
        elif wanted is jax.Array and isinstance(value, np.ndarray | np.generic):
            continue  # as the annotations of jaxtyping have it, of which both are arrays
        elif inspect.isclass(wanted) and not isinstance(value, wanted):
            return f"`{field.name}` must be a {wanted.__name__}, not a {type(value).__name__}"
    if isinstance(module, Polynomial) and module.degree < 1:
        return f"`degree` must be a whole number from 1 on, but is {module.degree}"
    if isinstance(module, Subspace):
        return _problem_of_inputs(module.inputs)
    return _problem_of_fit(module) if isinstance(module, Fit) else None


def _problem_of_inputs(inputs: Any) -> str | None:
    whole = isinstance(inputs, tuple) and all(type(i) is int and i >= 0 for i in inputs)
    if not whole or not inputs or len(set(inputs)) != len(inputs):
        return f"`inputs` must be different places, from 0 on, and at least one, but are {inputs!r}"
    return None


def _problem_of_fit(fit: Fit) -> str | None:
    """A fit of n examples, or a batch of them with the same axes before all shapes."""
    examples = fit.y.shape
    if not examples:
        return "`y` must be a vector, but is one number"
    if fit.x.ndim != fit.y.ndim + 1 or fit.x.shape[:-1] != examples:
        return f"`x` has shape {fit.x.shape}, but `y` has {examples}"
    for name in ("weights", "dual", "latent", "group"):
        shape = getattr(fit, name).shape
        if shape != examples:
            return f"`{name}` has shape {shape}, but `y` has {examples}"
    scalars = {"offset": fit.offset, "result": fit.result}
    scalars |= {field.name: getattr(fit.stats, field.name) for field in dataclasses.fields(Stats)}
    for name, value in scalars.items():
        if value.shape != examples[:-1]:
            return f"`{name}` has shape {value.shape}, but must have {examples[:-1]}"
    dtypes = {str(jnp.result_type(a)) for a in (fit.x, fit.y, fit.weights, fit.dual, fit.latent)}
    if len(dtypes) > 1:
        return f"its arrays differ in precision: {', '.join(sorted(dtypes))}"
    return None
