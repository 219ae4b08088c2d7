"""Interrupting searches in the middle, as a user's Ctrl-C does."""

import threading
from collections.abc import Callable
from typing import Any

import jax

from jaxsvm.selection import _run

_STEPS = 3  # of a piece; even a short search has several


def watch(monkeypatch, run: Callable[[], Any], pieces: int | None = None) -> tuple[Any, list[int]]:
    """Run with searches in pieces of three steps, and interrupt all pieces after a number of them.

    **Returns:** what `run` returned, and the step at which each piece began, in the order of time.
    """
    begun, lock, original = [], threading.Lock(), _run.advance

    def advance(task, steps, state, *rest):
        is_taken = not isinstance(state.steps, jax.core.Tracer) and int(state.code) == _run.RUNNING
        with lock:
            if is_taken and pieces is not None and len(begun) >= pieces:
                raise KeyboardInterrupt
            if is_taken:
                begun.append(int(state.steps))
        return original(task, min(steps, _STEPS), state, *rest)

    before = set(threading.enumerate())
    with monkeypatch.context() as patch:
        patch.setattr(_run, "advance", advance)
        found = run()
    for thread in set(threading.enumerate()) - before:  # which still save their progress
        thread.join(60)
    return found, begun
