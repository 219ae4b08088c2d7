"""Tables of text as numbers: what a CSV file holds, and how its columns become inputs."""

import csv
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-"})
MOST_LEVELS = 20  # of a text column; with more of them it is a name, and tells nothing about others
_MOST_CELLS = 50_000_000


class DataError(Exception):
    """Data that cannot be used, and why, in the words of who has them."""


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

    def values(self, cells: Sequence[str]) -> np.ndarray:
        """One row of inputs for each cell."""
        if self.levels is not None:
            cleaned = ["" if is_missing(cell) else cell for cell in cells]
            return np.array([[float(cell == level) for level in self.levels] for cell in cleaned])
        numbers = [as_number(cell) for cell in cells]
        for row, (cell, number) in enumerate(zip(cells, numbers, strict=True), start=1):
            if number is None and not is_missing(cell):
                raise DataError(
                    f"column {self.name!r} is one of numbers, but holds {cell!r} in row {row}"
                )
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


def find_columns(table: Table, names: Sequence[str], say: Any) -> list[Column]:
    """How the named columns become inputs; `say` is told what is left out, and why."""
    found = []
    for name in names:
        cells = table.column(name)
        known = [cell for cell in cells if not is_missing(cell)]
        if not known:
            say(f"column {name!r} is left out: it is empty")
            continue
        numbers = [as_number(cell) for cell in known]
        missing = len(cells) - len(known)
        if None not in numbers:
            values = np.array(numbers, float)
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


def as_inputs(table: Table, columns: Sequence[Column]) -> np.ndarray:
    """The inputs of a table, one row for each of its rows."""
    absent = [column.name for column in columns if column.name not in table.names]
    if absent:
        raise DataError(
            f"the table has no column {absent[0]!r}, which the model needs; it has: "
            f"{', '.join(table.names)}"
        )
    return np.hstack([column.values(table.column(column.name)) for column in columns])
