"""Values on the command line that are checked before any work is done."""

import argparse
import os
from pathlib import Path
from typing import Any


def at_least(least: Any, kind: Any) -> Any:
    """A converter to numbers of a kind that are not less."""

    def convert(text):
        value = kind(text)
        if not value >= least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, but is {text}")
        return value

    convert.__name__ = kind.__name__  # argparse names it in its messages
    return convert


def share(text: str) -> float:
    """A number between zero and one."""
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, but is {text}")
    return value


def output_file(text: str) -> Path:
    """A file that can be written: told now, and not after hours of work."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder: give the name of a file in it")
    folder = path.parent
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {folder}: make it first")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} must not be written: choose another place")
    return path
