"""A Gaussian posterior of the latent function: what mean field and expectation propagation give back."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._fit import decide
from .._machine import KernelMachine
from .._parameters import unfreeze
from .._results import RESULTS, raise_on_failure
from .._roots import safe_root
from ..losses import AbstractLoss
from ..posteriors import AbstractGaussianPosterior, Examples, LeftOut
from ..runtime import jit
from ..validation import as_points


class AbstractResponsePosterior(AbstractGaussianPosterior):
    """The latent function as a Gaussian process, of which each example has been a noisy measurement.

    Its mean is `sum_i dual_i k(x, x_i)`, its variance `k(x, x) - k' response k` with k the covariances of x
    and the examples: `dual` and `response` are all that predictions need. `mean` and `variance` are those
    at the examples; `left_out` is what is predicted of each of them from the others. `result` is a code of
    `jaxsvm.RESULTS`, `iterations` and `residual` tell how the fixed point was reached. `model`, `x`, `y`
    and `weights` are whose posterior it is.
    """

    model: eqx.AbstractVar[KernelMachine]
    x: eqx.AbstractVar[Float[Array, "n d"]]
    y: eqx.AbstractVar[Float[Array, " n"]]
    weights: eqx.AbstractVar[Float[Array, " n"]]
    dual: eqx.AbstractVar[Float[Array, " n"]]
    mean: eqx.AbstractVar[Float[Array, " n"]]
    variance: eqx.AbstractVar[Float[Array, " n"]]
    response: eqx.AbstractVar[Float[Array, "n n"]]
    left_out: eqx.AbstractVar[LeftOut]
    result: eqx.AbstractVar[Int[Array, ""]]
    iterations: eqx.AbstractVar[Int[Array, ""]]
    residual: eqx.AbstractVar[Float[Array, ""]]

    @property
    def loss(self) -> AbstractLoss:
        """The likelihood of the labels."""
        return self.model.loss

    @property
    def examples(self) -> Examples:
        """The data whose posterior it is."""
        return Examples(self.x, self.y, self.weights)

    @property
    def message(self) -> str:
        """What `result` means; for a batch, the meaning of its worst member."""
        return RESULTS(int(np.max(np.asarray(self.result)))).message

    def decision(self, x: Any) -> Float[Array, " m"]:
        """The posterior mean of the latent function at new points.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one value for each point.
        """
        kernel, known, points, _ = self._parts(x)
        return decide(kernel, known, self.dual, jnp.zeros((), known.dtype), points)

    def deviation(self, x: Any) -> Float[Array, " m"]:
        """The standard deviation of the latent function at new points.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one standard deviation for each point.
        """
        return _deviation(*self._parts(x))

    def covariance(self, x: Any) -> Float[Array, "m m"]:
        """The covariance of the latent function between new points.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** a symmetric matrix.
        """
        return _covariance(*self._parts(x))

    def _parts(self, x):
        points = as_points(x, self.x).astype(self.x.dtype)
        return unfreeze(self.model.kernel), self.x, points, self.response


def variances(gram: Float[Array, "n n"], response: Float[Array, "n n"]) -> Float[Array, " n"]:
    """The diagonal of `K - K response K`, none of it negative."""
    return jnp.maximum(jnp.diag(gram) - jnp.sum((gram @ response) * gram, axis=1), 0)


def raise_if_failed(posterior, throw: bool):
    """The posterior as it is, with its own model; or an error if the fixed point was not reached."""
    if not throw:
        return posterior

    def details():
        return (
            f" (residual {float(posterior.residual):.1e} after {int(posterior.iterations)} iterations; "
            "`throw=False` returns the posterior all the same)"
        )

    dual = raise_on_failure(posterior.dual, posterior.result, details)
    return eqx.tree_at(lambda tree: tree.dual, posterior, dual)


@jit
def _deviation(kernel, known, x, response) -> Float[Array, " m"]:
    cross = kernel.matrix(x, known, same=False)
    return safe_root(kernel.diagonal(x) - jnp.sum((cross @ response) * cross, axis=1))


@jit
def _covariance(kernel, known, x, response) -> Float[Array, "m m"]:
    cross = kernel.matrix(x, known, same=False)
    return kernel.matrix(x, x, same=True) - cross @ response @ cross.T
