"""Reading tables: CSV files, and the numbers and missing values in their cells."""

import contextlib
import csv
import itertools
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple

from ..persistence import FileError
from ..runtime import host_memory

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
_ROWS = 10_000  # that are read before they are packed
_BETWEEN = "\0"  # packed cells; no cell holds it
_BYTES = 16  # for each cell as an input: two matrices of double precision
_MAX_NUMBER = 1e100  # the squares of larger numbers may overflow
_MAX_QUOTED = 60  # characters of a cell in messages
_DIGITS = 15  # that double precision keeps of every number
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_NUMBERS = re.compile(f"(?>{_NUMBER.pattern}{_BETWEEN})*+", _NUMBER.flags)
_COMMA = re.compile(r"[+-]?\d+(,\d+)+", re.ASCII)


class DataError(Exception):
    """Data that cannot be used; the message says why."""


@contextlib.contextmanager
def as_data_errors():
    """Turn errors of values and memory into a `DataError`, but leave errors of files alone."""
    try:
        yield
    except FileError:
        raise
    except (ValueError, MemoryError) as error:
        raise DataError(str(error) or "there is not enough memory") from error


def say(text: str) -> None:
    """Print a message for the user to standard error."""
    print(f"jaxsvm: {text}", file=sys.stderr)


class Table(NamedTuple):
    """The cells of a file as text: column names, the packed cells of each column, and the row numbers.

    Millions of cells take many times less memory in a few long texts than as Python objects.
    """

    names: list[str]
    columns: list[list[bytes]]  # of each column, the cells of some thousand rows at a time
    numbers: Sequence[int]  # of the rows in the file, from 1 on

    def column(self, name: str) -> list[str]:
        """The cells of one column."""
        parts = self.columns[self.names.index(name)]
        return [cell for part in parts for cell in part.decode().split(_BETWEEN)]

    def of_rows(self, rows: Sequence[int]) -> "Table":
        """The table of some of the rows, by their indices."""
        if len(rows) == len(self.numbers):
            return self
        columns = []
        for name in self.names:
            cells = self.column(name)
            columns.append(
                [
                    _packed([cells[row] for row in rows[begin : begin + _ROWS]])
                    for begin in range(0, len(rows), _ROWS)
                ]
            )
        return Table(self.names, columns, [self.numbers[row] for row in rows])


def _packed(cells: Iterable[str]) -> bytes:
    return _BETWEEN.join(cells).encode()


# ---------------------------------------------------------------------------- files


