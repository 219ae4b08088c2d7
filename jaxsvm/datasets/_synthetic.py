"""Generators of the artificial problems used in the papers."""

import math
import operator
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..runtime import require_own_process
from ..validation import plain
from ._containers import Dataset


@runtime_checkable
class NoiseModel(Protocol):
    """Anything that can draw additive noise, such as a regression loss read as a likelihood."""

    def sample_noise(self, shape: tuple[int, ...], *, key: PRNGKeyArray) -> Float[Array, "..."]:
        """Independent draws of the noise.

        **Arguments:** `shape`, the shape of the array; `key`, a PRNG key.

        **Returns:** an array of that shape.
        """
        ...


def twonorm(n: int, *, key: PRNGKeyArray) -> Dataset:
    """Breiman's twonorm: two spherical Gaussians in twenty dimensions, equally likely.

        y = ±1 with probability 1/2 each,    x | y ~ N(y a 1, I),    a = 2/√20

    The best rule is `sign(sum(x))`; it errs with probability Φ(-2), about 2.3 %.

    **Arguments:**

    - `n`: the number of examples.
    - `key`: a PRNG key.

    **Returns:**

    A `Dataset` with `x` of shape `(n, 20)` and labels `y` in {-1, +1}.

    Breiman, "Bias, variance, and arcing classifiers", Technical Report 460, Statistics Department,
    University of California, Berkeley, 1996.
    """
    _check_size(n)
    label_key, input_key = jax.random.split(key)
    y = jax.random.rademacher(label_key, (n,), dtype=float)
    x = y[:, None] * (2 / math.sqrt(20)) + jax.random.normal(input_key, (n, 20))
    return Dataset(x, y)


def ringnorm(n: int, *, key: PRNGKeyArray, center: float = 2 / math.sqrt(20)) -> Dataset:
    """Breiman's ringnorm: a narrow Gaussian within a wide one in twenty dimensions, equally likely.

        x | y = +1 ~ N(0, 4 I),    x | y = -1 ~ N(a 1, I),    a = 2/√20

    The best rule is quadratic in x and errs with a probability of about 1.2 %.

    **Arguments:**

    - `n`: the number of examples.
    - `key`: a PRNG key.
    - `center`: a, each coordinate of the narrow class's mean. The default is that of the DELVE and
        IDA collections, whose files are also standardized, unlike these inputs. Breiman's value is
        `1 / math.sqrt(20)`, for which the best rule errs with a probability of about 1.5 %.

    **Returns:**

    A `Dataset` with `x` of shape `(n, 20)` and labels `y` in {-1, +1}; +1 is the wide class, as in
    the IDA collection.

    Breiman, "Bias, variance, and arcing classifiers", Technical Report 460, Statistics Department,
    University of California, Berkeley, 1996.
    """
    _check_size(n)
    label_key, input_key = jax.random.split(key)
    y = jax.random.rademacher(label_key, (n,), dtype=float)
    wide = y[:, None] > 0
    noise = jax.random.normal(input_key, (n, 20))
    return Dataset(jnp.where(wide, 2 * noise, center + noise), y)


def _triangle(peak: int) -> np.ndarray:
    return np.maximum(6 - np.abs(np.arange(1, 22) - peak), 0)


# The three base waves, named by the position of their peaks, and the pairs that are mixed. The first
# pair is the class +1: only then do the class means agree with those of the IDA collection.
_MIDDLE, _LATE, _EARLY = _triangle(11), _triangle(15), _triangle(7)
_PAIRS = np.array([[_MIDDLE, _EARLY], [_MIDDLE, _LATE], [_LATE, _EARLY]], dtype=np.float32)


def waveform(n: int, *, key: PRNGKeyArray) -> Dataset:
    """Breiman's waveforms: noisy mixtures of two out of three triangular waves, as two classes.

        x_i = u h(i) + (1 - u) h'(i) + e_i,    u ~ U(0, 1),    e_i ~ N(0, 1),    i = 1, ..., 21,

    where the waves are `h(i) = max(6 - |i - c|, 0)` with peaks c = 7, 11 and 15, and (h, h') is one
    of the three pairs of them, equally likely. The class +1 mixes the waves with peaks 11 and 7 and
    has probability 1/3; the two other pairs form the class -1.

    **Arguments:**

    - `n`: the number of examples.
    - `key`: a PRNG key.

    **Returns:**

    A `Dataset` with `x` of shape `(n, 21)` and labels `y` in {-1, +1}; the classes are those of the
    IDA collection, whose files are standardized, unlike these inputs.

    Breiman, Friedman, Olshen and Stone, "Classification and Regression Trees", 1984, section 2.6.2;
    as two classes in Rätsch, Onoda and Müller, "Soft margins for AdaBoost", Machine Learning 42,
    2001.
    """
    _check_size(n)
    pair_key, weight_key, noise_key = jax.random.split(key, 3)
    pair = jax.random.randint(pair_key, (n,), 0, 3)
    weight = jax.random.uniform(weight_key, (n, 1))
    waves = jnp.asarray(_PAIRS, dtype=float)[pair]
    clean = weight * waves[:, 0] + (1 - weight) * waves[:, 1]
    x = clean + jax.random.normal(noise_key, (n, 21))
    return Dataset(x, jnp.where(pair == 0, 1.0, -1.0))


