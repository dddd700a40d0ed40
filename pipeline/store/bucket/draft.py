"""A version in the making whose store is in a bucket. It is written to the version's own directory in the
cache, which readers ignore until it has a manifest.
"""

import logging
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.store.bucket.mirror import THREADS, Mirror
from pipeline.store.draft import RECORDS, Draft, Versions
from pipeline.store.files import MANIFEST
from pipeline.store.manifest import Part, Version, manifest_text, read_version
from pipeline.store.work import Work
from trainer.system.durable import write_atomically

log = logging.getLogger(__name__)

COPIED_AT_MOST = 5_000_000_000  # bytes, by S3


class BucketDraft(Draft):
    """Files and records of finished parts are in the bucket, unseen until the manifest is."""

    def __init__(self, store: Versions, work: Work):
        super().__init__(store, work)
        self._mirror.check()
        records = self.path / RECORDS
        shutil.rmtree(records, ignore_errors=True)
        found = self._mirror.bucket.objects(f"{self._mirror.key(records)}/")
        self._mirror.pull_all([self._mirror.root / one.key for one in found])

    @property
    def _mirror(self) -> Mirror:
        assert isinstance(self.store.files, Mirror)
        return self.store.files

    def _directory(self) -> Path:
        return self.store.directory(self.work.key) / self.work.name

    def _is_sound(self, part: Part, directory: Path) -> bool:
        """Whether the bucket has the files of a part."""
        if directory != self.path:
            return all(file.bytes <= COPIED_AT_MOST for file in part.files.values())
        files = part.files.values()
        return all(self._mirror.holds(directory / file.path, file.sha256) for file in files)

    def _take(self, source: Path, target: Path) -> None:
        self._mirror.bucket.copy(self._mirror.key(source), self._mirror.key(target))
        with suppress(FileNotFoundError):  # it is not in the cache
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            os.link(source, target)

    def keep(self, part: Part) -> None:
        self._put_files(part)
        super().keep(part)
        self._mirror.push(self._record(part.name))

    def _put_files(self, part: Part) -> None:
        for file in part.files.values():
            self._mirror.put_file(self.path, file.path, file.sha256)

    def forget(self, part: Part) -> None:
        super().forget(part)
        self._mirror.bucket.delete([self._mirror.key(self._record(part.name))])

    def _published(self, parts: Sequence[Part], manifest: dict[str, Any]) -> Version:
        self._remove_strays(parts)
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(self._put_files, parts))
        version = Version(self.work.key, self.path, manifest, self.store.files)
        content = manifest_text(manifest)
        if self._mirror.publish(self.path, content):
            write_atomically(self.path / MANIFEST, content)
        else:
            version = self._of_another_run(version, content)
        self._mirror.bucket.delete(
            [one.key for one in self._mirror.bucket.objects(f"{self._mirror.key(self.path / RECORDS)}/")]
        )
        shutil.rmtree(self.path / RECORDS, ignore_errors=True)
        return version

    def _of_another_run(self, ours: Version, content: str) -> Version:
        """The version that was published while this one was made, or ours in place of a damaged manifest."""
        etag = self._mirror.pull(self.path / MANIFEST)
        try:
            theirs = read_version(self.work.key, self.path, self.store.files)
        except (OSError, ValueError):
            write_atomically(self.path / MANIFEST, content)
            self._mirror.push(self.path / MANIFEST, etag)
            return ours
        log.info("%s: another run has published it meanwhile, and this run uses that", self.work.key)
        written = {file.path: file.sha256 for part in ours.parts for file in part.files.values()}
        for file in (file for part in theirs.parts for file in part.files.values()):
            if written.get(file.path) != file.sha256:
                self._mirror.drop(self.path / file.path)
        return replace(theirs, reused=True)
