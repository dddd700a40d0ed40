"""Raw documents that a store holds: what a corpus was, whatever has become of its source."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from pipeline.sources.source import Rejects, Unit
from pipeline.store.keys import Key
from pipeline.store.manifest import Part, Version
from pipeline.store.params import Params
from pipeline.store.parquet import batches
from pipeline.store.versions import Versions


class StoredConfig(Params):
    """Raw documents of a store in one version. `python -m pipeline reproduce` names them for a corpus whose
    source has changed.
    """

    kind: Literal["stored"] = "stored"
    """Selects this source."""
    path: str = Field(min_length=1)
    """Absolute path of the directory of the version."""


@dataclass(frozen=True)
class StoredSource:
    """One unit: the version."""

    corpus: str
    config: StoredConfig
    version: ClassVar[str] = "stored-1"

    def units(self) -> list[Unit]:
        """Raises StoreError when the version is gone or incomplete."""
        stored = self._stored()
        return [Unit("stored", stored.data_version, stored.bytes)]

    def read(self, unit: Unit, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        for path in self._stored().files("documents"):
            yield from batches(path)

    def copy_to(self, directory: Path) -> list[Part]:
        """Copies every file, so that what follows is the same to the byte. Raises DamageError."""
        stored = self._stored()
        self._store.check(stored)
        shutil.copytree(
            stored.directory(), directory, ignore=shutil.ignore_patterns("manifest.json"), dirs_exist_ok=True
        )
        return stored.parts

    @property
    def _store(self) -> Versions:
        """The version lies at corpora/<name>/<stage>/<version> in it."""
        return Versions(Path(self.config.path).parents[3])

    def _stored(self) -> Version:
        path = Path(self.config.path)
        return self._store.open(Key.from_path("/".join(path.parts[-4:-1])), path.name)
