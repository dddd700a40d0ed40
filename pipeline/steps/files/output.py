"""The result files of a command on plain files: under their names only when whole."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from pipeline.store.atomic import OutputError, output_errors
from trainer.system.durable import sync

PART = "part"
REJECTS = "rejects"


@dataclass
class Publishing:
    """Tables are written as `<directory>/<table>/part.parquet`; `files` lists what was published in the
    end.
    """

    directory: Path
    files: list[Path] = field(default_factory=list)


@contextmanager
def published(out: Path, tables: Sequence[str]) -> Iterator[Publishing]:
    """A directory to write tables to: on a clean exit they are renamed to `<out>/<table>.parquet` (`rejects`
    only if it has rows), else dropped.

    Raises OutputError when `out` holds one of them already or cannot be written.
    """
    targets = {table: out / f"{table}.parquet" for table in tables}
    there = [path.name for path in targets.values() if path.exists()]
    if there:
        raise OutputError(
            f"{out} already holds {', '.join(there)}: name another directory, or delete what is there"
        )
    # What cannot be read is set aside, so an OSError is about writing.
    with output_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=out) as directory:
            publishing = Publishing(Path(directory))
            yield publishing
            for table, target in targets.items():
                written = publishing.directory / table / f"{PART}.parquet"
                if table != REJECTS or pq.read_metadata(written).num_rows:
                    publishing.files.append(written.rename(target))
            sync(out)
