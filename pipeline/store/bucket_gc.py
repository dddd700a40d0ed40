"""What lies in the bucket of a store, for garbage collection and verification. Nobody else lists it."""

import re
import time
from dataclasses import dataclass
from pathlib import Path

from pipeline.store.bucket_runs import bring_names
from pipeline.store.last_versions import RECIPES
from pipeline.store.mirror import MANIFEST, Mirror, of

VERSION = re.compile(r"[0-9a-f]{16}")
# Another machine may use what nothing names yet, and no lock tells.
YOUNG_SECONDS = 24 * 3600.0


@dataclass
class Group:
    """The objects of a version, complete or not. `newest`: nanoseconds since 1970."""

    bytes: int = 0
    newest: int = 0

    @property
    def is_young(self) -> bool:
        return time.time() - self.newest / 1e9 < YOUNG_SECONDS


def bring(root: Path) -> dict[Path, Group]:
    """The versions in the bucket, by their directory. Brings the manifests of all of them, the lineage of
    exports, and the small files of training runs. Empty for a store that is just a directory.
    """
    mirror = of(root)
    if mirror is None:
        return {}
    groups: dict[Path, Group] = {}
    wanted: dict[Path, str] = {}
    for one in mirror.bucket.objects(""):
        path = root / one.key
        version = next((parent for parent in path.parents if VERSION.fullmatch(parent.name)), None)
        if version is None or one.key.startswith(("runs/", f"{RECIPES}/")):
            continue
        group = groups.setdefault(version, Group())
        group.bytes += one.bytes
        group.newest = max(group.newest, one.modified)
        if path.name in (MANIFEST, "lineage.json"):
            wanted[path] = one.etag
    _forget_removed(root, groups)
    mirror.pull_all([path for path, etag in wanted.items() if mirror.differs(path, etag)])
    bring_names(root)
    return groups


def _forget_removed(root: Path, groups: dict[Path, Group]) -> None:
    for path in root.rglob(MANIFEST):
        if VERSION.fullmatch(path.parent.name) and path.parent not in groups:
            path.unlink()


def abort_old_uploads(mirror: Mirror) -> int:
    """Aborts uploads in slices whose process was killed. Returns how many."""
    before = time.time() - YOUNG_SECONDS
    old = [(key, upload) for key, upload, begun in mirror.bucket.unfinished() if begun < before]
    for key, upload in old:
        mirror.bucket.abort(key, upload)
    return len(old)
