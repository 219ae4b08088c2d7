"""Random Fourier features: a kernel matrix of low rank, made from random waves."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._machine import KernelMachine
from ..hyperparameters import unfreeze
from ..kernels import AbstractKernel, waves_of
from ..runtime import jit
from ..validation import check_count
from ._approximation import AbstractApproximation
from ._basis import AbstractBasis, residual_variance
from ._blocks import in_blocks
from ._whitening import AbstractSubspace, Whitening, lost_share


class RandomFourier(AbstractApproximation):
    """Random Fourier features: a matrix of low rank, made from random waves.

    A stationary kernel is an average of waves, `k(x, x') = variance E[cos(w'(x - x'))]` over random
    frequencies w. With q of them, the columns of V are `sqrt(variance / q) cos(w_j'x)` and
    `sqrt(variance / q) sin(w_j'x)`. So `E[V V'] = K`, prior variances are exact, and the other entries of
    `V V'` have standard errors of at most about `variance / sqrt(2 q)` (A. Rahimi and B. Recht, "Random
    features for large-scale kernel machines", 2007). Frequencies are orthogonal in groups, which lowers the
    errors. `Whitening.error` does not show them, since it counts variances only.

    Time and memory are O(n p), without landmarks and without a factorization. All stationary kernels have
    waves, and so do `Periodic`, `Constant`, and `Sum`, `Product`, `ARD`, `Subspace` and `Transform` of
    kernels that have them. Each term of a sum has an equal share of the features, a constant has one. White
    noise has none; it is part of the residual.

    **Arguments:**

    - `features`: the number p of white coordinates, two for each wave.
    - `seed`: for the random waves if no random key is passed.

    **Example:**

    >>> kernel = jsvm.kernels.RBF(jnp.ones(2)) + jsvm.kernels.Constant(0.1)
    >>> waves = jsvm.RandomFourier(101).subspace(jsvm.KernelMachine(kernel, jsvm.losses.Hinge()), x)
    >>> waves.whiten(kernel, x).factor.shape
    (30, 101)
    """

    features: int = eqx.field(static=True)
    seed: int = eqx.field(static=True, default=0)

    def __check_init__(self) -> None:
        check_count("features", self.features)
        check_count("seed", self.seed, 0)

    def subspace(self, model: KernelMachine, x: Array, key: Any = None) -> AbstractSubspace:
        key = jax.random.key(self.seed) if key is None else key
        # one example is enough to know the number of inputs
        return FourierSubspace(_draw(unfreeze(model).kernel, x[:1], key, self.features))


class FourierSubspace(AbstractSubspace):
    """The span of random waves, whose frequencies follow the hyperparameters.

    `noise` has the random numbers of the waves, one pytree for each term of the kernel, None for a constant.
    """

    noise: tuple[Any, ...]

    def whiten(self, kernel: AbstractKernel, x: Array, shards: int | None = None) -> Whitening:
        factor = in_blocks(lambda x: _waves(kernel, self.noise, x), x, shards)
        return Whitening(factor, FourierBasis(self.noise), lost_share(kernel, x, factor))

    def shared(self, kernel: AbstractKernel, x: Array) -> tuple[()]:
        return ()

    def rows(self, kernel: AbstractKernel, shared: Any, x: Array, numbers: Array) -> Array:
        return _waves(kernel, self.noise, x)


class FourierBasis(AbstractBasis):
    """The functions `sqrt(variance / q) cos(phase_j(x))` and `sqrt(variance / q) sin(phase_j(x))`.

    Only white noise is outside their span, so residuals of different points are independent.

    `noise` has the random numbers of the waves, as in `FourierSubspace`.
    """

    noise: tuple[Any, ...]

    def features(self, kernel: AbstractKernel, x: Array) -> tuple[Array, Array]:
        rows = _waves(kernel, self.noise, x)
        return rows, residual_variance(kernel, x, rows)

    def joint_features(self, kernel: AbstractKernel, x: Array) -> tuple[Array, Array]:
        rows, residual = self.features(kernel, x)
        return rows, jnp.diag(residual)


def _waves(kernel, noise, x):
    """Cosines and sines of all terms, side by side."""
    columns = []
    for term, numbers in zip(waves_of(kernel), noise, strict=True):
        if term.phases is None:
            columns.append(jnp.broadcast_to(jnp.sqrt(term.variance), (x.shape[0], 1)))
        else:
            phases = term.phases(numbers, x)
            amplitude = jnp.sqrt(term.variance / phases.shape[1])
            columns += [amplitude * jnp.cos(phases), amplitude * jnp.sin(phases)]
    return jnp.concatenate(columns, axis=1)


@partial(jit, static_argnums=3)
def _draw(kernel, x, key, features):
    """The random numbers of all terms, each with the same share of the features."""
    terms = waves_of(kernel)
    if not terms:
        raise ValueError("white noise alone has no random Fourier features: use `jaxsvm.Exact()`")
    random = sum(term.draw is not None for term in terms)
    waves = (features - (len(terms) - random)) // 2
    if waves < random or len(terms) > features:
        raise ValueError(
            f"`features` must be at least {len(terms) + random} for this kernel, which is a sum of "
            f"{len(terms)} terms, but is {features}"
        )
    counts = (waves // random + (number < waves % random) for number in range(random))
    keys = jax.random.split(key, len(terms))
    return tuple(
        None if term.draw is None else term.draw(key, next(counts), x)
        for term, key in zip(terms, keys, strict=True)
    )
