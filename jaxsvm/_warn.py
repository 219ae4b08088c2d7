"""Warnings that point at the user's own line."""

import sys
import warnings


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the line that called into this package first, however deep the call is inside."""
    package = __name__.partition(".")[0]
    level = outermost = 1
    frame = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == package:
            outermost = level
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=outermost + 1)
