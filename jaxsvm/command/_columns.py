"""The columns of a table: how they become inputs, and whether the target is a class or a number."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ._table import (
    DataError,
    Table,
    as_number,
    as_numbers,
    equal_when_rounded,
    is_blank,
    is_missing,
    is_numeric,
    numbers_in,
    quoted,
    refuse_commas,
    same_number,
    say,
    text_among_numbers,
)

_MAX_LEVELS = 20  # of a text column; with more, it holds names that say nothing about other rows
_MAX_CLASSES = 20  # of a target of integers that is taken as a class
_MAX_LABEL = 1000  # characters


class Column(NamedTuple):
    """How one column becomes inputs.

    A numeric column (`levels` is None) is one input, with `fill` for empty cells. A text column has an input
    for each of its `levels`, which is one where the cell is that level and zero elsewhere.
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
        """One row of inputs for each cell; unknown levels are reported through `say`."""
        if self.levels is None:
            numbers = as_numbers(f"column {self.name!r}", cells, rows)
            return np.array([self.fill if number is None else number for number in numbers])[
                :, None
            ]
        cleaned = ["" if is_missing(cell) else cell for cell in cells]
        unknown = Counter(cell for cell in cleaned if cell not in self.levels)
        for level, count in unknown.items():
            what = "an empty cell" if level == "" else quoted(level)
            rows_text = "1 row" if count == 1 else f"{count} rows"
            say(
                f"column {self.name!r} has {what} in {rows_text}, but in no training row: treated as none of "
                "the known values"
            )
        places = {level: place for place, level in enumerate(self.levels)}
        codes = np.array([places.get(cell, -1) for cell in cleaned])
        return (codes[:, None] == np.arange(len(self.levels))).astype(float)


# ---------------------------------------------------------------------------- inputs


def find_columns(
    table: Table,
    names: Sequence[str],
    say: Callable[[str], None],
    train: Sequence[int] | np.ndarray | None = None,
) -> list[Column]:
    """How the named columns become inputs; columns that are left out are reported through `say`.

    All rows decide whether a column is numeric; its median or levels are those of the rows in `train`, by
    default all.
    """
    columns = []
    for name in names:
        cells = table.column(name)
        trained = cells if train is None else [cells[row] for row in train]
        make = _numeric_column if is_numeric(cells) else _text_column
        column = make(name, cells, trained, table.numbers, say)
        if column is not None:
            columns.append(column)
    if not columns:
        raise DataError("no input column is left to predict the target from")
    return columns


def _numeric_column(name, all_cells, cells, rows, say) -> Column | None:
    as_numbers(f"column {name!r}", all_cells, rows)  # raises for numbers that are too large
    numbers = [n for n in numbers_in(cells) if n is not None]
    if not numbers:
        say(f"ignoring column {name!r}: it is empty")
        return None
    pair = equal_when_rounded(cells)
    if pair is not None:
        say(
            f"column {name!r} has numbers that are equal in double precision, such as {pair[0]} and "
            f"{pair[1]}: subtract a common offset, or leave the column out (--ignore) if it holds codes"
        )
    if min(numbers) == max(numbers):
        say(f"ignoring column {name!r}: it is constant")
        return None
    missing = len(cells) - len(numbers)
    if missing:
        say(
            f"column {name!r}: replacing {missing} missing value{'s' if missing > 1 else ''} by the median"
        )
    return Column(name, None, float(np.median(numbers)))


def _text_column(name, all_cells, cells, rows, say) -> Column | None:
    refuse_commas(f"column {name!r}", all_cells)
    filled = [cell for cell in cells if not is_missing(cell)]
    if not filled:
        say(f"ignoring column {name!r}: it is empty")
        return None
    levels = sorted(set(filled)) + ([""] if len(filled) < len(cells) else [])
    if len(levels) == 1:
        say(f"ignoring column {name!r}: it is constant")
        return None
    if len(levels) <= _MAX_LEVELS:
        return Column(name, tuple(levels), 0.0)
    text = text_among_numbers(all_cells, rows)
    if text is None:
        say(f"ignoring column {name!r}: it is text with {len(levels)} different values")
    else:
        say(
            f"ignoring column {name!r}: most rows hold a number, but row {text[0]} holds {quoted(text[1])}; "
            "correct the cell, or empty it if the value is missing"
        )
    return None


