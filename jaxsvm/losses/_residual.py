"""Piecewise losses of a residual, as models of the noise with everything in closed form."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ._likelihood import AbstractRegression
from ._piecewise import AbstractTwoSided


class AbstractResidual(AbstractTwoSided, AbstractRegression):
    """A piecewise loss of the residual `r = y - f`, a noise model in closed form [CKO04, eq. 14]."""

    def log_normalizer(self) -> Array:
        """`-ln Z` with `Z = 2 (zone + gauss + tail)`, the three parts of the half-line's integral.

        `zone = dead_zone`, `gauss = sqrt(pi compliance / 2) erf(bound sqrt(compliance / 2))`,
        `tail = exp(-compliance bound^2 / 2) / bound` [CKO04, eq. 14].
        """
        return -jnp.log(2 * sum(self._masses()))

    @property
    def noise_variance(self) -> Array:
        """The variance of the noise, in closed form.

        [CKO04, eq. 15], which is the case of the soft insensitive loss.
        """
        dead_zone, compliance, bound = self.shape()
        zone, gauss, tail = self._masses()
        start = jnp.zeros_like(zone) if dead_zone is None else dead_zone
        second_moment = start**3 / 3
        knee = start  # where the linear piece begins
        if compliance is not None:
            # with t = excess: int t e^(-t^2/2c) = c (1 - e), int t^2 e^(-t^2/2c) = c (gauss - knee e)
            end = jnp.zeros_like(zone) if bound is None else jnp.exp(-compliance * bound**2 / 2)
            length = jnp.zeros_like(zone) if bound is None else compliance * bound
            second_moment += start**2 * gauss + 2 * start * compliance * (1 - end)
            second_moment += compliance * (gauss - length * end)
            knee = start + length
        if bound is not None:
            second_moment += tail * (knee**2 + 2 * knee / bound + 2 / bound**2)
        return second_moment / (zone + gauss + tail)

    def noise_cumulative(self, residual: Array) -> Array:
        """The probability that the noise is at most `residual`, in closed form."""
        _, compliance, bound = self.shape()
        zone, gauss, tail = self._masses()
        size = jnp.abs(residual)
        covered, knee = jnp.minimum(size, zone), zone
        if compliance is not None:
            length = jnp.inf if bound is None else compliance * bound
            inside = jnp.clip(size - zone, 0.0, length)
            covered += jnp.sqrt(jnp.pi * compliance / 2) * jax.lax.erf(
                inside / jnp.sqrt(2 * compliance)
            )
            knee = zone + length
        if bound is not None:
            covered -= tail * jnp.expm1(-bound * jnp.maximum(size - knee, 0.0))
        return 0.5 + jnp.sign(residual) * covered / (2 * (zone + gauss + tail))

    def sample_noise(self, shape: tuple[int, ...], *, key: Any) -> Array:
        """Draws from the noise: uniform in the zone, a truncated Gaussian, an exponential tail."""
        dead_zone, compliance, bound = self.shape()
        masses = jnp.stack(self._masses())
        keys = jax.random.split(key, 4)
        piece = jax.random.categorical(keys[0], jnp.log(masses), shape=shape)
        uniform = jax.random.uniform(keys[1], shape, masses.dtype)
        start = 0.0 if dead_zone is None else dead_zone
        size, knee = start * uniform, start
        if compliance is not None:
            deviation = jnp.sqrt(compliance)
            upper = jnp.inf if bound is None else bound * deviation
            gauss = jax.random.truncated_normal(keys[2], 0.0, upper, shape, masses.dtype)
            size = jnp.where(piece == 1, start + deviation * gauss, size)
            knee = start if bound is None else start + compliance * bound
        if bound is not None:
            tail = knee + jax.random.exponential(keys[2], shape, masses.dtype) / bound
            size = jnp.where(piece == 2, tail, size)
        return size * jax.random.rademacher(keys[3], shape, masses.dtype)

    def _masses(self):
        dead_zone, compliance, bound = self.shape()
        zero = jnp.zeros_like(self.shape().like)
        zone = zero if dead_zone is None else dead_zone
        gauss, tail = zero, zero
        if compliance is not None:
            full = jnp.sqrt(jnp.pi * compliance / 2)
            gauss = full if bound is None else full * jax.lax.erf(bound * jnp.sqrt(compliance / 2))
        if bound is not None:
            tail = 1 / bound
            if compliance is not None:
                tail = tail * jnp.exp(-compliance * bound**2 / 2)
        return zone, gauss, tail
