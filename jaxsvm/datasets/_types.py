"""What a data set is: inputs with targets, either all together or split in two."""

from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Float, PRNGKeyArray


class Dataset(NamedTuple):
    """Inputs and their targets; unpacks as `x, y = dataset`.

    **Fields:**

    - `x`: the inputs, one row for each example.
    - `y`: the targets, one entry (or one row, where there are several outputs) for each example;
        class labels are -1 and +1.
    """

    x: Float[Array, "n d"]
    y: Float[Array, "n ..."]


class Split(NamedTuple):
    """A data set in two parts; unpacks as `x_train, y_train, x_test, y_test = split`.

    **Fields:**

    - `x_train`, `y_train`: the examples to learn from, laid out as in `Dataset`.
    - `x_test`, `y_test`: the examples to judge by.
    """

    x_train: Float[Array, "n d"]
    y_train: Float[Array, "n ..."]
    x_test: Float[Array, "m d"]
    y_test: Float[Array, "m ..."]


@runtime_checkable
class NoiseModel(Protocol):
    """Anything that can draw additive noise, such as a regression loss read as a likelihood."""

    def sample_noise(self, shape: tuple[int, ...], *, key: PRNGKeyArray) -> Float[Array, "..."]:
        """Independent draws of the noise.

        **Arguments:** `shape`, that of the array; `key`, a PRNG key.

        **Returns:** an array of that shape.
        """
        ...
