"""Compiled programs are dropped before the process has too many memory maps."""

import gc
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compilations, programs_so_far

import jaxsvm as jsvm
from jaxsvm import _fit, sklearn
from jaxsvm.runtime import _programs, count_maps, filter_jit, jit, make_room, programs_of

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere maps are not counted")


@jit
def rolling(x):
    """Some dozens of maps: no two of its loops can become one."""
    for shift in range(1, 20):
        x = jnp.cumsum(jnp.sort(jnp.sin(x + shift)))
    return x


@filter_jit
def repeated(x, times: int, name: str):
    return {name: x * times}


def shapes_of(function):
    """In the order in which they would be dropped."""
    known = _programs._PROGRAMS._jitted
    return [shapes[0] for wrapped, shapes in known if wrapped is function.__wrapped__]


@pytest.fixture
def room_for(monkeypatch):
    """Sets how many more maps the process may have before programs are dropped."""
    _programs._PROGRAMS.drop_oldest(1)  # those of the tests before, which would go first
    make_room()
    gc.collect()  # dropped programs go now, not while the maps are counted

    def limit(more: int) -> int:
        full = count_maps() + more
        monkeypatch.setattr(_programs, "_limit", lambda: full / _programs._FULL)
        monkeypatch.setattr(_programs, "_left", 0)
        monkeypatch.setattr(_programs, "_MORE", 0)
        # programs of the tests before make many of these maps
        monkeypatch.setattr(_programs, "_ENOUGH", (full - more / 2) * _programs._FULL / full)
        return full

    return limit


BOUNDED = """
import jax.numpy as jnp
from jaxsvm.runtime import _programs, count_maps, jit, programs_of

@jit
def rolling(x):
    for shift in range(1, 20):
        x = jnp.cumsum(jnp.sort(jnp.sin(x + shift)))
    return x

rolling(jnp.ones(3))
before = count_maps()
rolling(jnp.ones(4))
each = count_maps() - before
assert each > 20, each
full = count_maps() + 4 * each
_programs._limit = lambda: full / _programs._FULL
_programs._MORE = 0
_programs._ENOUGH = _programs._FULL * (1 - 2 * each / full)
for size in range(5, 20):
    rolling(jnp.ones(size))
    assert count_maps() < full + 3 * each, (size, count_maps(), full, each)
left = len(programs_of(rolling))
assert 1 < left < 12, left
"""


