"""Tables of text as numbers: what a CSV file holds, and how its columns become inputs."""

import contextlib
import csv
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-"})
MOST_LEVELS = 20  # of a text column; with more of them it is a name, and tells nothing about others
_MOST_CELLS = 50_000_000
_LARGEST = 1e100  # number in a cell: the squares of larger ones may be no numbers


class DataError(Exception):
    """Data that cannot be used, and why, in the words of who has them."""


@contextlib.contextmanager
def as_data_errors():
    """What an estimator says of the data it was given, as what it is: a `DataError`."""
    try:
        yield
    except ValueError as error:
        raise DataError(str(error)) from error


def say(text: str) -> None:
    """Tell the user something beside the output."""
    print(f"jaxsvm: {text}", file=sys.stderr)


class Table(NamedTuple):
    """The cells of a file as text: column names, and one tuple of cells for each row."""

    names: list[str]
    rows: list[list[str]]

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

    def values(self, cells: Sequence[str], say: Callable[[str], None]) -> np.ndarray:
        """One row of inputs for each cell; `say` is told of levels that are not known."""
        if self.levels is not None:
            cleaned = ["" if is_missing(cell) else cell for cell in cells]
            unknown = Counter(cell for cell in cleaned if cell not in self.levels)
            for level, count in unknown.items():
                what = "no value" if level == "" else repr(level)
                say(
                    f"column {self.name!r} has {what} in {count} rows, which no row to train on has: it "
                    "counts as none of the known values"
                )
            return np.array([[float(cell == level) for level in self.levels] for cell in cleaned])
        numbers = as_numbers(self.name, cells)
        return np.array([[self.fill if number is None else number] for number in numbers])


def read(path: Path) -> Table:
    """The table in a CSV file, whose first line has the names of the columns.

    Commas, semicolons and tabs separate cells, whichever the first line has most of.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            if not first.strip():
                raise DataError(f"{path} is empty: a line with the names of the columns is needed")
            separator = max(",;\t", key=first.count)
            file.seek(0)
            lines = csv.reader(file, delimiter=separator, strict=True)
            return _table(path, lines)
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}") from error
    except IsADirectoryError as error:
        raise DataError(f"{path} is a folder, not a file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as a table of text: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def _table(path: Path, lines) -> Table:
    names = [name.strip() for name in next(lines)]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DataError(f"{path} has more than one column with the name {repeated[0]!r}")
    rows = []
    for number, row in enumerate(lines, start=2):
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(names):
            raise DataError(
                f"line {number} of {path} has {len(row)} cells, but there are {len(names)} columns"
            )
        rows.append([cell.strip() for cell in row])
        if len(rows) * len(names) > _MOST_CELLS:
            raise DataError(f"{path} has more than {_MOST_CELLS} cells: take a part of it")
    if not rows:
        raise DataError(f"{path} has no rows below the names of the columns")
    return Table(names, rows)


def is_missing(cell: str) -> bool:
    """Whether the cell stands for a value that is not known."""
    return cell.lower() in MISSING


def as_number(cell: str) -> float | None:
    """The finite number in a cell, or None."""
    if is_missing(cell):
        return None
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def as_numbers(name: str, cells: Sequence[str]) -> list[float | None]:
    """The numbers in the cells of a column, None where one is missing; an error where there is no number."""
    numbers = [as_number(cell) for cell in cells]
    for row, (cell, number) in enumerate(zip(cells, numbers, strict=True), start=1):
        if number is None and not is_missing(cell):
            raise DataError(f"column {name!r} is one of numbers, but holds {cell!r} in row {row}")
        if number is not None and abs(number) > _LARGEST:
            raise DataError(
                f"column {name!r} holds {cell} in row {row}: numbers beyond {_LARGEST:g} cannot be "
                "computed with; change its unit, or empty the cell if it stands for a missing value"
            )
    return numbers


def as_labels(cells: Sequence[str]) -> np.ndarray:
    """Labels of classes; where all are numbers, `1`, `1.0` and `1e0` are the same."""
    numbers = [as_number(cell) for cell in cells]
    if None in numbers:
        return np.array(cells)
    return np.array([_shortest(number) for number in numbers if number is not None])


def _shortest(number: float) -> str:
    return str(int(number)) if number == int(number) and abs(number) < 1e15 else repr(number)


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
        all_cells = table.column(name)
        cells = all_cells if train is None else [all_cells[row] for row in train]
        known = [cell for cell in cells if not is_missing(cell)]
        if not known:
            say(f"column {name!r} is left out: it is empty")
            continue
        missing = len(cells) - len(known)
        if all(as_number(cell) is not None for cell in all_cells if not is_missing(cell)):
            values = np.array([n for n in as_numbers(name, cells) if n is not None])
            if values.min() == values.max():
                say(f"column {name!r} is left out: it is constant")
                continue
            if missing:
                say(f"column {name!r}: {missing} missing values are set to the median")
            found.append(Column(name, None, float(np.median(values))))
            continue
        levels = sorted(set(known)) + ([""] if missing else [])
        if len(levels) == 1:
            say(f"column {name!r} is left out: it is constant")
        elif len(levels) > MOST_LEVELS:
            say(f"column {name!r} is left out: it is text with {len(levels)} different values")
        else:
            found.append(Column(name, tuple(levels), 0.0))
    if not found:
        raise DataError("no column is left that could tell something about the target")
    return found


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
    return np.hstack([column.values(table.column(column.name), say) for column in columns])
