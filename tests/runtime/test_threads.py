"""Runs in several threads have the caller's settings, and one thread for linear algebra."""

import contextlib
import contextvars
import sys
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import jaxsvm as jsvm
from jaxsvm.runtime import _parallel, map_in_threads, one_blas_thread

VARIABLE = contextvars.ContextVar("VARIABLE", default=0)
OWN = jax.make_user_context(0)
X = jnp.array([[0.0], [0.4], [1.0], [1.3], [2.0], [2.2]])
Y = jnp.array([1.0, 1.0, -1.0, 1.0, -1.0, -1.0])
MODEL = jsvm.KernelMachine(jsvm.kernels.RBF(0.8), jsvm.losses.SquaredHinge())


def seen(_=None):
    """Everything that a computation can see of its environment."""
    return (
        dict(jax.config.values), str(jax.sharding.get_abstract_mesh()), OWN.value, VARIABLE.get(),
        np.geterr(), jax.eval_shape(lambda: jnp.ones(1)).dtype,
    )  # fmt: skip


@contextlib.contextmanager
def variable():
    token = VARIABLE.set(7)
    with np.errstate(divide="raise"):
        yield
    VARIABLE.reset(token)


SETTINGS = {
    "none": contextlib.nullcontext,
    "matmul precision": lambda: jax.default_matmul_precision("highest"),
    "NaN": lambda: jax.debug_nans(True),
    "single precision": lambda: jax.enable_x64(False),
    "promotion": lambda: jax.numpy_dtype_promotion("strict"),
    "device": lambda: jax.default_device(jax.devices()[0]),
    "transfers": lambda: jax.transfer_guard("disallow"),
    "random numbers": lambda: jax.default_prng_impl("rbg"),
    "no jit": lambda: jax.disable_jit(True),
    "variables": variable,
    "user context": lambda: OWN(3),
    "mesh": lambda: jax.set_mesh(jax.make_mesh((1,), ("rows",))),
}


@pytest.mark.parametrize("compiles", [False, True], ids=["first alone", "compiled"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_every_run_sees_the_settings_of_the_caller(setting, compiles):
    with SETTINGS[setting]():
        here = seen()
        found = map_in_threads(seen, 3, 10, (lambda: None) if compiles else None)
    assert found == [here] * 3


def test_runs_are_in_threads_and_in_order():
    def run(number):
        return number, threading.get_ident() == caller

    caller = threading.get_ident()
    with jax.default_matmul_precision("highest"):
        assert map_in_threads(run, 3, 10) == [(0, True), (1, False), (2, False)]
    # what no thread can be given makes all of them run here
    with OWN(1):
        assert map_in_threads(run, 3, 10) == [(0, True), (1, True), (2, True)]


def test_settings_reach_every_start_of_a_selection(monkeypatch):
    """The first start and the others see the same precision of matrix products."""
    states = []
    original = jsvm.selection._run.advance

    def watched(*arguments):
        states.append(jax.config.values["jax_default_matmul_precision"])
        return original(*arguments)

    monkeypatch.setattr(jsvm.selection._run, "advance", watched)
    with jax.default_matmul_precision("highest"):
        jsvm.select(
            MODEL, X, Y, jsvm.criteria.Span(), restarts=3, key=jax.random.key(0), max_steps=2
        )
    assert len(states) >= 4 and set(states) == {"highest"}


def blas_threads():
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


def test_linear_algebra_has_one_thread_and_then_as_many_as_before():
    """Also where contexts of several threads overlap: the number belongs to the process."""
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        assert max(before) == 2
        inside = map_in_threads(lambda _: max(blas_threads()), 3, 10)
        assert inside == [1, 1, 1] and blas_threads() == before
        with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
            first.enter_context(one_blas_thread)
            second.enter_context(one_blas_thread)
            first.close()
            assert max(blas_threads()) == 1
            second.close()
            assert blas_threads() == before
        # one large problem alone gains from all of them
        assert map_in_threads(lambda _: max(blas_threads()), 1, _parallel._LARGE) == [2]


def sizes_of_globals():
    """The number of entries in the dictionaries, lists and sets of the library's modules."""
    return {
        (module, name): len(value)
        for module in [name for name in sys.modules if name.startswith("jaxsvm")]
        for name, value in vars(sys.modules[module]).items()
        if isinstance(value, dict | list | set) and not name.startswith("__")
    }


def test_selections_do_not_keep_their_optimizers():
    """The same one is compiled once; plain ones of optax, which ask for no value, are fine as well."""
    traced = []

    def update(updates, state, params=None):
        traced.append(1)
        return jax.tree.map(lambda g: -0.1 * g, updates), state

    plain = optax.GradientTransformation(lambda params: optax.EmptyState(), update)
    sizes = sizes_of_globals()
    for _ in range(2):
        found = jsvm.select(MODEL, X, Y, jsvm.criteria.Span(), optimizer=plain, max_steps=3)
    assert len(traced) == 1 and found.history.value.shape == (1, 3)
    assert sizes_of_globals() == sizes


def test_searches_leave_the_filters_of_warnings_alone():
    """They belong to the process: another thread's warnings would be lost with ours."""
    for package in ("selection", "evidence", "sampling"):
        for file in (Path(jsvm.__file__).parent / package).glob("*.py"):
            assert "catch_warnings" not in file.read_text(), file
