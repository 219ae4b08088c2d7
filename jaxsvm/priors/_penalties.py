"""Penalties on a vector of hyperparameters whose scale is integrated out."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

# an input whose relevance is below this share of the largest has no influence
_NEGLIGIBLE = 1e-12


class AbstractPenalty(eqx.Module):
    """A prior `p(v | xi)` proportional to `xi^power exp(-xi penalty(v))`.

    Integrating out its scale xi with Jeffreys' prior `1 / xi` gives a prior proportional to `penalty^-power`.
    """

    @abc.abstractmethod
    def penalty(self, values: Float[Array, " k"]) -> Float[Array, ""]:
        """Omega, the penalty on the values.

        **Arguments:** `values`, a vector.

        **Returns:** a number, zero or positive.
        """

    @abc.abstractmethod
    def power(self, values: Float[Array, " k"]) -> Float[Array, ""]:
        """The power of xi in the normalizer.

        **Arguments:** `values`, a vector.

        **Returns:** a number.
        """


class GaussianPenalty(AbstractPenalty):
    """`Omega = 1/2 sum_i v_i^2`, power `k / 2`.

    [CT07, eqs. 14-15], where the values are the relevances of the inputs.
    """

    def penalty(self, values: Array) -> Array:
        return jnp.sum(values**2) / 2

    def power(self, values: Array) -> Array:
        return jnp.asarray(values.shape[0] / 2, values.dtype)


class LaplacePenalty(AbstractPenalty):
    """`Omega = sum_i |v_i|`, power the number of values that are not zero.

    [CT07, sec. 4.2]. It prefers values of exactly zero. Unconstrained coordinates only approach zero;
    `jaxsvm.criteria.prune` sets values to it. Values below 1e-12 of the largest count as zero, so the
    criterion jumps when one of them is pruned.
    """

    def penalty(self, values: Array) -> Array:
        return jnp.sum(jnp.abs(values))

    def power(self, values: Array) -> Array:
        return jnp.sum(is_active(values)).astype(values.dtype)


class FunctionPenalty(AbstractPenalty):
    """`Omega = function(values)`, with a scale that must be given, since its normalizer is not known.

    **Arguments:** `function`, a function of a vector of values, such as minus a log density.
    """

    function: Callable[[Any], Any] = eqx.field(static=True)

    def penalty(self, values: Array) -> Array:
        return self.function(values)

    def power(self, values: Array) -> Array:
        raise ValueError("the scale of a plain function cannot be integrated out: set `xi`")


def is_active(values: Any) -> Any:
    """Which values are not negligible, relative to the largest.

    **Arguments:** `values`, a NumPy or a JAX array.

    **Returns:** an array of booleans.
    """
    sizes = abs(values)
    return sizes > _NEGLIGIBLE * sizes.max()


def relevance(lengthscale: Float[Array, "..."]) -> Float[Array, "..."]:
    """`1 / (2 lengthscale^2)`, the factor before the squared difference in an RBF kernel.

    It is zero for an input without influence; [CT07] writes eta.

    **Arguments:** `lengthscale`, one number or one for each input.

    **Returns:** one relevance for each lengthscale.
    """
    return 1 / (2 * lengthscale**2)
