"""Chains whose gradients come from random batches of the examples, without a full pass at each step."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from .._machine import KernelMachine
from ..linalg import solve_triangular
from ..runtime import count_row_shards
from ._chains import COORDINATES, Chains, Draws, Traces, mean_curvature, moments
from ._samplers import SGLD, langevin_step
from ._target import Scaling, Target, find_mode, scale, slopes

_LARGEST_STEP = 0.3
_SHARE = 0.2  # of the random moves that batches may supply; the step size adapts to it
# the mode is first found for so many, and at least ten for each coordinate
_FIRST_EXAMPLES = 10_000
_NEWTON_STEPS = 3  # with all examples after that
_MOMENT_DRAWS = 25  # of each chain, to linearize the slopes
_FEWEST_MOMENTS = 50  # draws of all chains below which the slopes stay linearized at the mode
_FAR = 10.0  # squared distances from the center, divided by their mean, that count as a divergence


class Linearized(NamedTuple):
    """Slopes as linear functions of latent values, `u_i ~ a_i + D_i (f_i - f0_i)`, around a center.

    They are the control variate of the batches: what is linear is summed over all examples once, and batches
    estimate only the rest. `slope` is a, `curvature` is D, `latent` is `f0 = V center`. In the coordinates c
    with `b = center + S c` the gradient of minus the log density is `gradient + c` plus the rest.
    """

    center: Float[Array, " p"]
    slope: Float[Array, " n"]
    curvature: Float[Array, " n"]
    latent: Float[Array, " n"]
    gradient: Float[Array, " p"]
    scaling: Scaling


def check_batches(model: KernelMachine, x: Float[Array, "n d"], method: SGLD) -> None:
    """Raise unless the chains can take batches of these examples.

    **Arguments:** `model`, the kernel machine; `x`, the inputs; `method`.
    """
    if method.batch >= x.shape[0]:
        raise ValueError(
            f"a batch of {method.batch} is not smaller than the data, {x.shape[0]} examples: lower `batch`, "
            "or use `sampling.MCLMC()`, which has no bias"
        )
    if model.loss.has_wall:
        raise ValueError(
            "a loss with a wall has slopes without bound, which batches cannot estimate: use "
            "`sampling.MCLMC()`"
        )
    shards = count_row_shards(x)
    if 2 * shards > method.batch:
        raise ValueError(
            f"a batch of {method.batch} has fewer than two examples of each of the {shards} devices that "
            f"share the data: raise `batch` to at least {2 * shards}"
        )


class _Batch(NamedTuple):
    """Random examples, with replacement: equally many of the rows of each device, along the first axis."""

    numbers: Int[Array, "shards k"]

    def rows(self, array: Shaped[Array, "n ..."]) -> Shaped[Array, "batch ..."]:
        """These rows of an array, one device after the other. They stay on the devices that have them."""
        rest = array.shape[1:]
        parts = array.reshape(self.numbers.shape[0], -1, *rest)
        return jax.vmap(lambda part, numbers: part[numbers])(parts, self.numbers).reshape(-1, *rest)


def _draw_batch(key: PRNGKeyArray, examples: int, size: int, shards: int) -> _Batch:
    """A batch of at least `size` examples."""
    shape = shards, -(-size // shards)
    return _Batch(jax.random.randint(key, shape, 0, examples // shards))


def find_center(target: Target, key: PRNGKeyArray, shards: int = 1) -> Float[Array, " p"]:
    """The approximate mode: found for some of the examples if there are many.

    **Arguments:** `target`, the posterior; `key`, a random key; `shards`, the number of devices among which
    its rows are divided.

    **Returns:** white coordinates.
    """
    examples, rank = target.factor.shape
    some = max(_FIRST_EXAMPLES, 10 * rank)
    if examples <= 2 * some:
        return find_mode(target)[0]
    batch = _draw_batch(key, examples, some, shards)
    factor, y, weights = map(batch.rows, (target.factor, target.y, target.weights))
    part = target._replace(factor=factor, y=y, weights=weights * (examples / y.shape[0]))
    return find_mode(part)[0]


def draw_by_batches(
    target: Target,
    method: SGLD,
    start: Float[Array, " p"],
    key: PRNGKeyArray,
    chains: int,
    warmup: int,
    draws: int,
    shards: int = 1,
) -> Draws:
    """Draw from the posterior with gradients from batches.

    If devices share the rows, each batch has equally many of the rows of each device, so that rows stay where
    they are. Compared with a batch of all rows, the mean of its gradient is the same, and the variance is no
    larger.

    The chains begin at draws from a Gaussian at the mode. After half of the warm-up the slopes are linearized
    again, by regression on the draws (Stein's lemma); the noise of the batches is measured all along.

    **Arguments:** `target`, the posterior; `method`; `start`, white coordinates near the mode; `key`, a
    random key; `chains`, `warmup` and `draws`, their numbers; `shards`, the number of devices among which the
    rows are divided.

    **Returns:** the `Draws`, whose traces lack the losses.
    """
    mode, curvature = find_mode(target, start, _NEWTON_STEPS)
    linear = _linearize(target, mode, slopes(target, target.factor @ mode), curvature)
    start_key, *keys, momentum_key = jax.random.split(key, 5)
    c = jax.random.normal(start_key, (chains, mode.shape[0]), mode.dtype)
    noise = jnp.zeros_like(mode)
    explore = partial(_explore, target, method, shards)
    half = warmup // 2
    if half * chains >= _FEWEST_MOMENTS:
        c, noise, (b, _) = explore(linear, c, noise, keys[0], half)
        linear = linearize_by_draws(target, b)
        c = solve_triangular(
            linear.scaling.root.T, (b[-1] - linear.center[None]).T, transposed=True
        ).T
        warmup -= half
    if warmup:
        c, noise, _ = explore(linear, c, noise * 0, keys[1], warmup)
    step_size = _step_size(method, noise)
    fixed = step_size, _temperature(step_size, noise)
    c, measured, (b, divergent) = explore(linear, c, noise * 0, keys[2], draws, fixed)
    share = jnp.max(step_size * measured / (2 - step_size))
    state = Chains(b[-1], linear.curvature, jnp.log(step_size))
    return Draws(b, state, _traces(b, divergent, method.steps, momentum_key), share)


def _traces(b: Float[Array, "draws chains p"], divergent, steps: int, key) -> Traces:
    """Traces without losses: all moves are accepted, and the energies have fresh momenta."""
    penalty = jnp.sum(b**2, axis=2) / 2
    momentum = jax.random.normal(key, b.shape, b.dtype)
    return Traces(
        loss=jnp.zeros_like(penalty),
        penalty=penalty,
        coordinates=b[..., :COORDINATES],
        energy=penalty + jnp.sum(momentum**2, axis=2) / 2,
        acceptance=jnp.ones_like(penalty),
        divergent=divergent,
        steps=jnp.full(penalty.shape, steps),
    )


def _linearize(target: Target, center, slope, curvature) -> Linearized:
    scaling = scale(target, curvature)
    gradient = scaling.factor.T @ slope + scaling.root.T @ center
    return Linearized(center, slope, curvature, target.factor @ center, gradient, scaling)


def linearize_by_draws(target: Target, b: Float[Array, "draws chains p"]) -> Linearized:
    """Slopes linearized by their regression on the latent values over draws, 25 or fewer of each chain.

    **Arguments:** `target`, the posterior; `b`, draws in white coordinates.

    **Returns:** a `Linearized`.
    """
    b = b[:: -(-b.shape[0] // _MOMENT_DRAWS)]

    def add(means, some):
        return means + moments(target, some @ target.factor.T) / b.shape[0], None

    zero = jnp.zeros((4, *target.y.shape), target.y.dtype)
    means, _ = jax.lax.scan(add, zero, b)
    return _linearize(target, jnp.mean(b, axis=(0, 1)), means[0], mean_curvature(*means))


def _explore(
    target, method: SGLD, shards: int, linear: Linearized, c, noise, key, draws: int, fixed=None
):
    """Move all chains: their positions, the mean noise of the batches, all draws and which diverged.

    `fixed` holds the step size and the temperature; None to adapt them to the mean noise so far.
    """

    def one_step(carry, key):
        c, noise, time = carry
        batch_key, move_key = jax.random.split(key)
        keys = jax.random.split(batch_key, c.shape[0])  # each chain has its own batches
        forces = jax.vmap(partial(_force, target, method, shards, linear))
        force, new = forces(c, keys)
        noise = noise + (jnp.mean(new, axis=0) - noise) / (time + 1)
        step_size = _step_size(method, noise)
        size, temperature = fixed or (step_size, _temperature(step_size, noise))
        c = langevin_step(move_key, c, force, size, jnp.broadcast_to(temperature, c.shape))
        return (c, noise, time + 1), None

    def one_draw(carry, key):
        carry, _ = jax.lax.scan(one_step, carry, jax.random.split(key, method.steps))
        c = carry[0]
        far = ~(jnp.sum(c**2, axis=1) <= _FAR * (c.shape[1] + 10))  # a NaN is far as well
        return carry, (linear.center[None] + c @ linear.scaling.root.T, far)

    begin = (c, noise, jnp.zeros((), c.dtype))
    (c, noise, _), record = jax.lax.scan(one_draw, begin, jax.random.split(key, draws))
    return c, noise, record


def _force(
    target: Target, method: SGLD, shards: int, linear: Linearized, c: Float[Array, " p"], key
):
    """An estimate of the gradient of the log density by a batch, and the variance of each entry.

    With `n_s` rows on each of S devices and k of them in the batch, the sum of the rest over all examples is
    estimated by `n_s sum_s mean_s`, and its variance by `n_s^2 sum_s var_s / (k - 1)`, where means and
    variances are those of the examples of a device.
    """
    batch = _draw_batch(key, target.y.shape[0], method.batch, shards)
    rows = batch.rows(linear.scaling.factor)
    move = rows @ c
    part = target._replace(y=batch.rows(target.y), weights=batch.rows(target.weights))
    rest = slopes(part, batch.rows(linear.latent) + move)
    rest = rest - batch.rows(linear.slope) - batch.rows(linear.curvature) * move
    own, size = target.y.shape[0] // shards, batch.numbers.shape[1]
    rest, rows = rest.reshape(shards, size), rows.reshape(shards, size, -1)
    mean = jnp.einsum("sk,skp->sp", rest, rows) / size
    square = jnp.einsum("sk,skp->sp", rest**2, rows**2) / size
    variance = own**2 * jnp.sum(square - mean**2, axis=0) / (size - 1)
    return -(linear.gradient + c + own * jnp.sum(mean, axis=0)), jnp.maximum(variance, 0.0)


def _step_size(method: SGLD, noise: Float[Array, " p"]) -> Float[Array, ""]:
    """The step size at which batches supply at most the share `_SHARE` of the random moves."""
    if method.step_size is not None:
        return jnp.asarray(method.step_size, noise.dtype)
    return jnp.minimum(2 * _SHARE / (jnp.max(noise) + _SHARE), _LARGEST_STEP)


def _temperature(step_size, noise: Float[Array, " p"]) -> Float[Array, " p"]:
    """That of the added noise, for which a Gaussian posterior of unit widths is sampled without bias.

    With the step size h and the variance v of the force, `c <- (1 - h) c + h sqrt(v) e + sqrt(2 h T) e'` has
    unit variance if `T = 1 - h (1 + v) / 2`.
    """
    return jnp.maximum(1 - step_size * (1 + noise) / 2, 0.0)
