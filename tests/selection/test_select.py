"""Selection from many starts: what it finds, what it reports, and what it refuses."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compilations import compilations

import jaxsvm as jsvm
from jaxsvm import criteria, kernels, losses, stopping
from jaxsvm.criteria import AbstractCriterion, AbstractFitCriterion, evaluation
from jaxsvm.optimizers import GreedyWalk

RNG = np.random.default_rng(11)
X = RNG.normal(size=(40, 3))
Y = np.where(X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.3 * RNG.normal(size=40) > 0.3, 1.0, -1.0)
X_TEST = RNG.normal(size=(100, 3))
Y_TEST = np.where(X_TEST[:, 0] + 0.5 * X_TEST[:, 1] ** 2 > 0.3, 1.0, -1.0)
PRESS = criteria.PRESS()
ADAM = optax.adam(0.1)
BOUNDS = {"kernel.lengthscale": (0.05, 50.0), "loss.C": (1e-3, 1e4)}
KEY = jax.random.key(4)


def machine():
    model = jsvm.KernelMachine(kernels.RBF(jnp.full(3, 1.5)), losses.LeastSquares(1.0), offset=True)
    return jsvm.freeze(model, "kernel.variance")


@pytest.fixture(scope="module")
def found():
    return jsvm.select(
        machine(), X, Y, PRESS, restarts=4, key=KEY, bounds=BOUNDS, test=(X_TEST, Y_TEST)
    )


def test_the_end_is_a_minimum_and_the_best_of_all_starts(found):
    assert found.values.shape == (4,)
    assert float(found.value) == float(jnp.min(found.values))
    assert found.best == int(jnp.argmin(found.values))
    np.testing.assert_allclose(PRESS(found.model, X, Y), found.value, rtol=1e-10)
    assert float(found.value) < float(PRESS(machine(), X, Y))
    # no neighbour inside the bounds is better
    flat, unravel = jax.flatten_util.ravel_pytree(found.model)
    for i in range(len(flat)):
        for step in (-0.02, 0.02):
            moved = unravel(flat.at[i].add(step))
            values = jsvm.parameters(moved)
            inside = all(
                (np.asarray(values[n]) >= a).all() and (np.asarray(values[n]) <= b).all()
                for n, (a, b) in BOUNDS.items()
            )
            if inside:
                assert float(PRESS(moved, X, Y)) >= float(found.value) - 1e-7


def test_history_and_codes_of_each_start(found):
    history = found.history
    for start, steps in enumerate(np.asarray(history.steps)):
        code = jsvm.RESULTS(int(found.results[start]))
        assert code in (jsvm.RESULTS.successful, jsvm.RESULTS.small_change)
        values = np.asarray(history.value[start])
        assert np.isfinite(values[steps - 1]) and np.isnan(values[steps:]).all()
        np.testing.assert_allclose(np.nanmin(values), found.values[start], rtol=1e-12)
        if code == jsvm.RESULTS.successful:
            assert history.gradient_norm[start, steps - 1] <= 1e-4 * max(1, values[steps - 1])
    lengthscales = history.parameters["kernel.lengthscale"]
    assert lengthscales.shape == (*history.value.shape, 3)
    ends = np.asarray(history.end)
    np.testing.assert_allclose(history.value[np.arange(4), ends], found.values)
    np.testing.assert_allclose(lengthscales[0, 0], 1.5)  # the first start is the model itself
    assert float(jnp.std(lengthscales[:, 0, 0])) > 0.1
    assert "kernel.variance" not in history.parameters  # it is frozen
    # the test error in the history is that of the model of that step
    values = {name: np.asarray(v[1, 2]) for name, v in history.parameters.items()}
    fitted = jsvm.fit(jsvm.replace(machine(), values), X, Y)
    error = np.mean(np.asarray(fitted.predict(X_TEST)) != Y_TEST)
    np.testing.assert_allclose(history.test_error[1, 2], error)


def test_frozen_and_bounded_parameters_stay(found):
    assert jsvm.frozen(found.model) == ("kernel.variance",)
    np.testing.assert_allclose(jsvm.parameters(found.model)["kernel.variance"], 1.0)
    for name, (low, high) in BOUNDS.items():
        values = np.asarray(found.history.parameters[name])
        assert np.nanmin(values) >= low * (1 - 1e-9) and np.nanmax(values) <= high * (1 + 1e-9)


def test_the_same_key_gives_the_same_and_another_another(found):
    again = jsvm.select(
        machine(), X, Y, PRESS, restarts=4, key=KEY, bounds=BOUNDS, test=(X_TEST, Y_TEST)
    )
    np.testing.assert_array_equal(again.history.value, found.history.value)
    other = jsvm.select(
        machine(), X, Y, PRESS, restarts=4, key=jax.random.key(5), bounds=BOUNDS,
        test=(X_TEST, Y_TEST),
    )  # fmt: skip
    assert not np.array_equal(other.history.value[1:, 0], found.history.value[1:, 0])


def runs_so_far(found, steps):
    """Repeat the selection with a limit of steps, and check which starts it cuts off."""
    again = jsvm.select(
        machine(), X, Y, PRESS, restarts=4, key=KEY, bounds=BOUNDS, test=(X_TEST, Y_TEST),
        max_steps=steps,
    )  # fmt: skip
    assert again.history.value.shape == (4, steps)
    whole = np.asarray(found.history.steps)
    np.testing.assert_array_equal(again.history.steps, np.minimum(whole, steps))
    cut = [int(code) == jsvm.RESULTS.iteration_limit for code in again.results]
    np.testing.assert_array_equal(cut, whole > steps)
    return again


def test_no_more_steps_than_asked_for(found, keep_programs):
    from jaxsvm.selection._engine import advance

    numbers = []
    for steps in (1, np.int64(3), 13):
        again = runs_so_far(found, steps)
        np.testing.assert_array_equal(again.history.value, found.history.value[:, :steps])
        numbers.append(compilations(advance))
    assert len(set(numbers)) == 1  # not compiled again for each number


def test_a_batch_in_lockstep_finds_the_same(found, monkeypatch):
    """As on an accelerator: all starts in one vmapped program."""
    monkeypatch.setattr("jaxsvm.selection._run._in_lockstep", lambda: True)
    batch = jsvm.select(
        machine(), X, Y, PRESS, restarts=4, key=KEY, bounds=BOUNDS, test=(X_TEST, Y_TEST)
    )
    np.testing.assert_allclose(batch.values, found.values, rtol=1e-4)
    # only the first steps: later on rounding errors have grown
    np.testing.assert_allclose(batch.history.value[:, :5], found.history.value[:, :5], rtol=1e-6)
    assert batch.best == found.best
    for steps in (1, 3, 13):
        again = runs_so_far(batch, steps)
        np.testing.assert_array_equal(again.history.value, batch.history.value[:, :steps])


def test_ensembles_predict_like_a_fit(found):
    members = [jax.tree.map(lambda leaf, i=i: leaf[i], found.models) for i in range(4)]
    decisions = np.stack([np.asarray(jsvm.fit(m, X, Y).decision(X_TEST)) for m in members])
    equal = found.ensemble()
    np.testing.assert_allclose(equal.decision(X_TEST), decisions.mean(axis=0), rtol=1e-7, atol=1e-9)
    weights = np.exp(-(np.asarray(found.values) - float(found.value)))
    expected = weights @ decisions / weights.sum()
    weighted = found.ensemble("criterion")
    np.testing.assert_allclose(weighted.decision(X_TEST), expected, rtol=1e-7, atol=1e-9)
    assert set(np.unique(equal.predict(X_TEST))) <= {-1.0, 1.0}
    with pytest.raises(ValueError, match="weighting"):
        found.ensemble("votes")
    assert "criterion" in str(found) and "frozen" in str(found)


@pytest.mark.parametrize("optimizer", [ADAM, optax.lbfgs()], ids=["adam", "optax.lbfgs"])
def test_any_optax_optimizer(optimizer, found):
    other = jsvm.select(machine(), X, Y, PRESS, optimizer=optimizer, max_steps=80, bounds=BOUNDS)
    assert float(other.value) < float(PRESS(machine(), X, Y)) - 0.3
    assert float(other.value) > float(found.value) - 0.5  # no better than a minimum can be


def test_greedy_walk_minimizes_a_count():
    """The walk needs no gradient: here an error count, which has none."""
    counts = criteria.CrossValidation(4, score="error")
    walk = GreedyWalk(linear=("loss.C",))
    model = jsvm.replace(machine(), {"kernel.lengthscale": np.full(3, 0.5)})
    found = jsvm.select(
        model,
        X,
        Y,
        counts,
        optimizer=walk,
        starts=0.0,
        restarts=2,
        key=KEY,
        bounds=BOUNDS,
        max_steps=6,
    )
    values = np.asarray(found.history.value)
    np.testing.assert_allclose(values[:, 0], counts(model, X, Y))  # first the start itself
    np.testing.assert_allclose(found.history.parameters["kernel.lengthscale"][:, 0], 0.5)
    assert (np.diff(values, axis=1) <= 0).all()  # it never accepts what is worse
    assert float(found.value) < float(counts(model, X, Y))
    # both walks began at the same point and went different ways
    np.testing.assert_array_equal(
        np.isnan(found.history.gradient_norm), np.ones_like(values, dtype=bool)
    )
    ends = np.asarray(found.models.kernel.log_lengthscale)
    assert not np.allclose(ends[0], ends[1])


def test_validation_stops_early_and_chooses():
    found = jsvm.select(
        machine(), X, Y, PRESS, optimizer=ADAM, restarts=2, key=KEY, bounds=BOUNDS,
        stop=stopping.ValidationStalled(patience=3), validation=(X_TEST, Y_TEST), max_steps=40,
    )  # fmt: skip
    errors = np.asarray(found.history.validation_error)
    lowest = np.nanmin(errors, axis=1)
    np.testing.assert_allclose(lowest[found.best], lowest.min())
    fitted = jsvm.fit(found.model, X, Y)
    error = np.mean(np.asarray(fitted.predict(X_TEST)) != Y_TEST)
    np.testing.assert_allclose(error, lowest.min())
    assert jsvm.RESULTS.stopped_early in [int(code) for code in found.results]
    for start in range(2):  # of equal errors, the one with the lowest criterion
        ties = np.flatnonzero(errors[start] == lowest[start])
        values = np.asarray(found.history.value[start])[ties]
        assert len(ties) > 1 and int(found.history.end[start]) == ties[np.argmin(values)]


def test_other_data_can_be_of_one_class(found):
    other = jsvm.select(
        machine(), X, Y, PRESS, bounds=BOUNDS, test=(X_TEST, np.ones(100)), max_steps=1
    )
    error = np.mean(np.asarray(jsvm.fit(machine(), X, Y).predict(X_TEST)) < 0)
    np.testing.assert_allclose(other.history.test_error, [[error]])
    with pytest.raises(ValueError, match=r"labels must be -1 and \+1"):
        jsvm.select(machine(), X, Y, PRESS, test=(X_TEST, np.zeros(100)))


def test_bounds_of_one_side(found):
    from jaxsvm.selection._coordinates import limits

    open_ends = {"kernel.lengthscale": (1e-3, np.inf), "loss.C": (0, 10)}
    low, high = limits(machine(), open_ends)
    np.testing.assert_allclose(low.kernel.log_lengthscale, np.log(1e-3))
    np.testing.assert_allclose(high.kernel.log_lengthscale, np.inf)
    np.testing.assert_allclose([low.loss.log_C, high.loss.log_C], [-np.inf, np.log(10)])
    other = jsvm.select(
        machine(), X, Y, PRESS, bounds=open_ends, test=(X_TEST, Y_TEST), max_steps=30
    )
    assert np.nanmax(other.history.parameters["loss.C"]) <= 10 * (1 + 1e-9)
    with pytest.raises(ValueError, match=r"`loss.C` must be positive"):
        jsvm.select(machine(), X, Y, PRESS, bounds={"loss.C": (-1.0, 10)})
    with pytest.raises(ValueError, match=r"of shape \(3,\), but have \(2,\)"):
        jsvm.select(machine(), X, Y, PRESS, bounds={"kernel.lengthscale": ([0.1, 0.2], 9)})


class Cliff(AbstractCriterion):
    """A parabola in ln C that is NaN for C above 30."""

    def check(self, model, x, y):
        pass

    def evaluate(self, model, data, memory=None):
        log_C = model.loss.log_C
        value = jnp.where(log_C < jnp.log(30.0), (log_C - 1) ** 2, jnp.nan)
        return evaluation(value, jnp.zeros((), jnp.int32), None)


def test_a_failed_start_is_reported_and_never_chosen():
    model = jsvm.freeze(machine(), "kernel")
    log_starts = jnp.log(jnp.array([100.0, 2.0, 50.0]))
    starts = jax.tree.map(lambda _: log_starts, model)
    found = jsvm.select(model, X, Y, Cliff(), restarts=3, starts=starts)
    codes = [jsvm.RESULTS(int(code)) for code in found.results]
    assert [code.is_success for code in codes] == [False, True, False]
    assert found.best == 1 and found.usable.tolist() == [False, True, False]
    np.testing.assert_allclose(found.model.loss.C, np.e, rtol=1e-3)
    assert len(found.ensemble().members) == 1
    with pytest.raises(jsvm.FitError, match="all 1 starts failed"):
        jsvm.select(jsvm.replace(model, {"loss.C": 100.0}), X, Y, Cliff())


class Stairs(AbstractCriterion):
    """A count: its derivative is zero wherever there is one."""

    def check(self, model, x, y):
        pass

    def evaluate(self, model, data, memory=None):
        value = jnp.floor(jnp.abs(3 * model.loss.log_C))
        return evaluation(value, jnp.zeros((), jnp.int32), None)


def test_a_criterion_without_a_gradient_is_no_success():
    model = jsvm.replace(jsvm.freeze(machine(), "kernel"), {"loss.C": 2.0})
    with pytest.raises(jsvm.FitError, match=r'"smooth".*"log".*GreedyWalk'):
        jsvm.select(model, X, Y, Stairs(), restarts=2, key=KEY)
    found = jsvm.select(model, X, Y, Stairs(), restarts=2, key=KEY, throw=False)
    assert [int(code) for code in found.results] == [jsvm.RESULTS.no_gradient] * 2
    walked = jsvm.select(model, X, Y, Stairs(), optimizer=GreedyWalk(), key=KEY, max_steps=30)
    assert float(walked.value) == 0.0
    # a gradient that only leads out of the bounds is another matter
    corner = jsvm.select(model, X, Y, Cliff(), bounds={"loss.C": (1.0, 2.0)})
    assert int(corner.results[0]) == jsvm.RESULTS.successful


def test_starts_are_drawn_between_the_ends_of_ranges():
    from jaxsvm.selection._coordinates import draw_starts

    ranges = {"loss.C": (0.1, 10.0)}
    drawn = draw_starts(machine(), ranges, None, 400, KEY)
    log_C = np.asarray(drawn.loss.log_C)
    assert log_C.min() >= np.log(0.1) and log_C.max() <= np.log(10.0)
    np.testing.assert_allclose(np.mean(log_C), 0.0, atol=0.2)  # uniform in the logarithm
    np.testing.assert_allclose(drawn.kernel.log_lengthscale, np.log(1.5))


def test_compiled_once_for_many_selections(keep_programs):
    from jaxsvm.selection._engine import advance

    numbers = []
    for C, x, y in [(2.0, X, Y), (7.0, X[::-1].copy(), Y[::-1].copy())]:
        model = jsvm.replace(machine(), {"loss.C": C})
        jsvm.select(model, x, y, PRESS, bounds=BOUNDS, test=(X_TEST, Y_TEST))
        numbers.append(compilations(advance))
    assert len(set(numbers)) == 1


def test_bad_input():
    model = machine()
    with pytest.raises(TypeError, match=r"jaxsvm.criteria"):
        jsvm.select(model, X, Y, lambda m, x, y: 0.0)
    with pytest.raises(ValueError, match="pass `key`"):
        jsvm.select(model, X, Y, PRESS, restarts=3)
    with pytest.raises(ValueError, match="pass `key`"):
        jsvm.select(model, X, Y, PRESS, optimizer=GreedyWalk())
    with pytest.raises(ValueError, match=r"`loss.C` = 1.0 is outside its bounds"):
        jsvm.select(model, X, Y, PRESS, bounds={"loss.C": (2.0, 3.0)})
    with pytest.raises(ValueError, match=r"no such parameter; it has: kernel\.lengthscale"):
        jsvm.select(model, X, Y, PRESS, bounds={"C": (2.0, 3.0)})
    with pytest.raises(ValueError, match="which is frozen"):
        jsvm.select(model, X, Y, PRESS, bounds={"kernel.variance": (0.5, 2.0)})
    with pytest.raises(ValueError, match="exceed its bounds"):
        jsvm.select(
            model, X, Y, PRESS, restarts=2, key=KEY, starts={"loss.C": (0.1, 5)},
            bounds={"loss.C": (0.5, 3)},
        )  # fmt: skip
    with pytest.raises(ValueError, match="nothing to select"):
        jsvm.select(jsvm.freeze(model, "kernel", "loss"), X, Y, PRESS)
    with pytest.raises(ValueError, match="`restarts` must be a positive integer"):
        jsvm.select(model, X, Y, PRESS, restarts=0)
    with pytest.raises(ValueError, match="leading axis of length 3"):
        jsvm.select(model, X, Y, PRESS, restarts=3, starts=model)
    two = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + 1.0]), model)
    with pytest.raises(
        ValueError, match=r"entry 1 of `starts`, the start `loss.C` = 2.71.* is outside"
    ):
        jsvm.select(model, X, Y, PRESS, restarts=2, starts=two, bounds={"loss.C": (0.5, 2.0)})
    with pytest.raises(ValueError, match=r"`starts` has kernel.lengthscale \(frozen\)"):
        other = jsvm.freeze(model, "kernel.lengthscale")
        jsvm.select(model, X, Y, PRESS, restarts=2, starts=other)
    with pytest.raises(ValueError, match=r"different values of `kernel.variance`"):
        other = jsvm.replace(two, {"kernel.variance": 3.0})
        jsvm.select(model, X, Y, PRESS, restarts=2, starts=other)
    with pytest.raises(ValueError, match="must have 3 inputs"):
        jsvm.select(model, X, Y, PRESS, test=(X_TEST[:, :2], Y_TEST))
    with pytest.raises(TypeError, match="optax"):
        jsvm.select(model, X, Y, PRESS, optimizer="adam")
    with pytest.raises(ValueError, match="`linear` names `C`"):
        jsvm.select(model, X, Y, PRESS, optimizer=GreedyWalk(linear=("C",)), key=KEY)
    with pytest.raises(ValueError, match="LeastSquares"):
        jsvm.select(jsvm.KernelMachine(kernels.RBF(), losses.Hinge()), X, Y, PRESS)


def test_progress_is_drawn_by_the_host(capsys):
    jsvm.select(machine(), X, Y, PRESS, max_steps=10, bounds=BOUNDS, progress=True)
    drawn = capsys.readouterr().err
    assert "selecting:" in drawn and "100%|" in drawn and "criterion" in drawn
    jsvm.select(machine(), X, Y, PRESS, max_steps=10, bounds=BOUNDS, progress=False)
    assert capsys.readouterr().err == ""


EVIDENCE = criteria.LaplaceEvidence()


class Counting(AbstractFitCriterion):
    """The Laplace evidence, which counts how often it is traced."""

    traces: ClassVar[list] = []

    def check(self, model, x, y):
        EVIDENCE.check(model, x, y)

    def of_fit(self, gram, fit):
        self.traces.append(1)
        return EVIDENCE.of_fit(gram, fit)


def test_other_frozen_values_and_data_compile_nothing_new(keep_programs):
    kernel = kernels.RBF(1.0, 1.0) + kernels.Constant(0.1)
    criterion, values = Counting(), []
    for variance in (0.5, 2.0):
        model = jsvm.KernelMachine(kernel, losses.Quadratic(0.3))
        model = jsvm.freeze(jsvm.replace(model, {"kernel.left.variance": variance}), "kernel.left")
        found = jsvm.select(model, X, Y * variance, criterion, max_steps=3, throw=False)
        assert set(jsvm.frozen(found.model)) == {"kernel.left.lengthscale", "kernel.left.variance"}
        np.testing.assert_allclose(found.model.kernel.left.variance, variance, rtol=1e-12)
        literal = EVIDENCE(found.model, X, Y * variance)
        np.testing.assert_allclose(found.value, literal, rtol=1e-9)
        values.append(len(criterion.traces))
    assert values[0] == values[1] > 0
