"""What an exported directory was made from: `export.json` in it."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from pipeline.store.manifest import Version


def record(directory: Path, chosen: str, versions: Iterable[Version], counts: Mapping[str, int]) -> None:
    """Writes `export.json`: the format, what was counted, and the data version of everything that was
    read.
    """
    made_from = {version.key: version.data_version for version in versions}
    facts = {"format": chosen, "counts": counts, "made_from": made_from}
    (directory / "export.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
