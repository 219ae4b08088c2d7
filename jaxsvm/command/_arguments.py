"""Types of command-line arguments, checked before any work is done."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import Nystrom
from ..persistence import WriteError, require_writable


def at_least(minimum: Any, kind: Any) -> Any:
    """A type of argument: numbers of this kind that are not below the minimum."""

    def convert(text):
        value = kind(text)
        if not value >= minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum}, but is {text}")
        return value

    convert.__name__ = kind.__name__  # argparse shows it in its messages
    return convert


def approximation(text: str) -> Any:
    """How to represent the kernel matrix: by name, or by its rank."""
    if text in ("auto", "exact"):
        return text
    try:
        return Nystrom(int(text), choice="randomly pivoted")
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f'must be "auto", "exact" or a positive number, but is {text!r}'
        ) from error


def fraction(text: str) -> float:
    """A number between zero and one."""
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, but is {text}")
    return value


def seed(text: str) -> int:
    """An integer that all random number generators accept."""
    value = int(text)
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(f"must be from 0 to {2**32 - 1}, but is {text}")
    return value


def output_file(text: str) -> Path:
    """A file that can be written; checked now, not after hours of work."""
    try:
        require_writable(text)
    except WriteError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return Path(text)


def refuse_overwriting(outputs: Sequence[Path | None], inputs: Sequence[Path]) -> None:
    """Raise a `WriteError` if two outputs are the same file, or an output is an input."""
    known = [os.path.realpath(path) for path in inputs]
    for path in outputs:
        if path is None:
            continue
        real = os.path.realpath(path)
        if any(real == other or _is_same_file(real, other) for other in known):
            raise WriteError(
                f"{path} is another file of this command, which would be lost: choose another name"
            )
        known.append(real)


def _is_same_file(one: str, two: str) -> bool:
    return os.path.exists(one) and os.path.exists(two) and os.path.samefile(one, two)
