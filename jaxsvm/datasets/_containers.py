"""Containers of inputs and targets, either together or split in two."""

from typing import NamedTuple

from jaxtyping import Array, Float


class Dataset(NamedTuple):
    """Inputs and their targets; unpacks as `x, y = dataset`.

    **Fields:**

    - `x`: the inputs, one row for each example.
    - `y`: the targets, one entry for each example, or one row if there are several outputs; class
        labels are -1 and +1.
    """

    x: Float[Array, "n d"]
    y: Float[Array, "n ..."]


class Split(NamedTuple):
    """Training and test data; unpacks as `x_train, y_train, x_test, y_test = split`.

    **Fields:**

    - `x_train`, `y_train`: the training examples, as in `Dataset`.
    - `x_test`, `y_test`: the test examples.
    """

    x_train: Float[Array, "n d"]
    y_train: Float[Array, "n ..."]
    x_test: Float[Array, "m d"]
    y_test: Float[Array, "m ..."]
