"""The command line: tune, predict, show, and error messages."""

import csv
import importlib.util
import io
import re
import threading
import time

import numpy as np
import pytest
from interruptions import watch

import jaxsvm as jsvm
from jaxsvm.command import _tune, main
from jaxsvm.command._columns import as_inputs, find_columns
from jaxsvm.command._table import read
from jaxsvm.runtime import map_in_threads

DRAWS = importlib.util.find_spec("matplotlib") is not None  # the extra `plot`


def write(path, names, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of 60 rows: two inputs that matter, a colour, a constant, names, and missing cells."""
    folder = tmp_path_factory.mktemp("command")
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 2))
    label = np.where(x[:, 0] + 0.3 * random.normal(size=60) > 0, "yes", "no")
    rows = []
    for i in range(60):
        first = "" if i == 7 else f"{x[i, 0]:.6f}"
        rows.append([first, x[i, 1], "rgb"[i % 3], 1, f"name {i}", label[i]])
    write(folder / "data.csv", ["a", "b", "colour", "same", "name", "answer"], rows)
    return folder


@pytest.fixture(scope="module")
def model(folder):
    """A model of that table, by the quickest method."""
    out = folder / "model.jaxsvm"
    report = ["--report", str(folder / "report.html")] if DRAWS else []
    code = main([
        "tune", str(folder / "data.csv"), "--target", "answer", "--method", "press", "--ard", "no",
        "--output", str(out), "--restarts", "2", *report,
    ])  # fmt: skip
    assert code == 0
    return out


def test_tune_says_what_it_found(model, folder, capsys):
    main(["show", str(model)])
    printed = capsys.readouterr().out
    for word in ("classification of 'answer'", "no, yes", "test error", "log loss", "loss.C"):
        assert word in printed
    if DRAWS:
        page = (folder / "report.html").read_text()
        assert page.count("data:image/png;base64,") == 2 and "http" not in page
    assert list(folder.glob("model.jaxsvm?*")) == []


@pytest.mark.parametrize("target, method", [("answer", ["--method", "press"]), ("b", [])])
def test_the_rank_of_the_kernel_matrix_is_an_option(target, method, model, folder, capsys):
    main(["show", str(model)])
    assert "kernel matrix    exact" in capsys.readouterr().out
    data, out = str(folder / "data.csv"), str(folder / "low.jaxsvm")
    options = ["--target", target, "--ard", "no", *method, "--output", out]
    assert main(["tune", data, *options, "--approximation", "20"]) == 0
    main(["show", out])
    line = r"kernel matrix    rank 20, which loses \d+\.\d\d% of the prior's variance"
    assert len(re.findall(line, capsys.readouterr().out)) == 2  # of `tune` and of `show`
    assert main(["predict", out, data]) == 0
    assert capsys.readouterr().out.count("\n") == 61


def test_what_is_done_with_columns(folder):
    said = []
    table = read(folder / "data.csv")
    columns = find_columns(table, table.names[:-1], said.append)
    assert [name for c in columns for name in c.inputs] == [
        "a", "b", "colour=b", "colour=g", "colour=r",
    ]  # fmt: skip
    assert "column 'a': replacing 1 missing value by the median" in said
    assert "ignoring column 'same': it is constant" in said
    assert "ignoring column 'name': it is text with 60 different values" in said
    x = as_inputs(table, columns)
    known = np.array([float(cell) for cell in table.column("a") if cell])
    assert x[7, 0] == np.median(known)
    np.testing.assert_array_equal(x[:, 2:].sum(axis=1), 1)


def test_predictions_are_those_of_the_estimator(model, folder, capsys):
    assert main(["predict", str(model), str(folder / "data.csv")]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 60
    p = np.array([[float(row["P(no)"]), float(row["P(yes)"])] for row in rows])
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5)
    likely = np.where(p[:, 1] > 0.5, "yes", "no")
    assert list(likely) == [row["answer"] for row in rows]
    truth = read(folder / "data.csv").column("answer")
    assert np.mean(likely == np.array(truth)) > 0.8


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("restarts", [1, 3])
def test_an_interrupted_search_goes_on(task, restarts, folder, capsys, monkeypatch):
    data, out = folder / "data.csv", folder / f"{task}.jaxsvm"
    options = ["--target", "answer", "--method", "press"]
    if task == "regression":
        options = ["--target", "b", "--ignore", "answer", "--task", task]
    options += ["--ard", "no", "--restarts", str(restarts), "--seed", "1"]
    arguments = ["tune", str(data), *options, "--output", str(out)]
    code, whole = watch(monkeypatch, lambda: main(arguments))
    assert code == 0 and whole.count(0) == restarts
    assert len(whole) > restarts + 1  # there is something within
    capsys.readouterr()
    main(["predict", str(out), str(data)])
    answers = capsys.readouterr().out
    out.unlink()

    code, before = watch(monkeypatch, lambda: main(arguments), len(whole) - 1)
    (state,) = folder.glob(f"{out.name}.*.state")
    said = capsys.readouterr().err
    assert code == 130 and not out.exists()
    assert f"progress is saved in {state}; run the same command again to resume" in said
    code, after = watch(monkeypatch, lambda: main(arguments))
    assert code == 0 and f"resuming from {state}" in capsys.readouterr().err
    assert sorted(before + after) == sorted(whole) and len(after) == 1
    assert list(folder.glob(f"{out.name}?*")) == []
    main(["predict", str(out), str(data)])
    assert capsys.readouterr().out == answers


def test_time_ends_every_search(folder, capsys, monkeypatch):
    arguments = [
        "tune", str(folder / "data.csv"), "--target", "answer", "--method", "press", "--restarts", "3",
        "--output", str(folder / "timed.jaxsvm"), "--seconds", "0", "--seed", "1",
    ]  # fmt: skip
    code, begun = watch(monkeypatch, lambda: main(arguments))
    assert code == 0 and begun == [
        0,
        0,
        0,
    ]  # all take their first steps, and no other search begins
    assert "stopped at `seconds=0` before it converged" in capsys.readouterr().err
    assert (folder / "timed.jaxsvm").exists() and not list(folder.glob("timed.jaxsvm?*"))


def test_an_interrupted_ascent_has_a_checkpoint(tmp_path, monkeypatch):
    from jaxsvm.sklearn import BayesianSVC, _binary

    said = []
    state = _tune.State(tmp_path / "model", "a mark", said.append)
    seen = []

    def select(model, x, y, objective, *, checkpoint, **options):
        assert isinstance(objective, jsvm.evidence.Sampled)
        checkpoint.write_text("")
        seen.append(checkpoint)
        raise KeyboardInterrupt

    monkeypatch.setattr(_binary, "select", select)
    machine = BayesianSVC("evidence", ard=False, random_state=0, checkpoint=str(state.folder))
    with pytest.raises(KeyboardInterrupt):
        machine.fit(np.arange(20.0)[:, None], np.arange(20) % 2)
    assert seen == state.checkpoints() and said == []
    again = _tune.State(tmp_path / "model", "a mark", said.append)
    assert said == [f"resuming from {state.folder}"]
    _tune.State(tmp_path / "model", "another mark", said.append).remove()
    assert list(tmp_path.iterdir()) == [state.folder] and seen[0].exists()
    again.remove()
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_does_not_wait_for_threads():
    goes_on = threading.Event()

    def run_one(number):
        if number == 1:
            raise KeyboardInterrupt
        return number == 0 or goes_on.wait(60)

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        map_in_threads(run_one, 3, 10)
    assert time.monotonic() - begin < 30
    goes_on.set()


def test_the_kernels_are_those_of_the_estimators():
    from jaxsvm.sklearn._estimator import KERNELS

    assert tuple(KERNELS) == _tune.KERNELS


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--kernel", "foo"], "invalid choice: 'foo'"),
        (["--restarts", "0"], "must be at least 1, but is 0"),
        (["--approximation", "0"], 'must be "auto", "exact" or a positive number, but is \'0\''),
        (["--approximation", "low"], 'must be "auto", "exact" or a positive number'),
        (["--seconds", "nan"], "must be at least 0, but is nan"),
        (["--test-share", "2"], "must be between 0 and 1, but is 2"),
        (["--output", "nowhere/model"], "the folder nowhere does not exist"),
        (["--output", "."], "is a folder"),
        (["--report", "nowhere/report.html"], "the folder nowhere does not exist"),
        (["--method", "span", "--task", "regression"], "only for classification"),
    ],
)
def test_an_invalid_command_line(arguments, words, folder, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["tune", str(folder / "data.csv"), "--target", "b", *arguments])
    assert stopped.value.code == 2
    assert words in capsys.readouterr().err


def test_a_method_is_not_for_numbers(folder, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["tune", str(folder / "data.csv"), "--target", "b", "--method", "span"])
    assert stopped.value.code == 2 and "only for classification" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--level", "3"], ["--output", "."], ["--output", "no/a"]])
def test_invalid_options_of_predict(arguments, folder, model, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["predict", str(model), str(folder / "data.csv"), *arguments])
    assert stopped.value.code == 2


def test_a_file_that_cannot_be_written(folder, model, capsys, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device", "answers.csv")

    out = folder / "answers.csv"
    arguments = ["predict", str(model), str(folder / "data.csv"), "--output", str(out)]
    assert main(arguments) == 0
    before, names = out.read_bytes(), sorted(folder.iterdir())
    monkeypatch.setattr("os.fsync", fail)
    assert main(arguments) == 6
    assert "No space left on device" in capsys.readouterr().err
    assert out.read_bytes() == before and sorted(folder.iterdir()) == names


def test_a_level_that_was_never_seen_is_reported(folder, model, tmp_path, capsys):
    rows = write(tmp_path / "new.csv", ["a", "b", "colour"], [[1, 1, "purple"], [1, 1, "r"]])
    assert main(["predict", str(model), str(rows)]) == 0
    assert (
        "column 'colour' has 'purple' in 1 row, but in no training row" in capsys.readouterr().err
    )


def bad_tables():
    numbers = [[i, i % 2] for i in range(20)]
    yield "no file", None, "x", "there is no file"
    yield "no target", (["a", "b"], numbers), "c", "there is no column 'c'; the columns are: a, b"
    yield (
        "one class",
        (["a", "b"], [[i, "yes"] for i in range(20)]),
        "b",
        "at least two classes are needed",
    )
    yield "constant", (["a", "b"], [[1, i % 2] for i in range(20)]), "b", "no input column is left"
    yield "few", (["a", "b"], numbers[:5]), "b", "at least 10 are needed"
    yield "ragged", (["a", "b"], [*numbers, [1]]), "b", "has 1 cells, but there are 2 columns"
    yield "twice", (["a", "a", "b"], [[1, 2, 3]]), "b", "more than one column named 'a'"
    yield "no rows", (["a", "b"], []), "b", "has no rows"
    yield "rare", (["a", "b"], [*numbers, [3, 2]]), "b", "has only one row"
    yield (
        "empty target",
        (["a", "b"], [[i, ""] for i in range(20)]),
        "b",
        "only 0 rows have a target",
    )


@pytest.mark.parametrize(
    "table, target, words", [pytest.param(*rest, id=name) for name, *rest in bad_tables()]
)
def test_bad_tables_are_reported(table, target, words, tmp_path, capsys):
    path = tmp_path / "data.csv"
    if table is not None:
        write(path, *table)
    code = main(["tune", str(path), "--target", target, "--task", "classification"])
    assert code == 3
    assert words in capsys.readouterr().err
    assert list(tmp_path.glob("*.jaxsvm")) == []


@pytest.mark.parametrize(
    "rows, words",
    [
        ([[i, 1e300 if i == 3 else i] for i in range(20)], "the target 'b' holds 1e+300 in row 4"),
        ([[1e300 if i == 3 else i, i] for i in range(20)], "column 'a' holds 1e+300 in row 4"),
        ([[i, 1 if i in (6, 19) else 0] for i in range(20)], "all targets are the same"),
    ],
)
def test_numbers_that_cannot_be_learned(rows, words, tmp_path, capsys):
    path = write(tmp_path / "data.csv", ["a", "b"], rows)
    out = str(tmp_path / "out")
    options = ["--target", "b", "--task", "regression", "--output", out, "--seed", "0"]
    options += ["--test-share", "0.5"]
    assert main(["tune", str(path), *options]) == 3
    assert words in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["data.csv"]


def test_exit_codes(folder, model, tmp_path, capsys):
    data = str(folder / "data.csv")
    assert main(["show", data]) == 4
    model_of_other_kind = tmp_path / "kernel.jaxsvm"
    jsvm.save(model_of_other_kind, jsvm.kernels.RBF())
    assert main(["show", str(model_of_other_kind)]) == 4
    assert "was not written by `jaxsvm tune`" in capsys.readouterr().err
    other = write(tmp_path / "other.csv", ["b"], [[1.0]])
    assert main(["predict", str(model), str(other)]) == 3
    assert "needs a column 'a'" in capsys.readouterr().err
    text = write(tmp_path / "text.csv", ["a", "b", "colour"], [["red", 1, "r"]])
    assert main(["predict", str(model), str(text)]) == 3
    assert "holds 'red' in row 1" in capsys.readouterr().err
    code = main(["tune", data, "--target", "answer", "--task", "regression"])
    assert code == 3 and "a regression needs numbers" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["tune", data])
    assert stopped.value.code == 2
