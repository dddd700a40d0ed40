"""What an exported directory was made from: `export.json` in it."""

import json
from collections.abc import Mapping
from pathlib import Path


def record(directory: Path, chosen: str, made_from: Mapping[str, str], counts: Mapping[str, int]) -> None:
    """Writes `export.json`: the format, what was counted, the data version of all that was read."""
    facts = {"format": chosen, "counts": counts, "made_from": made_from}
    (directory / "export.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
