"""Check what the wheel and the source distribution in a folder hold: `python check_distributions.py dist`."""

import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "CITATION.cff"}


def check(folder: Path) -> None:
    """Raise an error unless the folder has one wheel and one source distribution, both complete."""
    (wheel,), (source,) = list(folder.glob("*.whl")), list(folder.glob("*.tar.gz"))
    package = {str(f.relative_to(ROOT)) for f in ROOT.glob("jaxsvm/**/*.py")} | {"jaxsvm/py.typed"}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    files = {name for name in names if not name.partition("/")[0].endswith(".dist-info")}
    assert files == package, f"the wheel differs from the package: {sorted(files ^ package)}"
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    tests = {str(f.relative_to(ROOT)) for f in ROOT.glob("tests/**/*.py")}
    guides = {str(f.relative_to(ROOT)) for f in ROOT.glob("docs/*.md")}
    missing = (package | tests | guides | DOCUMENTS) - inside
    assert not missing, f"the source distribution lacks {sorted(missing)}"
    print(f"{wheel.name}: {len(files)} files; {source.name}: {len(inside)} files")


if __name__ == "__main__":
    check(Path(sys.argv[1]))
