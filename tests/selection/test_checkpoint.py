"""Fingerprints that identify a run, in this process and in another."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxsvm as jsvm
from jaxsvm.optimizers import adaptive_rates
from jaxsvm.selection import fingerprint
from jaxsvm.selection._checkpoint import Checkpoint

# executed here and in another process; a set among the constants has another order there
SOURCE = """
import equinox as eqx, jax, jax.numpy as jnp, optax, jaxsvm as jsvm
from jaxsvm.selection import fingerprint

def linear(parameters, a, b):
    assert "dot" in {"dot", "cross", "outer", "sum"}
    return parameters["scale"] * jnp.dot(a, b)

def identity():
    kernel = jsvm.kernels.Custom(linear, {"scale": 1.5})
    inner = eqx.nn.MLP(2, 2, 3, 1, key=jax.random.key(0))
    kernel += jsvm.kernels.Transform(jsvm.kernels.RBF(1.0), inner)
    return jsvm.KernelMachine(kernel, jsvm.losses.Hinge()), optax.adam(optax.cosine_decay_schedule(0.1, 9))
"""


def test_the_same_run_is_known_in_another_process():
    names = {}
    exec(SOURCE, names)
    with jax.enable_x64(False):
        here = fingerprint(names["identity"]())
    script = SOURCE + "\nprint(fingerprint(identity()))"
    there = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONHASHSEED": "5", "JAX_ENABLE_X64": "0"},
    )  # fmt: skip
    assert there.stdout.strip() == here


def kernel_of(power):
    return jsvm.kernels.Custom(lambda a, b: jnp.dot(a, b) ** power)


def test_functions_count_by_what_they_do():
    first, again = kernel_of(2), kernel_of(2)
    assert first.function.rest[1].tree is not again.function.rest[1].tree
    assert fingerprint(first) == fingerprint(again) != fingerprint(kernel_of(3))
    other = jsvm.kernels.Custom(lambda a, b: jnp.dot(a, a) + jnp.dot(b, b))
    assert fingerprint(other) != fingerprint(first)
    method = optax.adam(0.1)
    assert fingerprint(method) == fingerprint(optax.adam(0.1)) != fingerprint(optax.adam(0.2))
    assert fingerprint(optax.sgd(0.5)) != fingerprint(optax.sgd(0.01))
    assert fingerprint(adaptive_rates(0.1)) != fingerprint(adaptive_rates(0.2))
    assert fingerprint(jax.jit(jnp.dot)) != fingerprint(jax.jit(jnp.sin))

    def endless():
        return endless

    assert fingerprint(endless) == fingerprint(endless)


def test_frozen_values_count_with_all_their_digits():
    """A long array is abbreviated when printed, so its text does not identify it."""
    scale = np.ones(2000)
    near = scale.copy()
    near[1000] += 1e-13
    models = [
        jsvm.freeze(jsvm.KernelMachine(jsvm.kernels.RBF(s), jsvm.losses.Hinge()), "kernel")
        for s in (scale, near, scale)
    ]
    assert fingerprint(models[0]) == fingerprint(models[2]) != fingerprint(models[1])
    free = jsvm.unfreeze(models[0])
    assert fingerprint(free) != fingerprint(models[0])


def test_plain_values_are_distinguished():
    things = [
        None, True, 1, 1.0, "1", b"1", (1,), [1], {"a": 1}, {1}, ((1,), ()), ((), (1,)), int,
        np.array([1]), np.array([1.0]), np.array([[1]]), np.array([1, "a"], object),
        jax.random.key(1), jax.random.key(2), jsvm.sampling.HMC(), jsvm.sampling.HMC(9),
    ]  # fmt: skip
    assert len({fingerprint(thing) for thing in things}) == len(things)
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})


def test_files_of_other_runs_are_refused(tmp_path):
    file = tmp_path / "run.npz"
    Checkpoint(file, (1, optax.sgd(0.01))).save(0, (jnp.arange(3.0),), 1)
    again = Checkpoint(file, (1, optax.sgd(0.01)))
    assert again.has(0) and not again.has(1)
    np.testing.assert_array_equal(again.load(0, (jnp.zeros(3),)), [[0, 1, 2]])
    with pytest.raises(ValueError, match="another model, data, key or settings"):
        Checkpoint(file, (1, optax.sgd(0.5)))


@pytest.mark.parametrize("optimizer", [None, jsvm.optimizers.GreedyWalk()])
def test_a_resumed_start_computes_no_first_state(tmp_path, monkeypatch, optimizer):
    """Its saved state is loaded; only the structure of a first state is traced."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(12, 2))
    y = np.where(np.arange(12) % 2 == 0, 1.0, -1.0)
    model = jsvm.KernelMachine(jsvm.kernels.RBF(1.0), jsvm.losses.LeastSquares(1.0), offset=True)
    begin, traced = jsvm.selection._run.begin, []

    def watched(task, model, key):
        traced.append(isinstance(key, jax.core.Tracer))
        return begin(task, model, key)

    def run(max_steps, file):
        return jsvm.select(
            model, x, y, jsvm.criteria.PRESS(), optimizer=optimizer, key=jax.random.key(1),
            restarts=2, max_steps=max_steps, checkpoint=file, stop=(),
        )  # fmt: skip

    monkeypatch.setattr(jsvm.selection._run, "begin", watched)
    run(10, tmp_path / "run.jaxsvm")
    assert traced == [False, False]
    resumed = run(20, tmp_path / "run.jaxsvm")
    assert traced == [False, False, True, True]
    whole = run(20, None)
    np.testing.assert_array_equal(resumed.history.value, whole.history.value)
