"""Odd tables on the command line: labels keep their text, numbers are numbers, pipes are read."""

import csv
import io
import os
import threading

import numpy as np
import pytest

from jaxsvm.command import _predict, main
from jaxsvm.command._columns import as_labels, find_columns, separate_target
from jaxsvm.command._model import root_mean_square
from jaxsvm.command._predict import escaped
from jaxsvm.command._table import DataError, as_number, is_numeric, numbers_in, read

CLASSES = ("10000000000000000", "10000000000000001", "007", "7", "=1+cmd", "-1")
QUICK = ("--method", "press", "--ard", "no", "--quiet")


def write(path, names, rows, **options):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, **options).writerows([names, *rows])
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table whose classes differ only in their text, with formulas as names."""
    folder = tmp_path_factory.mktemp("tables")
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 2))
    labels = [CLASSES[place] for place in np.arange(60) % len(CLASSES)]
    rows = [[*x[i] + 5 * (i % len(CLASSES)), labels[i]] for i in range(60)]
    write(folder / "data.csv", ["$a_", "b\x1b[31m", "@answer"], rows)
    assert main(["tune", str(folder / "data.csv"), "--target", "@answer", *QUICK, "--task",
                 "classification", "--output", str(folder / "model")]) == 0  # fmt: skip
    return folder


def test_classes_keep_their_text(folder, capsys):
    assert main(["show", str(folder / "model")]) == 0
    shown = capsys.readouterr().out
    assert ", ".join(sorted(CLASSES)) in shown and "\x1b" not in shown
    assert main(["predict", str(folder / "model"), str(folder / "data.csv")]) == 0
    printed = capsys.readouterr()
    rows = list(csv.reader(io.StringIO(printed.out)))
    assert rows[0] == ["'@answer", *(f"P({label})" for label in sorted(CLASSES))]
    truth = read(folder / "data.csv").column("@answer")
    predicted = [row[0] for row in rows[1:]]
    assert np.mean([escaped(a) == b for a, b in zip(truth, predicted, strict=True)]) > 0.8
    assert set(predicted) == {"'=1+cmd", *(c for c in CLASSES if c != "=1+cmd")}
    assert "a spreadsheet would run '=1+cmd', '@answer' as a formula" in printed.err


def test_labels_that_are_the_same_number_are_reported(tmp_path, capsys):
    as_labels(["7", "007", "7", "007"])
    assert "'007' and '7' are the same number, but different classes" in capsys.readouterr().err
    rows = [[i, ("10000000000000000", "10000000000000001", "x")[i % 3]] for i in range(30)]
    table = read(write(tmp_path / "data.csv", ["a", "b"], rows))
    assert len(set(as_labels(table.column("b")))) == 3


@pytest.mark.parametrize("cell", ["0", "-1", "+1.5", "1.", ".5", "1e5", "-2E-3", "007", "\u22125"])
def test_what_a_person_calls_a_number(cell):
    assert as_number(cell) == float(cell.replace("\u2212", "-"))


@pytest.mark.parametrize(
    "cell",
    ["1_0", "1_2", "inf", "-Infinity", "nan", "0x10", "1,5", "١٢", "\uff11", "1e", ".", "-", "1 2"],
)
def test_what_a_person_does_not_call_a_number(cell):
    assert as_number(cell) is None


@pytest.mark.parametrize("odd", ["", "-", "1_0", "\u22125", "x", "1.5\n", "1e400"])
def test_numbers_of_a_long_column_are_those_of_its_cells(odd):
    cells = [f"{i / 7:g}" for i in range(25_000)]
    cells[12_345] = odd
    assert numbers_in(cells) == [as_number(cell) for cell in cells]
    assert is_numeric(cells) == (odd in ("", "-", "\u22125", "1e400"))
    assert numbers_in([]) == []


def test_columns_of_codes_are_text(tmp_path):
    rows = [["1_2" if i % 2 else "1_3", i, i % 2] for i in range(20)]
    table = read(write(tmp_path / "data.csv", ["code", "a", "b"], rows))
    columns = find_columns(table, ["code", "a"], print)
    assert columns[0].inputs == ["code=1_2", "code=1_3"]


def test_a_dash_is_a_class_but_not_a_number(tmp_path):
    signs = [[i if i % 3 else "-", "+" if i % 2 else "-", "-" if i % 4 else "x"] for i in range(20)]
    table = read(write(tmp_path / "data.csv", ["a", "b", "c"], signs))
    said = []
    columns = find_columns(table, ["a", "c"], said.append)
    assert columns[1].inputs == ["c=-", "c=x"]
    assert said == ["column 'a': replacing 7 missing values by the median"]
    assert len(separate_target(table, "b", [])[1]) == 20
    assert len(separate_target(table, "a", [])[1]) == 13


def test_numbers_with_too_many_digits_are_reported(tmp_path):
    rows = [[10**16 + i, i, i % 2] for i in range(20)]
    said = []
    table = read(write(tmp_path / "data.csv", ["id", "a", "b"], rows))
    find_columns(table, ["id", "a"], said.append)
    assert (
        len(said) == 1 and "column 'id' has numbers that are equal in double precision" in said[0]
    )


def odd_tables():
    """Tables, their target, and the message about them before any work."""
    random = np.random.default_rng(1)
    y = random.normal(size=40)
    decimal = [[f"{v:.4f}".replace(".", ","), f"{-v:.3f}".replace(".", ",")] for v in y]
    yield (
        "inf",
        [[i, "inf" if i == 4 else y[i]] for i in range(40)],
        "b",
        ("most rows of the target 'b' hold a number, but row 5 holds 'inf': correct the cell"),
    )
    yield "text", [[i, "high" if i == 4 else y[i]] for i in range(40)], "b", "row 5 holds 'high'"
    yield "decimal commas", decimal, "b", "the target 'b' holds numbers with commas, such as '"
    yield (
        "commas of inputs",
        [[a, i % 2] for i, (a, _) in enumerate(decimal)],
        "b",
        ("column 'a' holds numbers with commas"),
    )
    yield (
        "too large",
        [[i, "1e999" if i == 4 else y[i]] for i in range(40)],
        "b",
        ("the target 'b' holds 1e999 in row 5: numbers beyond 1e+100"),
    )
    yield (
        "rare",
        [[i, i % 2] for i in range(39)] + [[3, "2"]],
        "b",
        "the class '2' has only one row",
    )
    yield (
        "one class",
        [[i, "1"] for i in range(40)],
        "b",
        "all targets are '1': at least two classes",
    )
    yield (
        "missing",
        [[i, "none" if i < 35 else i % 2] for i in range(40)],
        "b",
        ("ignoring 35 rows without a target (cells with 'none')"),
    )
    yield "no text", [[i, "a\0b"] for i in range(40)], "b", "line 2 of {path} holds a NUL character"
    yield "long", [[i, "ab"[i % 2] * 2000] for i in range(40)], "b", "a text of 2000 characters"
    yield (
        "unit",
        [[f"{i} kg" if i == 3 else y[i], i % 2] for i in range(40)],
        "b",
        ("ignoring column 'a': most rows hold a number, but row 4 holds '3 kg'; correct the cell"),
    )


@pytest.mark.parametrize("rows, target, words", [pytest.param(*r, id=n) for n, *r in odd_tables()])
def test_odd_tables_are_reported(rows, target, words, tmp_path, capsys):
    path = write(tmp_path / "data.csv", ["a", "b"], rows, delimiter=";")
    out = tmp_path / "model"
    assert main(["tune", str(path), "--target", target, "--output", str(out)]) == 3
    said = capsys.readouterr().err
    assert words.format(path=path) in said and "np." not in said
    assert [file.name for file in tmp_path.iterdir()] == ["data.csv"]


def test_rows_are_counted_in_the_file(tmp_path, capsys):
    rows = [[i, "" if i < 5 else i] for i in range(20)] + [[], [3, "x"]]
    path = write(tmp_path / "data.csv", ["a", "b"], rows)
    assert main(["tune", str(path), "--target", "b", "--task", "regression"]) == 3
    assert "the target 'b' holds 'x' in row 22" in capsys.readouterr().err


def test_pipes_are_read(folder, capsys):
    answers = []
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    for path in (folder / "data.csv", pipe):
        content = (folder / "data.csv").read_bytes()
        writer = threading.Thread(target=pipe.write_bytes, args=(content,))
        if path == pipe:
            writer.start()
        assert main(["predict", str(folder / "model"), str(path)]) == 0
        answers.append(capsys.readouterr().out)
    writer.join()
    assert answers[0] == answers[1] and answers[0].count("\n") == 61
    with pytest.raises(DataError, match="is a device: use a file or a pipe"):
        read(type(pipe)("/dev/null"))


@pytest.mark.parametrize("option", ["--output", "--report"])
def test_only_regular_files_are_written(option, folder, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        for command in (["tune", "--target", "@answer"], ["predict", str(folder / "model")]):
            if (command[0], option) == ("predict", "--report"):
                continue
            with pytest.raises(SystemExit) as stopped:
                main([*command, str(folder / "data.csv"), option, str(tmp_path / name)])
            assert stopped.value.code == 2
            assert "is a pipe: only regular files are written" in capsys.readouterr().err
    assert (tmp_path / "pipe").is_fifo()


def test_no_file_of_the_command_is_overwritten(folder, tmp_path, capsys):
    data, model = tmp_path / "data.csv", tmp_path / "model"
    data.write_bytes((folder / "data.csv").read_bytes())
    model.write_bytes((folder / "model").read_bytes())
    (tmp_path / "link").symlink_to("data.csv")
    (tmp_path / "hard").hardlink_to(data)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    tune = ["tune", str(data), "--target", "@answer", *QUICK]
    predict = ["predict", str(model), str(data)]
    lines = [(tune, data), (tune, "link"), (tune, "hard"), (predict, data), (predict, model)]
    for command, output in lines:
        assert main([*command, "--output", str(tmp_path / output)]) == 6
        assert "which would be lost: choose another name" in capsys.readouterr().err
    new = str(tmp_path / "new")
    for output, report in [(new, str(data)), (new, new), (new, f"{tmp_path}/./new")]:
        assert main([*tune, "--output", output, "--report", report]) == 6
        assert "which would be lost: choose another name" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("seed", ["-1", "4294967296", "1.5", "x"])
def test_seeds_that_no_generator_takes(seed, folder, capsys):
    for command in (["tune", str(folder / "data.csv"), "--target", "@answer"], ["demo"]):
        with pytest.raises(SystemExit) as stopped:
            main([*command, "--seed", seed])
        assert stopped.value.code == 2 and "argument --seed" in capsys.readouterr().err


def test_a_place_that_is_not_writable(folder, capsys, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may always write
    with pytest.raises(SystemExit):
        main(["predict", str(folder / "model"), "x.csv", "--output", str(folder / "model")])
    assert "is not writable: choose another location" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("=1+1", "'=1+1"), ("+cmd", "'+cmd"), ("-cmd", "'-cmd"), ("@SUM(A1)", "'@SUM(A1)"),
        ("'=1", "''=1"), ("\uff1dA1", "'\uff1dA1"), ("--1", "'--1"), ("-1", "-1"), ("+1.5e3", "+1.5e3"),
        ("-", "-"), ("+", "+"), ("yes", "yes"), ("'yes", "'yes"), ("a=b", "a=b"), ("", ""),
    ],
)  # fmt: skip
def test_formulas_are_escaped(text, wanted):
    assert escaped(text) == wanted


def test_errors_of_any_size_are_measured():
    for factor in (1e-300, 1.0, 1e300):
        np.testing.assert_allclose(
            root_mean_square(factor * np.array([3.0, 4.0])) / factor, 12.5**0.5
        )
    assert root_mean_square(np.zeros(3)) == 0


def test_predictions_have_digits_enough():
    mean, deviation = np.array([1e15 + 1, 1e15 - 2]), np.array([0.5, 0.25])
    assert [f"{m:.{_predict._digits(mean, deviation)}g}" for m in mean] == [
        "1000000000000001", "999999999999998",
    ]  # fmt: skip
    assert _predict._digits(np.array([1.0]), np.array([0.1])) == 8
    assert _predict._digits(np.array([1.0]), np.array([0.0])) == 17
