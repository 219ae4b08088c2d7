"""The interface of representations of the kernel matrix, and the exact one."""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from .._machine import KernelMachine
from ..validation import plain
from ._whitening import AbstractSubspace, LandmarkSubspace


class AbstractApproximation(eqx.Module):
    """A representation of the kernel matrix, passed as `approximation=`."""

    @abc.abstractmethod
    def subspace(
        self, model: KernelMachine, x: Float[Array, "n d"], key: Any = None
    ) -> AbstractSubspace:
        """The part of the kernel matrix that is kept.

        **Arguments:** `model`, the kernel machine; `x`, the inputs; `key`, a random key, or None to use the
        `seed` of the approximation.

        **Returns:** an `AbstractSubspace`.
        """


class Exact(AbstractApproximation):
    """The whole kernel matrix, with one white coordinate for each example."""

    def subspace(self, model: KernelMachine, x: Array, key: Any = None) -> AbstractSubspace:
        return LandmarkSubspace(None, x.shape[0])


def require_approximation(approximation: Any) -> None:
    """Raise unless this is a representation of the kernel matrix.

    **Arguments:** `approximation`, passed by the user.
    """
    if not isinstance(approximation, AbstractApproximation):
        raise TypeError(
            "`approximation` must be `jaxsvm.Exact()`, `jaxsvm.Nystrom(rank=...)` or "
            f"`jaxsvm.RandomFourier(features=...)`, not {plain(approximation)!r}"
        )
