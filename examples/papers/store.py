"""Results saved as they are computed, so that a long run can be interrupted and resumed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxsvm.persistence import write_whole


class Store:
    """A JSON file with one record for each key; saved records are not computed again.

    Without a path nothing is saved.
    """

    def __init__(self, path: Path | None, about: str):
        self.path = path
        self.content: dict[str, Any] = {"about": about, "records": {}}
        if self.path is not None and self.path.exists():
            self.content = json.loads(self.path.read_text())
        self.records: dict[str, Any] = self.content["records"]

    def compute(self, key: str, function: Callable[[], Any]) -> dict[str, Any]:
        """Return the saved record of a key, or compute it with `function()` and save it."""
        if key not in self.records:
            self.records[key] = function()
            self.save()
        return self.records[key]

    def save(self) -> None:
        """Write the whole file."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        ordered = {key: self.records[key] for key in sorted(self.records)}
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in ordered.items()]
        about = json.dumps(self.content["about"])
        text = '{"about": ' + about + ',\n "records": {\n' + ",\n".join(lines) + "\n }}\n"
        write_whole(self.path, text.encode())
