"""Tables for the command line: any content is either used or refused with a clear message."""

import csv
import types

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxsvm.command import _table, _tune, main
from jaxsvm.command._columns import as_inputs, find_columns
from jaxsvm.command._table import DataError, read


def write(path, names, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    return path


def test_held_out_rows_have_no_say(tmp_path):
    cells = [["1", "a"], ["3", "b"], ["", "a"], ["90", "c"], ["100", "c"]]
    table = read(write(tmp_path / "data.csv", ["number", "text"], cells))
    said = []
    columns = find_columns(table, table.names, said.append, [0, 1, 2])
    assert columns[0].fill == 2 and columns[1].levels == ("a", "b")
    x = as_inputs(table, columns, said.append)
    np.testing.assert_array_equal(x[:, 0], [1, 3, 2, 90, 100])
    np.testing.assert_array_equal(x[3:, 1:], 0)
    assert said[-1].startswith("column 'text' has 'c' in 2 rows, but in no training row")
    # all rows decide whether a column is numeric: a split must not decide whether a table can be used
    mixed = read(write(tmp_path / "mixed.csv", ["a"], [["1"], ["2"], ["x"]]))
    assert find_columns(mixed, ["a"], said.append, [0, 1])[0].levels == ("1", "2")


@settings(max_examples=200, deadline=None)
@given(content=st.one_of(
    st.text(max_size=200),
    st.lists(
        st.lists(st.sampled_from(["", "1", "-2.5", "x", "NA", '"', "1e999", "é", "nan", ",", ";"]),
                 min_size=1, max_size=4),
        max_size=8,
    ).map(lambda rows: "\n".join(",".join(row) for row in rows)),
))  # fmt: skip
def test_any_text_is_a_table_or_a_clear_error(content, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "fuzzed.csv"
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    try:
        table = read(path)
        x = as_inputs(table, find_columns(table, table.names, lambda _: None))
    except DataError as error:
        assert str(error)
    else:
        assert np.isfinite(x).all() and len(x) == len(table.numbers)


class Stub:
    """A stand-in for an estimator, to test what happens before and after a fit."""

    noise_std_ = evidence_ = 1.0
    rank_ = None

    def fit(self, y):
        if y.dtype.kind == "U":
            self.classes_ = np.unique(y)

    def predict_proba(self, x):
        return np.full((len(x), len(self.classes_)), 1 / len(self.classes_))

    def predict(self, x):
        return np.zeros(len(x))

    def predict_interval(self, x):
        return np.zeros(len(x)), np.ones(len(x))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(
        st.tuples(*[
            st.sampled_from(["", "1", "1.0", "2", "-2.5", "x", "y", "NA", "1e999", "1e300", "é", "0"])
            | st.integers(-5, 5).map(str) | st.floats(-10, 10).map(str)
        ] * 3),
        min_size=8, max_size=30,
    ),
    task=st.sampled_from(["auto", "classification", "regression"]),
    share=st.sampled_from(["0.01", "0.25", "0.99"]),
)  # fmt: skip
def test_no_table_makes_a_traceback(rows, task, share, tmp_path_factory):
    path = write(tmp_path_factory.getbasetemp() / "rows.csv", ["a", "b", "c"], rows)

    def searched(estimator, x, y, chosen):
        assert np.isfinite(x).all() and len(x) == len(y) > 0
        estimator.fit(y)
        return types.SimpleNamespace(remove=lambda: None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_tune, "_estimator", lambda *_: Stub())
        patch.setattr(_tune, "_fit", searched)
        patch.setattr(_tune, "save", lambda *_: None)
        out = str(path.with_name("rows.jaxsvm"))
        options = ["--target", "c", "--task", task, "--test-share", share, "--output", out]
        assert main(["tune", str(path), *options]) in (0, 3)


def test_a_table_is_packed_in_parts(tmp_path, monkeypatch):
    rows = [[str(i), "é" * (i % 3), f"line\n{i}" if i % 2 else ""] for i in range(25)]
    rows[3] = ["3", "", ""]
    path = write(tmp_path / "parts.csv", ["a", "b", "c"], rows)
    whole = read(path)
    monkeypatch.setattr(_table, "_ROWS", 7)
    table = read(path)
    assert [len(parts) for parts in table.columns] == [4, 4, 4]
    for place, name in enumerate("abc"):
        assert table.column(name) == whole.column(name) == [row[place] for row in rows]
    some = table.of_rows([3, 8, 24])
    assert some.column("a") == ["3", "8", "24"] and list(some.numbers) == [4, 9, 25]
    assert some.column("b") == ["", "éé", ""] and some.column("c") == ["", "", ""]
    assert table.of_rows(range(25)) is table


def test_a_table_that_does_not_fit_into_memory_is_refused(tmp_path, monkeypatch):
    path = write(tmp_path / "large.csv", ["a", "b"], [["1", "2"]] * 30)
    monkeypatch.setattr(_table, "host_memory", lambda: 16 * 2 * 30)
    assert len(read(path).numbers) == 30
    monkeypatch.setattr(_table, "host_memory", lambda: 16 * 2 * 29)
    with pytest.raises(
        DataError, match=r"large.csv is too large: the first 30 rows as numbers need"
    ):
        read(path)