def as_inputs(
    table: Table, columns: Sequence[Column], say: Callable[[str], None] = say
) -> np.ndarray:
    """The inputs for each row of a table; unknown levels are reported through `say`."""
    absent = [column.name for column in columns if column.name not in table.names]
    if absent:
        raise DataError(
            f"the model needs a column {absent[0]!r}, but the table has only: {', '.join(table.names)}"
        )
    return np.hstack(
        [column.values(table.column(column.name), table.numbers, say) for column in columns]
    )


# ---------------------------------------------------------------------------- the target


def separate_target(
    table: Table, target: str, ignore: Sequence[str]
) -> tuple[list[str], list[str], Table]:
    """The names of the input columns, the cells of the target, and the table of rows that have one."""
    for name in (target, *ignore):
        if name not in table.names:
            raise DataError(
                f"there is no column {name!r}; the columns are: {', '.join(table.names)}"
            )
    cells = table.column(target)
    is_absent = is_blank if is_numeric(cells) else is_missing
    kept = [row for row, cell in enumerate(cells) if not is_absent(cell)]
    if len(kept) < len(cells):
        texts = sorted({cell for cell in cells if is_absent(cell)})
        say(
            f"ignoring {len(cells) - len(kept)} rows without a target (cells with "
            f"{', '.join(map(repr, texts))})"
        )
    if len(kept) < 10:
        raise DataError(f"only {len(kept)} rows have a target, but at least 10 are needed")
    names = [name for name in table.names if name != target and name not in ignore]
    return names, [cells[i] for i in kept], table.of_rows(kept)


def is_class(target: str, cells: list[str], rows: Sequence[int], task: str) -> bool:
    """Whether the target is a class: text, or integers with few values, unless `task` says otherwise."""
    if task == "classification":
        return True
    if task == "regression":
        if not any(as_number(cell) is not None for cell in cells):
            refuse_commas(f"the target {target!r}", cells)
            raise DataError(f"a regression needs numbers, but the target holds {quoted(cells[0])}")
        return False
    numbers = numbers_in(cells)
    integers = all(math.isfinite(n) and n == int(n) for n in numbers if n is not None)
    few = integers and len(set(cells)) <= min(_MAX_CLASSES, max(2, len(cells) // 5))
    if None not in numbers:
        task = "classification: the target has few integer values" if few else "regression"
        say(f"this is a {task} (use --task to change it)")
        return few
    refuse_commas(f"the target {target!r}", cells)
    text = None if few else text_among_numbers(cells, rows)
    if text is not None:
        raise DataError(
            f"most rows of the target {target!r} hold a number, but row {text[0]} holds {quoted(text[1])}: "
            "correct the cell, or empty it to leave the row out; with --task classification every value is "
            "a class"
        )
    return True


def as_labels(cells: Sequence[str]) -> np.ndarray:
    """The labels of classes, with their text in the table; raises where there are too few or too many."""
    longest = max(map(len, cells))
    if longest > _MAX_LABEL:
        raise DataError(f"the target holds a text of {longest} characters, too long for a class")
    values, counts = np.unique(np.array(cells), return_counts=True)
    labels = values.tolist()
    pair = same_number(labels)
    if pair is not None:
        say(f"{quoted(pair[0])} and {quoted(pair[1])} are the same number, but different classes")
    if len(labels) < 2:
        raise DataError(f"all targets are {quoted(labels[0])}: at least two classes are needed")
    if len(labels) > 100:
        raise DataError(f"the target has {len(labels)} classes; try --task regression")
    if counts.min() < 2:
        rare = labels[np.argmin(counts)]
        raise DataError(
            f"the class {quoted(rare)} has only one row: remove the row, or merge it with another class"
        )
    return np.array(cells)


def as_targets(target: str, cells: Sequence[str], rows: Sequence[int]) -> np.ndarray:
    """The targets of a regression."""
    y = np.array(as_numbers(f"the target {target!r}", cells, rows), float)
    if y.min() == y.max():
        raise DataError(f"the target {target!r} is constant: there is nothing to learn")
    return y
