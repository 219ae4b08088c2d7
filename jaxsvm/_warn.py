"""Warnings that point at the user's own line."""

import sys
import warnings


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the first caller outside of this package, however deep the call is inside."""
    package = __name__.partition(".")[0]
    level, frame = 1, sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