def noisy_xor(n: int, *, key: PRNGKeyArray, inputs: int = 10) -> Dataset:
    """A noisy exclusive or of two inputs, among irrelevant ones.

        y = sign(x_1 x_2 + 0.2 e),    x ~ N(0, I),    e ~ N(0, 1)

    No single input carries information about the label, and a kernel with a common lengthscale is swamped
    by the irrelevant inputs: a task for automatic relevance determination. The best rule errs with a
    probability of about 14 %.

    **Arguments:**

    - `n`: the number of examples.
    - `key`: a PRNG key.
    - `inputs`: the number of inputs, at least two; only the first two are relevant.

    **Returns:**

    A `Dataset` with `x` of shape `(n, inputs)` and labels `y` in {-1, +1}.
    """
    _check_size(n)
    if inputs < 2:
        raise ValueError(f"`inputs` must be at least 2, but is {inputs}")
    input_key, noise_key = jax.random.split(key)
    x = jax.random.normal(input_key, (n, inputs))
    noise = 0.2 * jax.random.normal(noise_key, (n,))
    return Dataset(x, jnp.where(x[:, 0] * x[:, 1] + noise > 0, 1.0, -1.0))


def sinc(
    n: int,
    *,
    noise: NoiseModel | None,
    key: PRNGKeyArray,
    low: float = -10.0,
    high: float = 10.0,
) -> Dataset:
    """The noisy cardinal sine of one input.

        x ~ U(low, high),    y = sin|x| / |x| + e    (the quotient is 1 at x = 0)

    **Arguments:**

    - `n`: the number of examples.
    - `noise`: the source of e: an object with a method `sample_noise(shape, *, key)`, such as a
        regression loss; or `None` for clean targets.
    - `key`: a PRNG key. The inputs drawn from it do not depend on the noise.
    - `low`, `high`: the ends of the interval of the inputs.

    **Returns:**

    A `Dataset` with `x` of shape `(n, 1)` and real targets `y`.

    [CKO04], IEEE Transactions on Neural Networks 15, 2004, section VII-A.
    """
    _check_size(n)
    if noise is not None and not isinstance(noise, NoiseModel):
        raise TypeError(
            "`noise` must be an object with a method `sample_noise(shape, *, key)`, such as a "
            f"regression loss, or None for clean targets, but is {noise!r}"
        )
    if not low < high:
        raise ValueError(f"`low` must be less than `high`, but they are {low} and {high}")
    input_key, noise_key = jax.random.split(key)
    x = jax.random.uniform(input_key, (n,), minval=low, maxval=high)
    y = jnp.sinc(x / jnp.pi)  # jnp.sinc(t) is sin(πt)/(πt), safe at zero with its derivatives
    if noise is not None:
        y = y + jnp.asarray(noise.sample_noise((n,), key=noise_key), dtype=y.dtype)
    return Dataset(x[:, None], y)


def robot_arm(
    n: int,
    *,
    key: PRNGKeyArray,
    inputs: int = 2,
    noise: float = 0.05,
    output: int | None = None,
) -> Dataset:
    """MacKay's robot arm: the position of its end as a function of two joint angles.

        y₁ = 2 cos x₁ + 1.3 cos(x₁ + x₂) + e₁,    y₂ = 2 sin x₁ + 1.3 sin(x₁ + x₂) + e₂,

    with x₁ uniform on [-1.932, -0.453] ∪ [0.453, 1.932], x₂ uniform on [0.534, 3.142] and e
    Gaussian. The six-input problem adds two corrupted copies and two irrelevant inputs,

        x₃ = x₁ + 0.02 n₃,    x₄ = x₂ + 0.02 n₄,    x₅ = n₅,    x₆ = n₆,    n ~ N(0, I).

    Inputs and targets are not standardized; the papers standardize the inputs before they train.

    **Arguments:**

    - `n`: the number of examples.
    - `key`: a PRNG key. The two angles and the targets drawn from it are the same for two inputs
        and for six.
    - `inputs`: 2 or 6.
    - `noise`: the standard deviation of e.
    - `output`: 0 or 1 for the targets y₁ or y₂ alone; `None` for both.

    **Returns:**

    A `Dataset` with `x` of shape `(n, inputs)` and `y` of shape `(n, 2)`, or `(n,)` for one output.

    MacKay, "A practical Bayesian framework for backpropagation networks", Neural Computation 4,
    1992; six inputs: [CKO04], IEEE Transactions on Neural Networks 15, 2004, equation 45 and below.
    """
    _check_size(n)
    if inputs not in (2, 6):
        raise ValueError(f"`inputs` must be 2 or 6, but is {plain(inputs)!r}")
    if output not in (None, 0, 1):
        raise ValueError(f"`output` must be 0, 1 or None for both, but is {plain(output)!r}")
    side_key, first_key, second_key, noise_key, extra_key = jax.random.split(key, 5)
    side = jax.random.rademacher(side_key, (n,), dtype=float)
    first = side * jax.random.uniform(first_key, (n,), minval=0.453, maxval=1.932)
    second = jax.random.uniform(second_key, (n,), minval=0.534, maxval=3.142)
    x = jnp.stack([first, second], axis=1)
    y = _arm_position(x) + noise * jax.random.normal(noise_key, (n, 2))
    if inputs == 6:
        extra = jax.random.normal(extra_key, (n, 4))
        x = jnp.concatenate([x, x + 0.02 * extra[:, :2], extra[:, 2:]], axis=1)
    return Dataset(x, y if output is None else y[:, output])


def _arm_position(angles: Float[Array, "n 2"]) -> Float[Array, "n 2"]:
    first, both = angles[:, 0], angles[:, 0] + angles[:, 1]
    return jnp.stack(
        [
            2.0 * jnp.cos(first) + 1.3 * jnp.cos(both),
            2.0 * jnp.sin(first) + 1.3 * jnp.sin(both),
        ],
        axis=1,
    )


def _check_size(n: int) -> None:
    require_own_process()  # before the first use of JAX
    if operator.index(n) < 1:
        raise ValueError(f"`n`, the number of examples, must be at least 1, but is {n}")
