"""Check that type checkers know the type of every public symbol: `python check_types.py`."""

import json
import subprocess

# pyright does not infer types of packages without annotations: base classes of scikit-learn are unknown to it
EXCEPTIONS = ("jaxsvm.sklearn.",)


def unknown_symbols() -> tuple[list[str], int]:
    """The public symbols whose type is unknown or depends on the type checker, and the number of all."""
    command = ["pyright", "--verifytypes", "jaxsvm", "--ignoreexternal", "--outputjson"]
    answer = subprocess.run(command, capture_output=True, text=True)
    report = json.loads(answer.stdout)["typeCompleteness"]
    public = [symbol for symbol in report["symbols"] if symbol["isExported"]]
    assert len(public) > 400, f"pyright sees only {len(public)} symbols: {answer.stderr}"
    return [s["name"] for s in public if not s["isTypeKnown"] or s["isTypeAmbiguous"]], len(public)


if __name__ == "__main__":
    unknown, count = unknown_symbols()
    unexpected = [name for name in unknown if not name.startswith(EXCEPTIONS)]
    assert not unexpected, (
        f"annotate these, as `pyright --verifytypes jaxsvm` explains: {unexpected}"
    )
    print(
        f"{count - len(unknown)} of {count} public symbols have a known type; the others: {unknown}"
    )
