"""Some cases of each area of `fuzz_files`."""

import pytest

pytest.importorskip("sklearn")

import fuzz_files

CASES = 60


@pytest.mark.parametrize("area", fuzz_files.AREAS)
def test_no_case_fails(area):
    failures = fuzz_files.run(area, CASES)
    assert not failures, f"{len(failures)} of {CASES} failed; the first: {failures[0]}"
