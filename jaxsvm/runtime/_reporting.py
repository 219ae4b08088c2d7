"""What users see while the library works: progress, and warnings that point at their own line.

The host draws progress, never a traced loop.
"""

import sys
import time
import warnings


class Progress:
    """A line on the terminal: how much is done, how long it took, and a word about how it goes.

    **Arguments:** `total`, what counts as all; `label`, before the bar; `shown`, whether to draw it, None
    for wherever standard error is a terminal.
    """

    def __init__(self, total: int, label: str, shown: bool | None = None):
        self._total = max(total, 1)
        self._label = label
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._begin = time.monotonic()
        self._last = ""

    def update(self, done: float, note: str = "") -> None:
        """Draw the bar again.

        **Arguments:** `done`, out of `total`; `note`, shown behind the bar.
        """
        if not self._shown:
            return
        share = min(done / self._total, 1.0)
        filled = int(24 * share)
        seconds = time.monotonic() - self._begin
        line = f"{self._label} [{'#' * filled}{'.' * (24 - filled)}] {share:4.0%}  {seconds:.0f} s  {note}"
        sys.stderr.write("\r" + line.ljust(len(self._last)))
        sys.stderr.flush()
        self._last = line

    def close(self) -> None:
        """End the line."""
        if self._shown and self._last:
            sys.stderr.write("\n")
            sys.stderr.flush()


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the user's line: the one that called into this package, however deep the call is inside it.

    **Arguments:** `message`; `category`, the class of the warning.
    """
    package = __name__.partition(".")[0]
    level = outermost = 1
    frame = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == package:
            outermost = level
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=outermost + 1)
