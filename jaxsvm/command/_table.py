"""Tables: what a CSV file holds, and how its columns become inputs."""

import contextlib
import csv
import itertools
import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..persistence import FileError
from ._cells import (
    DataError,
    as_number,
    as_numbers,
    is_missing,
    is_numeric,
    odd_cell,
    quoted,
    refuse_commas,
    rounded,
)

MOST_LEVELS = 20  # of a text column; with more of them it is a name, and tells nothing about others
_MOST_CELLS = 50_000_000


@contextlib.contextmanager
def as_data_errors():
    """Turn what an estimator says of its data into a `DataError`; files may fail meanwhile, too."""
    try:
        yield
    except FileError:
        raise
    except ValueError as error:
        raise DataError(str(error)) from error


def say(text: str) -> None:
    """Tell the user something beside the output."""
    print(f"jaxsvm: {text}", file=sys.stderr)


class Table(NamedTuple):
    """The cells of a file as text: column names, one list of cells for each row, and their numbers."""

    names: list[str]
    rows: list[list[str]]
    numbers: Sequence[int]  # of the rows in the file, from 1 on

    def column(self, name: str) -> list[str]:
        """The cells of one column."""
        place = self.names.index(name)
        return [row[place] for row in self.rows]


class Column(NamedTuple):
    """How one column becomes inputs.

    A column of numbers is itself, with `fill` where a cell is empty; one of text has an input for each
    of its `levels`, one where the cell is that level.
    """

    name: str
    levels: tuple[str, ...] | None
    fill: float

    @property
    def inputs(self) -> list[str]:
        """The names of its inputs."""
        if self.levels is None:
            return [self.name]
        return [f"{self.name}={level or '(missing)'}" for level in self.levels]

    def values(
        self, cells: Sequence[str], rows: Iterable[int], say: Callable[[str], None]
    ) -> np.ndarray:
        """One row of inputs for each cell; `say` is told of levels that are not known."""
        if self.levels is not None:
            cleaned = ["" if is_missing(cell) else cell for cell in cells]
            unknown = Counter(cell for cell in cleaned if cell not in self.levels)
            for level, count in unknown.items():
                what = "no value" if level == "" else quoted(level)
                say(
                    f"column {self.name!r} has {what} in {count} rows, which no row to train on has: it "
                    "counts as none of the known values"
                )
            return np.array([[float(cell == level) for level in self.levels] for cell in cleaned])
        numbers = as_numbers(f"column {self.name!r}", cells, rows)
        return np.array([[self.fill if number is None else number] for number in numbers])


def read(path: Path) -> Table:
    """The table in a CSV file, whose first line has the names of the columns.

    Commas, semicolons and tabs separate cells, whichever the first line has most of.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            _require_end(path, file.fileno())
            first = file.readline()
            if not first.strip():
                raise DataError(f"{path} is empty: a line with the names of the columns is needed")
            separator = max(",;\t", key=first.count)
            # chained and not read again, since a pipe can be read once only
            lines = itertools.chain([first], file)
            return _table(path, csv.reader(lines, delimiter=separator, strict=True))
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}") from error
    except IsADirectoryError as error:
        raise DataError(f"{path} is a folder, not a file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as a table of text: {error}") from error
    except (OSError, ValueError) as error:  # no permission, a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{str(path)!r} cannot be read: {reason}") from error


def _require_end(path: Path, descriptor: int) -> None:
    """Raise for devices, which may have no end; terminals have one."""
    if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):
        raise DataError(f"{path} is a device: give a file or a pipe")


def _table(path: Path, lines) -> Table:
    names = [name.strip() for name in next(lines)]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DataError(f"{path} has more than one column with the name {repeated[0]!r}")
    rows, numbers = [], []
    for number, row in enumerate(lines, start=1):
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(names):
            raise DataError(
                f"line {lines.line_num} of {path} has {len(row)} cells, but there are {len(names)} columns"
            )
        if any("\0" in cell for cell in row):
            raise DataError(
                f"line {lines.line_num} of {path} holds a NUL character: save the table as text (UTF-8)"
            )
        numbers.append(number)
        rows.append([cell.strip() for cell in row])
        if len(rows) * len(names) > _MOST_CELLS:
            raise DataError(f"{path} has more than {_MOST_CELLS} cells: take a part of it")
    if not rows:
        raise DataError(f"{path} has no rows below the names of the columns")
    return Table(names, rows, numbers)


def find_columns(
    table: Table,
    names: Sequence[str],
    say: Callable[[str], None],
    train: Sequence[int] | np.ndarray | None = None,
) -> list[Column]:
    """How the named columns become inputs; `say` is told what is left out, and why.

    Whether a column is one of numbers is seen from all rows; medians and levels are those of the rows to
    `train` on, by default all.
    """
    found = []
    for name in names:
        cells = table.column(name)
        chosen = cells if train is None else [cells[row] for row in train]
        find = _numeric_column if is_numeric(cells) else _text_column
        column = find(name, cells, chosen, table.numbers, say)
        if column is not None:
            found.append(column)
    if not found:
        raise DataError("no column is left that could tell something about the target")
    return found


def _numeric_column(name, every, cells, rows, say) -> Column | None:
    as_numbers(f"column {name!r}", every, rows)  # raises for those that are too large
    numbers = [n for n in map(as_number, cells) if n is not None]
    if not numbers:
        say(f"column {name!r} is left out: it is empty")
        return None
    pair = rounded(cells)
    if pair is not None:
        say(
            f"column {name!r} has numbers that are the same in double precision, such as {pair[0]} and "
            f"{pair[1]}: subtract a common number from all, or leave the column out if it holds codes"
        )
    if min(numbers) == max(numbers):
        say(f"column {name!r} is left out: it is constant")
        return None
    missing = len(cells) - len(numbers)
    if missing:
        values = "value is" if missing == 1 else "values are"
        say(f"column {name!r}: {missing} missing {values} set to the median")
    return Column(name, None, float(np.median(numbers)))


def _text_column(name, every, cells, rows, say) -> Column | None:
    refuse_commas(f"column {name!r}", every)
    known = [cell for cell in cells if not is_missing(cell)]
    if not known:
        say(f"column {name!r} is left out: it is empty")
        return None
    levels = sorted(set(known)) + ([""] if len(known) < len(cells) else [])
    if len(levels) == 1:
        say(f"column {name!r} is left out: it is constant")
        return None
    if len(levels) <= MOST_LEVELS:
        return Column(name, tuple(levels), 0.0)
    odd = odd_cell(every, rows)
    if odd is None:
        say(f"column {name!r} is left out: it is text with {len(levels)} different values")
    else:
        say(
            f"column {name!r} is left out: row {odd[0]} holds {quoted(odd[1])}, which is not a number, where "
            "most rows hold one; correct the cell, or empty it if the value is missing"
        )
    return None


def as_inputs(
    table: Table, columns: Sequence[Column], say: Callable[[str], None] = say
) -> np.ndarray:
    """The inputs of a table, one row for each of its rows; `say` is told what is not known."""
    absent = [column.name for column in columns if column.name not in table.names]
    if absent:
        raise DataError(
            f"the table has no column {absent[0]!r}, which the model needs; it has: "
            f"{', '.join(table.names)}"
        )
    return np.hstack(
        [column.values(table.column(column.name), table.numbers, say) for column in columns]
    )
