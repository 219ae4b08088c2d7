"""Data sets of the papers whose files need preparation.

| name | problem |
|---|---|
| `crabs` | five measurements, male = +1, female = -1 |
| `abalone` | eight inputs, of which the first is the sex: F = -1, I (infant) = 0, M = +1 |
| `robot_arm` | two targets; the first 200 examples for training, the next 200 for testing |
| `santafe_laser_a` | a series s: `x_t = (s_{t-lags}, ..., s_{t-1})`, `y_t = s_t`, oldest value first |

The regression sets are those of [CKO04, sec. VII].
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxsvm.datasets import Dataset, Split, arrays

Array = jax.Array | np.ndarray  # the library takes both
_SEX_CODES = {"F": -1.0, "I": 0.0, "M": 1.0}


def crabs() -> Dataset:
    """Predict the sex from five measurements."""
    fields = arrays("crabs")
    return Dataset(_floats(fields["X"]), _floats(fields["sex"]))


def abalone() -> Dataset:
    """Predict the age from the sex and seven measurements."""
    fields = arrays("abalone")
    letters = fields["sex"].tolist()
    if len(letters) != len(fields["X"]) or not set(letters) <= set(_SEX_CODES):
        raise ValueError("`sex` in the file of 'abalone' must be F, I or M")
    sex = [_SEX_CODES[letter] for letter in letters]
    return Dataset(_floats(np.column_stack([sex, fields["X"]])), _floats(fields["y"]))


def robot_arm() -> Split:
    """MacKay's examples: the first 200 for training, the next 200 for testing."""
    fields = arrays("robot_arm")
    return _cut(fields["X"][:400], fields["Y"][:400], 200)


def laser(lags: int = 8) -> Split:
    """The series of the Santa Fe competition, cut where the competition cut it.

    Targets before the cut are for training, later ones for testing. The inputs of the first test targets
    reach back into the training part. The competition tests on the first hundred targets.
    """
    fields = arrays("santafe_laser_a")
    n_train = int(fields["n_train"])
    if not 1 <= lags < n_train:
        raise ValueError(f"`lags` must be from 1 to {n_train - 1}, but is {lags}")
    windows = np.lib.stride_tricks.sliding_window_view(fields["series"], lags + 1)
    return _cut(windows[:, :-1], windows[:, -1], n_train - lags)  # row i predicts value i + lags


def published(name: str) -> np.ndarray:
    """Whether each split of an IDA set is one of those published with the collection.

    The others are random splits of the same sizes. Results on them compare with the literature only as
    averages over different draws.
    """
    fields = arrays(name)
    if "published" not in fields:
        raise ValueError(
            f"{name!r} does not say which of its splits are published: only IDA sets do"
        )
    return fields["published"].astype(bool)


def _cut(x: np.ndarray, y: np.ndarray, row: int) -> Split:
    return Split(*map(_floats, (x[:row], y[:row], x[row:], y[row:])))


def _floats(values: np.ndarray) -> jax.Array:
    return jnp.asarray(values, dtype=float)
