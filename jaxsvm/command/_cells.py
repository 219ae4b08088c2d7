"""Cells of a table: which are numbers, which are missing, and what a spreadsheet makes of them."""

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation

import numpy as np

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
_LARGEST = 1e100  # number in a cell: the squares of larger ones may overflow
_LONGEST = 1000  # characters of a class
_SHORT = 60  # characters of a cell in messages
_DIGITS = 15  # that double precision keeps of every number
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_COMMA = re.compile(r"[+-]?\d+(,\d+)+", re.ASCII)
# with which a formula may begin, the full-width forms included
_FORMULA = "=+-@\t\r\uff1d\uff0b\uff0d\uff20"


class DataError(Exception):
    """Data that cannot be used; the message says why."""


def is_missing(cell: str) -> bool:
    """Whether the cell stands for a value that is not known."""
    return cell.lower() in MISSING


def is_blank(cell: str) -> bool:
    """Whether the cell has no value in a column of numbers, where a dash stands for none."""
    return cell == "-" or is_missing(cell)


def as_number(cell: str) -> float | None:
    """The number in a cell as a person would write one, infinite if it is too large; None for text.

    Python itself would also accept `1_000`, `infinity` and the digits of every script.
    """
    plain = cell.replace("\u2212", "-", 1)  # the minus sign of typesetters
    return float(plain) if _NUMBER.fullmatch(plain) else None


def is_numeric(cells: Sequence[str]) -> bool:
    """Whether all cells of a column that have a value are numbers, and some have one."""
    known = [as_number(cell) for cell in cells if not is_blank(cell)]
    return bool(known) and None not in known


def as_numbers(what: str, cells: Sequence[str], rows: Iterable[int]) -> list[float | None]:
    """The numbers in the cells of a column, None where one is missing.

    **Arguments:** `what`, how errors name the column; `cells`; `rows`, their numbers in the file.
    """
    numbers = [as_number(cell) for cell in cells]
    for row, cell, number in zip(rows, cells, numbers, strict=True):
        if number is None and not is_blank(cell):
            refuse_commas(what, cells)
            raise DataError(
                f"{what} holds {quoted(cell)} in row {row}, which is not a number: correct the cell, or "
                "empty it if the value is missing"
            )
        if number is not None and abs(number) > _LARGEST:
            raise DataError(
                f"{what} holds {quoted(cell)[1:-1]} in row {row}: numbers beyond {_LARGEST:g} cannot be "
                "computed with; change the unit, or empty the cell if the value is missing"
            )
    return numbers


def refuse_commas(what: str, cells: Sequence[str]) -> None:
    """Raise where a column would hold numbers but for commas in them, which may mean two things."""
    known = [cell for cell in cells if not is_blank(cell)]
    commas = [cell for cell in known if _COMMA.fullmatch(cell)]
    if commas and all(_COMMA.fullmatch(cell) or as_number(cell) is not None for cell in known):
        raise DataError(
            f"{what} holds numbers with commas, such as {quoted(commas[0])}: write a decimal point, as in "
            "'1.5', and no separator of thousands; or leave the column out (`jaxsvm tune --ignore`)"
        )


def odd_cell(cells: Sequence[str], rows: Iterable[int]) -> tuple[int, str] | None:
    """The first row, and its text, of a column that holds numbers in most rows; None for other columns."""
    known = [(row, cell) for row, cell in zip(rows, cells, strict=True) if not is_blank(cell)]
    odd = [(row, cell) for row, cell in known if as_number(cell) is None]
    return odd[0] if odd and 2 * len(odd) < len(known) else None


def rounded(cells: Sequence[str]) -> tuple[str, str] | None:
    """Two cells whose numbers differ, but not in double precision; None if there are no such cells."""
    seen: dict[float, str] = {}
    for cell in set(cells):
        number = as_number(cell) if len(cell) > _DIGITS else None
        if number is None:
            continue
        other = seen.setdefault(number, cell)
        if _decimal(other) != _decimal(cell):
            first, second = sorted((other, cell))
            return first, second
    return None


def as_labels(cells: Sequence[str]) -> np.ndarray:
    """Labels of classes, each with the text it has in the table."""
    longest = max(map(len, cells))
    if longest > _LONGEST:
        raise DataError(f"the target holds a text of {longest} characters, which is not a class")
    return np.array(cells)


def same_numbers(labels: Iterable[str]) -> tuple[str, str] | None:
    """Two labels that are the same number, such as 7 and 007; None if there are no such labels."""
    seen: dict[Decimal | str, str] = {}
    for label in labels:
        if as_number(label) is None:
            continue
        other = seen.setdefault(_decimal(label), label)
        if other != label:
            return other, label
    return None


def escaped(text: str) -> str:
    """The text with an apostrophe before it, if a spreadsheet would take it for a formula.

    Numbers such as `-1` stay, and so do single characters. An apostrophe that is followed by a formula gets
    another one, so that different texts stay different.
    """
    bare = text.lstrip("'")
    is_formula = len(bare) > 1 and bare[0] in _FORMULA and as_number(bare) is None
    return f"'{text}" if is_formula else text


def quoted(text: str) -> str:
    """The text in quotation marks, cut short, for messages."""
    return repr(text if len(text) <= _SHORT else text[: _SHORT - 3] + "...")


def shown(text: str) -> str:
    """The text as it can be printed on one line, with escapes for all that is not printable."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _decimal(cell: str) -> Decimal | str:
    """The exact number in a cell; the text itself where its exponent is beyond all reason."""
    try:
        return Decimal(cell.replace("\u2212", "-", 1))
    except InvalidOperation:
        return cell
