"""What a person can show of a removal: what was asked, found and deleted, as JSON and as a page.

<root>/removed/<request>/certificate.json and certificate.html
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from html import escape
from pathlib import Path
from typing import Any

from pipeline.steps.lineage.readers import Reading
from pipeline.store.cleanup.forgotten import Holding
from pipeline.store.keys import REMOVED
from pipeline.store.removed import Request, now
from pipeline.store.store import Store
from trainer.system.durable import write_atomically

CERTIFICATE = "certificate.json"
UNREACHED = (
    "the source itself, which still holds what it holds",
    "models that were pushed, and exports and files that were written or copied to other places",
    "unfinished work and caches of other machines, backups, and old versions that a bucket keeps",
    "events of a Dagster that keeps them elsewhere than in DAGSTER_HOME",
)
FROZEN = "stays: it is frozen, and holds statistics of the text that it was trained on, but none of the text"


def begin(store: Store, folder: Path, request: Request, read: Sequence[Reading], held: Holding) -> None:
    """Says what was asked and what was found, before anything is deleted."""
    facts = {
        "asked": request.at,
        "reason": request.reason,
        "documents": {corpus: len(ids) for corpus, ids in request.documents.items()},
        "tokenizer": "is trained again" if request.retrain_tokenizer else FROZEN,
        "read by": [asdict(replace(one, fates={})) for one in read if one.steps != 0],  # ids are forgotten
        "versions before": {f"{one.key}/{one.path.name}": one.data_version for one in held.versions},
        "runs before": [run.directory.name for run in held.runs],
    }
    _write(store, folder, facts)


def finish(store: Store, deleted: Holding, events: Sequence[str], left: Holding) -> list[Path]:
    """Says on each certificate what was deleted since, and what there is instead. Returns the pages."""
    pages = []
    for path in sorted((store.root / REMOVED).glob(f"*/{CERTIFICATE}")):
        facts = json.loads(path.read_text(encoding="utf-8"))
        found = {f"{one.key}/{one.path.name}" for one in left.versions}
        names = sorted(facts["versions before"].keys() - found)
        runs = sorted({*facts["runs before"]} - {run.directory.name for run in left.runs})
        before = sorted({place.rpartition("/")[0] for place in facts["versions before"]})
        after = {key: next(store.newest_first(key), None) for key in before}
        facts |= {
            "deleted": {"at": now(), "versions": names, "runs": runs, "runs of Dagster": len(events)},
            "versions after": {key: one.data_version for key, one in after.items() if one},
            "still found by their ids": sorted(found),
            "trace": "still finds them" if found else "finds none: no shards or index were made of them",
            "not reached": UNREACHED,
        }
        pages.append(_write(store, path.parent, facts))
    return pages


def _write(store: Store, folder: Path, facts: Mapping[str, Any]) -> Path:
    """Returns the page."""
    rows = "".join(f"<tr><th>{escape(name)}<td>{_cell(value)}" for name, value in facts.items())
    style = "body{font:14px sans-serif}th{text-align:left;vertical-align:top}pre{margin:0}"
    head = f"<!doctype html><meta charset=utf-8><title>Removal</title><style>{style}</style>"
    page = f"{head}<table>{rows}</table>"
    for name, text in ((CERTIFICATE, json.dumps(facts, indent=1)), ("certificate.html", page)):
        write_atomically(folder / name, text)
        store.files.push(folder / name)
    return folder / "certificate.html"


def _cell(value: Any) -> str:
    return f"<pre>{escape(value if isinstance(value, str) else json.dumps(value, indent=1))}</pre>"
