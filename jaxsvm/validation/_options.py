"""Validation of options: counts and finite numbers."""

import math
from numbers import Integral, Real
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """Convert a NumPy scalar to a Python scalar, which prints as `0` and not as `np.int64(0)`.

    **Arguments:** `value`, of any type.

    **Returns:** the Python scalar, or the value itself if it is not a NumPy scalar.
    """
    return value.item() if isinstance(value, np.generic) else value


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise unless an option is an integer that is large enough.

    **Arguments:** `name` and `value` of the option; `least`, the smallest value allowed.
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not (whole and int(value) >= least):
        kind = "a positive integer" if least == 1 else f"an integer of at least {least}"
        raise ValueError(f"`{name}` must be {kind}, but is {plain(value)!r}")


def check_number(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
) -> None:
    """Raise unless an option is a finite number inside its range.

    **Arguments:** `name` and `value` of the option; `above` and `below`, the ends of an open range;
    `least` and `most`, the ends of a closed range.
    """
    real = isinstance(value, Real) and not isinstance(value, bool)
    number = float(value) if real else math.nan
    inside = above < number < below and least <= number <= most
    if not (math.isfinite(number) and inside):
        kind = _range(above, least, below, most)
        raise ValueError(f"`{name}` must be {kind}, but is {plain(value)!r}")


def check_switch(name: str, value: Any) -> None:
    """Raise unless an option is True or False.

    **Arguments:** `name` and `value` of the option.
    """
    if not isinstance(value, bool):
        raise TypeError(f"`{name}` must be True or False, not {plain(value)!r}")


def _range(above: float, least: float, below: float, most: float) -> str:
    if below < math.inf or most < math.inf:
        if above > -math.inf and below < math.inf:
            return f"between {above:g} and {below:g}"
        upper = f"below {below:g}" if below < math.inf else f"at most {most:g}"
        return f"at least {least:g} and {upper}"
    if above == 0:
        return "positive and finite"
    if above > -math.inf:
        return f"a finite number above {above:g}"
    if least == -math.inf:
        return "a finite number"
    return f"a finite number of at least {least:g}"
