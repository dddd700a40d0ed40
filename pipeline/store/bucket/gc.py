"""What lies in the bucket of a store, for garbage collection and verification. Nobody else lists it."""

import re
import time
from pathlib import Path

from pipeline.store.bucket.claims import pull_runs
from pipeline.store.bucket.mirror import Mirror
from pipeline.store.files import MANIFEST
from pipeline.store.keys import RECIPES, RUNS

VERSION = re.compile(r"[0-9a-f]{16}")
# Another machine may use what nothing names yet, and no lock tells.
YOUNG_SECONDS = 24 * 3600.0


def old_versions(mirror: Mirror) -> dict[Path, int]:
    """As `Files.versions`. Needs a listing of everything."""
    root = mirror.root
    found: dict[Path, tuple[int, int]] = {}
    wanted: dict[Path, str] = {}
    for one in mirror.bucket.objects(""):
        path = root / one.key
        version = next((parent for parent in path.parents if VERSION.fullmatch(parent.name)), None)
        if version is None or one.key.startswith((f"{RUNS}/", f"{RECIPES}/")):
            continue
        size, newest = found.get(version, (0, 0))
        found[version] = size + one.bytes, max(newest, one.modified)
        if path.name in (MANIFEST, "lineage.json"):
            wanted[path] = one.etag
    for path in root.rglob(MANIFEST):
        if VERSION.fullmatch(path.parent.name) and path.parent not in found:
            path.unlink()
    mirror.pull_all([path for path, etag in wanted.items() if mirror.differs(path, etag)])
    pull_runs(mirror)
    before = (time.time() - YOUNG_SECONDS) * 1e9
    return {version: size for version, (size, newest) in found.items() if newest < before}


def abort_old_uploads(mirror: Mirror) -> int:
    """Aborts uploads in slices whose process was killed. Returns how many."""
    before = time.time() - YOUNG_SECONDS
    old = [(key, upload) for key, upload, begun in mirror.bucket.unfinished() if begun < before]
    for key, upload in old:
        mirror.bucket.abort(key, upload)
    return len(old)
