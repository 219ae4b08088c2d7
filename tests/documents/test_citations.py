"""Docstrings cite every implemented equation of the papers, so that a search for it finds the code."""

import re
from pathlib import Path

import pytest

import jaxsvm as jsvm

PACKAGE = Path(__file__).parents[2] / "jaxsvm"
# the implemented equations of each paper, in the form in which docstrings cite them
IMPLEMENTED = {
    "GS03": "3-23",
    "GS05": "14-21",
    "CKO04": "10-15, 29, 37-41, 43-44",
    "OW00": "8.16, 8.26-8.42",
    "CT07": "1, 7-15",
}
CITATION = re.compile(r"\b([A-Z]+\d\d)\b|\beqs?\. (\d[\d.]*(?:(?:-|, | and )\d[\d.]*)*)")


def numbers(text):
    """The equations that a text such as `7-9, 12 and 15` names; `8.26-8.28` names three."""
    for part in re.split(r", | and ", text):
        first, _, last = (end.strip(".") for end in part.partition("-"))
        chapter, _, number = first.rpartition(".")
        for n in range(int(number), int((last or first).rpartition(".")[2]) + 1):
            yield f"{chapter}.{n}" if chapter else str(n)


def cited():
    """The equations that each file cites, by paper: a number without a key belongs to the last key."""
    found = {key: {} for key in IMPLEMENTED}
    for file in sorted(PACKAGE.rglob("*.py")):
        key = None
        for named, equations in CITATION.findall(" ".join(file.read_text().split())):
            key = (named if named in IMPLEMENTED else key) if named else key
            for number in numbers(equations) if equations and key else ():
                found[key].setdefault(number, set()).add(file.name)
    return found


@pytest.mark.parametrize("paper", IMPLEMENTED)
def test_every_equation_is_cited(paper):
    missing = set(numbers(IMPLEMENTED[paper])) - set(cited()[paper])
    assert not missing, f"no docstring cites these equations of {paper}: {sorted(missing)}"


def test_the_keys_are_those_of_the_package():
    assert set(re.findall(r"^- (\w+):", jsvm.__doc__ or "", re.MULTILINE)) == set(IMPLEMENTED)


def test_ranges_are_expanded():
    assert list(numbers("8.26-8.28, 8.40")) == ["8.26", "8.27", "8.28", "8.40"]
    assert list(numbers("3 and 7-9")) == ["3", "7", "8", "9"]
