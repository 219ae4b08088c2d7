"""The weights of examples by their class."""

from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils import compute_class_weight

from ..validation import plain


def class_weights(class_weight: Any, classes: np.ndarray, codes: np.ndarray) -> Any:
    """The weight of each example, or one for all; raises unless `class_weight` is None, "balanced" or a dict.

    `codes` are the numbers of the examples' classes.
    """
    if class_weight is None:
        return 1.0
    if isinstance(class_weight, dict):
        unknown = [label for label in class_weight if label not in classes]
        if unknown:
            raise ValueError(
                f"`class_weight` has {plain(unknown[0])!r}, which is not a class of `y`"
            )
        for label, weight in class_weight.items():
            number = isinstance(weight, Real) and not isinstance(weight, bool)
            if not (number and 0 < float(weight) < np.inf):
                raise ValueError(
                    f"`class_weight` of {plain(label)!r} must be a positive number, but is "
                    f"{plain(weight)!r}"
                )
    elif not (isinstance(class_weight, str) and class_weight == "balanced"):
        raise ValueError(
            '`class_weight` must be None, "balanced" or a dictionary with the weights of classes, not '
            f"{class_weight!r}"
        )
    return compute_class_weight(class_weight, classes=classes, y=classes[codes])[codes]