@on_linux
def test_the_maps_of_a_process_stay_below_the_limit():
    # in a new process: here, maps of earlier tests may go at any time, and make room for more programs
    run = subprocess.run(
        [sys.executable, "-c", BOUNDED], capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr


@on_linux
def test_the_least_recently_used_program_goes_first(room_for):
    room_for(10**6)
    for size in (103, 104, 105, 106):
        rolling(jnp.ones(size))
    rolling(jnp.ones(103))
    known = [shape for shape in shapes_of(rolling) if shape[0] > 100]
    assert known == [(104,), (105,), (106,), (103,)]
    while (104,) in shapes_of(rolling):
        _programs._PROGRAMS.drop_oldest(0.01)
    assert (103,) in shapes_of(rolling)


@on_linux
def test_results_are_the_same_after_programs_were_dropped(monkeypatch):
    x = np.linspace(-1, 1, 24).reshape(12, 2)
    y = np.where(x[:, 0] > 0.1, 1.0, -1.0)
    model = jsvm.KernelMachine(jsvm.kernels.RBF(1.0), jsvm.losses.Hinge(1.0))
    dual = jsvm.fit(model, x, y).dual
    monkeypatch.setattr(_programs, "_limit", lambda: 0)
    make_room()  # which drops everything, programs of JAX's own included
    monkeypatch.undo()
    fit = _fit._fit
    assert compilations(fit) == 0
    np.testing.assert_array_equal(jsvm.fit(model, x, y).dual, dual)
    assert compilations(fit) == 1


def test_programs_can_be_dropped_while_threads_run_them():
    sizes, expected = range(50, 53), {}
    for size in sizes:
        expected[size] = np.asarray(rolling(jnp.ones(size)))
    failures, ended = [], threading.Event()

    def run(size):
        try:
            for _ in range(20):
                np.testing.assert_array_equal(rolling(jnp.ones(size)), expected[size])
        except Exception as error:
            failures.append(error)

    def drop():
        while not ended.is_set():
            _programs._PROGRAMS.drop_oldest(1.0)

    threads = [threading.Thread(target=run, args=(size,)) for size in sizes]
    dropping = threading.Thread(target=drop)
    for thread in (*threads, dropping):
        thread.start()
    for thread in threads:
        thread.join()
    ended.set()
    dropping.join()
    assert not failures


def test_arrays_are_traced_and_all_else_is_static(keep_programs):
    before = compilations(repeated)
    for value in (1.0, 2.0):
        np.testing.assert_array_equal(
            repeated(jnp.full(2, value), 3, name="a")["a"], [3 * value] * 2
        )
    assert compilations(repeated) == before + 1
    np.testing.assert_array_equal(repeated(np.ones(2), 3, name="a")["a"], [3.0, 3.0])
    assert len(programs_of(repeated)) == 1
    assert list(repeated(jnp.ones(2), 3, name="b")) == ["b"]


def test_compiled_functions_can_be_transformed():
    x = jnp.linspace(0.1, 1.0, 4)

    def total(x):
        return jnp.sum(repeated(x, 2, "twice")["twice"] ** 2) + rolling(x)[0]

    slope = jax.grad(total)(x)
    np.testing.assert_allclose(slope, jax.jit(jax.grad(total))(x), rtol=1e-10)
    np.testing.assert_allclose(jax.vmap(total)(jnp.stack([x, x])), [total(x)] * 2, rtol=1e-10)


@on_linux
def test_what_jax_remembers_of_traces_is_dropped_at_times(room_for, monkeypatch):
    @jax.jit
    def own(x):
        return jnp.sin(x)

    own(jnp.ones(3))
    monkeypatch.setattr(_programs, "_rounds", 0)
    for number in range(1, _programs._ROUNDS + 1):
        monkeypatch.setattr(_programs, "_limit", lambda: None)
        for size in range(3):
            rolling(jnp.ones(200 + 3 * number + size))
        room_for(-1)
        monkeypatch.setattr(_programs, "_ENOUGH", _programs._FULL)  # reached by dropping a program
        make_room()
        assert _programs._rounds == number
        assert own._cache_size() == int(number < _programs._ROUNDS)


def test_nothing_is_dropped_where_there_is_no_limit(monkeypatch):
    rolling(jnp.ones(3))
    monkeypatch.setattr(_programs, "_limit", lambda: None)
    monkeypatch.setattr(_programs, "count_maps", lambda: 10**9)
    make_room()
    assert compilations(rolling) > 0


def test_a_decision_is_one_program():
    x = np.linspace(-1, 1, 24).reshape(12, 2)
    y = np.where(x[:, 0] > 0.1, 1.0, -1.0)
    model = jsvm.KernelMachine(jsvm.kernels.RBF(1.0) + 0.1, jsvm.losses.Hinge(1.0))
    fitted = jsvm.fit(model, x, y)
    points = jnp.ones((17, 2))
    before = programs_so_far()
    fitted.decision(points)
    assert programs_so_far() == before + 1


@pytest.mark.parametrize(
    "estimator, program",
    [
        (sklearn.BayesianSVC, "_binary._leave_one_out"),
        (sklearn.BayesianSVR, "_regressor._leave_one_out"),
    ],
)
@pytest.mark.filterwarnings("ignore:the hyperparameter search")
def test_estimators_share_programs(estimator, program, keep_programs):
    """Between a common lengthscale and one for each input, and between nearby numbers of examples."""
    file, name = program.split(".")
    function = getattr(getattr(sklearn, file), name)
    random = np.random.default_rng(0)
    x = random.normal(size=(30, 2))
    y = np.where(x[:, 0] + 0.3 * random.normal(size=30) > 0, 1.0, -1.0)
    before = compilations(function)
    estimator(max_iter=2).fit(x, y)
    assert compilations(function) == before + 1
    programs = programs_so_far()
    estimator(max_iter=2).fit(x[:-1], y[:-1])
    assert compilations(function) == before + 1
    # a posterior is factorized for the examples with a curvature
    assert programs_so_far() <= programs + 3


@on_linux
def test_a_process_with_many_maps_of_its_own_keeps_our_programs(monkeypatch):
    """Maps that dropping does not free must not make every new shape drop all programs."""
    monkeypatch.setattr(_programs, "_limit", lambda: 1000)
    monkeypatch.setattr(_programs, "count_maps", lambda: 300)
    monkeypatch.setattr(_programs, "_left", 0)
    monkeypatch.setattr(_programs, "_rounds", 0)
    make_room()
    assert _programs._rounds == 1 and _programs._left == 300
    rolling(jnp.ones(301))
    make_room()
    assert _programs._rounds == 1 and (301,) in shapes_of(rolling)
