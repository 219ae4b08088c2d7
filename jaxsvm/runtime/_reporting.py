"""What users see while the library works: progress, log records, and warnings that point at their line.

The host draws progress, never a traced loop. Log records go to the logger `jaxsvm`, which is silent unless
the user gives it a handler: `logging.basicConfig(level=logging.INFO)` shows when long work begins and ends,
`DEBUG` also each update and each compilation.
"""

import logging
import sys
import threading
import time
import warnings
from contextvars import ContextVar
from typing import Any, Self

import jax.monitoring

logger: logging.Logger = logging.getLogger("jaxsvm")
logger.addHandler(logging.NullHandler())

_COMPILED = "/jax/core/compile/backend_compile_duration"  # the name of JAX's event
_progress: ContextVar["Progress | None"] = ContextVar("progress", default=None)  # the bar drawn now
_compiling: ContextVar[str | None] = ContextVar("compiling", default=None)  # the name of a program
_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"


class Progress:
    """A context in which long work shows a progress bar on standard error, and logs how it goes.

    The bar estimates the time left, without the time of compilations. Several threads may update it.

    **Arguments:** `total`, the number of steps; `label`, before the bar; `shown`, whether to draw the bar,
    None to draw it if standard error is a terminal.
    """

    def __init__(self, total: int, label: str, shown: bool | None = None):
        self._total = max(total, 1)
        self._label = label
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._lock = threading.Lock()
        self._begin = time.monotonic()
        self._note = ""

    def __enter__(self) -> Self:
        logger.info("%s: started", self._label)
        if self._shown:
            # here, since it takes time and warns in notebooks without widgets
            from tqdm.auto import tqdm

            self._token = _progress.set(self)
            self._bar = tqdm(
                total=self._total, desc=self._label, bar_format=_FORMAT, dynamic_ncols=True
            )
        return self

    def __exit__(self, error: type[BaseException] | None, *_: Any) -> None:
        end = "finished" if error is None else "stopped"
        seconds = time.monotonic() - self._begin
        logger.info("%s: %s after %.1f s, %s", self._label, end, seconds, self._note)
        if self._shown:
            _progress.reset(self._token)
            self._bar.close()

    def update(self, done: float, note: str = "") -> None:
        """Draw the bar again.

        **Arguments:** `done`, the number of steps out of `total`; `note`, shown behind the bar.
        """
        logger.debug("%s: %g of %g, %s", self._label, done, self._total, note)
        with self._lock:
            self._note = note
            if self._shown:
                self._bar.set_postfix_str(note, refresh=False)
                self._bar.update(max(done - self._bar.n, 0))  # updates of threads may come late

    def compiling(self, name: str) -> None:
        """Show that a program is being compiled.

        **Arguments:** `name`, that of the program.
        """
        with self._lock:
            self._bar.set_postfix_str(f"compiling {name} ...")

    def compiled(self) -> None:
        """Show that the compilation has ended, and leave its time out of the estimate of the time left."""
        with self._lock:
            self._bar.unpause()
            self._bar.set_postfix_str(self._note)


def announce_compilation(name: str) -> None:
    """Report that a program is traced and compiled next, in this thread.

    **Arguments:** `name`, that of the function.
    """
    _compiling.set(name)
    bar = _progress.get()
    if bar is not None:
        bar.compiling(_readable(name))


def _note_compilation(event: str, duration_secs: float, **details: Any) -> None:
    name = _compiling.get()
    if event != _COMPILED or name is None:
        return
    if details.get("fun_name", name) not in (name, f"jit({name})"):  # a smaller one on the way
        return
    _compiling.set(None)
    logger.debug("compiled %s in %.1f s", _readable(name), duration_secs)
    bar = _progress.get()
    if bar is not None:
        bar.compiled()


def _readable(name: str) -> str:
    return name.strip("_").replace("_", " ")


jax.monitoring.register_event_duration_secs_listener(_note_compilation)


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the user's line: the one that called into this package, however deep the call is inside it.

    **Arguments:** `message`; `category`, the class of the warning.
    """
    ours = __name__.partition(".")[0]
    packages = []
    frame = sys._getframe()
    while frame is not None:
        packages.append(frame.f_globals.get("__name__", "").partition(".")[0])
        frame = frame.f_back
    outermost = len(packages) - packages[::-1].index(ours)
    while packages[outermost : outermost + 1] == ["equinox"]:  # it wraps methods of our classes
        outermost += 1
    warnings.warn(message, category, stacklevel=outermost + 1)