def read(path: Path) -> Table:
    """The table in a CSV file, whose first line holds the column names.

    The separator is the comma, semicolon or tab, whichever occurs most often in the first line.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            _refuse_devices(path, file.fileno())
            first = file.readline()
            if not first.strip():
                raise DataError(f"{path} is empty: the first line must hold the column names")
            separator = max(",;\t", key=first.count)
            # chained, since a pipe cannot be read twice
            lines = itertools.chain([first], file)
            return _table(path, csv.reader(lines, delimiter=separator, strict=True))
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}") from error
    except IsADirectoryError as error:
        raise DataError(f"{path} is a folder, not a file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as a text table: {error}") from error
    except (OSError, ValueError) as error:  # no permission, a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{str(path)!r} cannot be read: {reason}") from error


def _refuse_devices(path: Path, descriptor: int) -> None:
    """Raise for devices, which may be endless; terminals are not."""
    if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):
        raise DataError(f"{path} is a device: use a file or a pipe")


def _table(path: Path, lines) -> Table:
    names = [name.strip() for name in next(lines)]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DataError(f"{path} has more than one column named {repeated[0]!r}")
    columns: list[list[bytes]] = [[] for _ in names]
    rows, numbers = [], []

    def pack_rows():
        for column, cells in zip(columns, zip(*rows, strict=True), strict=True):
            column.append(_packed(cells))
        rows.clear()
        _require_memory(path, len(numbers), len(names))

    for number, row in enumerate(lines, start=1):
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(names):
            raise DataError(
                f"line {lines.line_num} of {path} has {len(row)} cells, but there are {len(names)} columns"
            )
        if any("\0" in cell for cell in row):
            raise DataError(
                f"line {lines.line_num} of {path} holds a NUL character: save the table as UTF-8 text"
            )
        numbers.append(number)
        rows.append([cell.strip() for cell in row])
        if len(rows) == _ROWS:
            pack_rows()
    if not numbers:
        raise DataError(f"{path} has no rows below the column names")
    if rows:
        pack_rows()
    return Table(names, columns, numbers)


def _require_memory(path: Path, rows: int, columns: int) -> None:
    needed, free = _BYTES * rows * columns, host_memory()
    if free is not None and needed > free:
        raise DataError(
            f"{path} is too large: the first {rows} rows as numbers need {needed / 1e9:.1f} GB, but only "
            f"{free / 1e9:.1f} GB of memory are free. Use a part of the rows or columns"
        )


# ---------------------------------------------------------------------------- cells


def is_missing(cell: str) -> bool:
    """Whether the cell stands for a missing value."""
    return cell.lower() in MISSING


def is_blank(cell: str) -> bool:
    """Whether the cell stands for a missing number, for which a dash is also used."""
    return cell == "-" or is_missing(cell)


def as_number(cell: str) -> float | None:
    """The number in a cell, infinite if it is too large; None for text.

    Unlike `float`, it does not accept `1_000`, `infinity` and digits of other scripts.
    """
    ascii_cell = cell.replace("\u2212", "-", 1)  # the typographic minus sign
    return float(ascii_cell) if _NUMBER.fullmatch(ascii_cell) else None


def numbers_in(cells: Sequence[str]) -> list[float | None]:
    """`as_number` of each cell; much faster where thousands of cells in a row are numbers."""
    numbers: list[float | None] = []
    for begin in range(0, len(cells), _ROWS):
        some = cells[begin : begin + _ROWS]
        are_numbers = _NUMBERS.fullmatch(_BETWEEN.join([*some, ""])) is not None
        numbers += map(float if are_numbers else as_number, some)
    return numbers


def is_numeric(cells: Sequence[str]) -> bool:
    """Whether a column holds numbers: it has some, and all other cells are blank."""
    numbers = numbers_in(cells)
    texts = (cell for cell, number in zip(cells, numbers, strict=True) if number is None)
    return any(number is not None for number in numbers) and all(map(is_blank, texts))


def as_numbers(what: str, cells: Sequence[str], rows: Iterable[int]) -> list[float | None]:
    """The numbers in the cells of a column, None where one is missing.

    **Arguments:** `what`, the name of the column in error messages; `cells`; `rows`, their numbers in the
    file.
    """
    numbers = numbers_in(cells)
    for row, cell, number in zip(rows, cells, numbers, strict=True):
        if number is None and not is_blank(cell):
            refuse_commas(what, cells)
            raise DataError(
                f"{what} holds {quoted(cell)} in row {row}, which is not a number: correct the cell, or "
                "empty it if the value is missing"
            )
        if number is not None and abs(number) > _MAX_NUMBER:
            raise DataError(
                f"{what} holds {quoted(cell)[1:-1]} in row {row}: numbers beyond {_MAX_NUMBER:g} are not "
                "supported; change the unit, or empty the cell if the value is missing"
            )
    return numbers


def refuse_commas(what: str, cells: Sequence[str]) -> None:
    """Raise if a column would be numeric but for commas, which could be decimal or separate thousands."""
    filled = [cell for cell in cells if not is_blank(cell)]
    commas = [cell for cell in filled if _COMMA.fullmatch(cell)]
    if commas and all(_COMMA.fullmatch(cell) or as_number(cell) is not None for cell in filled):
        raise DataError(
            f"{what} holds numbers with commas, such as {quoted(commas[0])}: write decimals with a point, as "
            "in '1.5', and thousands without a separator; or leave the column out (`jaxsvm tune --ignore`)"
        )


def text_among_numbers(cells: Sequence[str], rows: Iterable[int]) -> tuple[int, str] | None:
    """The row and text of the first cell that is not a number, if most cells are; None otherwise."""
    filled = [(row, cell) for row, cell in zip(rows, cells, strict=True) if not is_blank(cell)]
    texts = [(row, cell) for row, cell in filled if as_number(cell) is None]
    return texts[0] if texts and 2 * len(texts) < len(filled) else None


def equal_when_rounded(cells: Sequence[str]) -> tuple[str, str] | None:
    """Two cells with different numbers that are equal in double precision; None if there are none."""
    first_with: dict[float, str] = {}
    for cell in set(cells):
        number = as_number(cell) if len(cell) > _DIGITS else None
        if number is None:
            continue
        earlier = first_with.setdefault(number, cell)
        if _decimal(earlier) != _decimal(cell):
            low, high = sorted((earlier, cell))
            return low, high
    return None


def same_number(labels: Iterable[str]) -> tuple[str, str] | None:
    """Two labels that are the same number, such as 7 and 007; None if there are none."""
    first_with: dict[Decimal | str, str] = {}
    for label in labels:
        if as_number(label) is None:
            continue
        earlier = first_with.setdefault(_decimal(label), label)
        if earlier != label:
            return earlier, label
    return None


def quoted(text: str) -> str:
    """The text in quotation marks, shortened, for messages."""
    return repr(text if len(text) <= _MAX_QUOTED else text[: _MAX_QUOTED - 3] + "...")


def printable(text: str) -> str:
    """The text on one line, with escapes for characters that are not printable."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _decimal(cell: str) -> Decimal | str:
    """The exact number in a cell; the text itself if its exponent is out of range."""
    try:
        return Decimal(cell.replace("\u2212", "-", 1))
    except InvalidOperation:
        return cell
