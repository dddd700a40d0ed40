"""Files read as a corpus reads them."""

from pathlib import Path
from typing import Any

from pipeline.sources import open_source
from pipeline.sources.files import FilesConfig
from pipeline.sources.listing import Paths
from pipeline.sources.source import Rejected

Row = dict[str, Any]


def documents_and_rejects(
    *paths: Path | str, kind: type[Paths] = FilesConfig, **config: Any
) -> tuple[list[Row], list[Rejected]]:
    source = open_source("c", kind(paths=tuple(map(str, paths)), **config))
    rejects: list[Rejected] = []
    batches = [batch for unit in source.units() for batch in source.read(unit, rejects)]
    return [row for batch in batches for row in batch.to_pylist()], rejects


def read(*paths: Path | str, **config: Any) -> tuple[list[Row], list[tuple[int | None, str]]]:
    """The documents, and row and reason of what was set aside."""
    rows, rejects = documents_and_rejects(*paths, **config)
    return rows, [(reject.row, str(reject.reason)) for reject in rejects]
