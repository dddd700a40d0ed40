"""What a person can show of a request to forget: what was asked for, found and deleted, as JSON and as a
page.

<root>/forgotten/<request>/certificate.json and certificate.html
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from pipeline.steps.forget.copies import Copy
from pipeline.steps.lineage.readers import Reading
from pipeline.store.cleanup.holding_forgotten import Holding
from pipeline.store.forgotten import Request, now
from pipeline.store.keys import FORGOTTEN
from pipeline.store.store import Store
from trainer.system.durable import read_json, write_atomically
from trainer.system.wording import counted

CERTIFICATE = "certificate.json"
PAGE = "certificate.html"
UNREACHED = (
    "the source itself, which still holds what it holds",
    "models that were pushed, and exports and files that were written or copied to other places",
    "unfinished work and caches of other machines, backups, and old versions that a bucket keeps",
    "events of a Dagster that keeps them elsewhere than in DAGSTER_HOME",
)
DAY = len("2025-07-24")  # of a time
FROZEN = "stays: it is frozen, and holds statistics of the text that it was trained on, but none of the text"


def begin(
    folder: Path, request: Request, read: Sequence[Reading], held: Holding, copied: Sequence[Copy]
) -> None:
    """Writes into a folder what was asked for and what was found, before anything is deleted."""
    by_place: dict[str, dict[str, int]] = defaultdict(Counter)
    for one in copied:
        by_place[one.place][one.what] += 1
    facts = {
        "asked": request.at,
        "reason": request.reason,
        "documents": {corpus: len(ids) for corpus, ids in request.documents.items()},
        "tokenizer": "is trained again" if request.retrain_tokenizer else FROZEN,
        # without `fates`, which have ids
        "read by": [
            {name: value for name, value in vars(one).items() if name != "fates"}
            for one in read
            if one.steps != 0
        ],
        "copies under other ids": by_place,  # how many, without the ids, which may be asked for later
        "versions before": _named(held),
        "runs before": _runs(held),
    }
    _write(folder, facts)


def deleting(store: Store, held: Holding) -> set[str]:
    """Writes on each open certificate what is about to be deleted. Returns the marks by which events mention
    that, also those of what a killed deletion has deleted already.
    """
    marks = held.marks
    for folder, facts in _unfinished(store):
        facts["versions before"] |= _named(held)
        facts["runs before"] = sorted({*facts["runs before"], *_runs(held)})
        _push(store, _write(folder, facts))
        marks |= {place.rpartition("/")[2] for place in facts["versions before"]}
        marks |= {*facts["versions before"].values(), *facts["runs before"]}
    return marks


def finish(store: Store, ended: Sequence[str], going_on: Sequence[str], left: Holding) -> list[Path]:
    """Writes on each open certificate what was deleted, which Dagster runs had `ended`, and what is left."""
    pages, found = [], [*sorted(_named(left)), *(f"events of Dagster's run {run}" for run in going_on)]
    for folder, facts in _unfinished(store):
        names = sorted(facts["versions before"].keys() - found)
        runs = sorted({*facts["runs before"]} - {*_runs(left)})
        before = sorted({place.rpartition("/")[0] for place in facts["versions before"]})
        after = {key: next(store.newest_first(key), None) for key in before}
        facts |= {
            "deleted": {"at": now(), "versions": names, "runs": runs, "runs of Dagster": len(ended)},
            "versions after": {key: one.data_version for key, one in after.items() if one},
            "still found": found,
            "trace": "still finds them"
            if left.versions
            else "finds none: no shards and no index are left of them",
            "not reached": UNREACHED,
        }
        pages.append(_push(store, _write(folder, facts)))
    return pages


def _unfinished(store: Store) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The certificates of requests of which something may be left, each with its folder."""
    for path in sorted((store.root / FORGOTTEN).glob(f"[!.]*/{CERTIFICATE}")):
        facts = read_json(path)
        if facts.get("still found", True):
            yield path.parent, facts


def _named(held: Holding) -> dict[str, str]:
    """The data version of each version, by its place."""
    return {f"{version.key}/{version.path.name}": version.data_version for version in held.versions}


def _runs(held: Holding) -> list[str]:
    return [run.directory.name for run in held.runs]


def _push(store: Store, page: Path) -> Path:
    for path in (page, page.with_name(CERTIFICATE)):
        store.files.push(path)
    return page


def _write(folder: Path, facts: Mapping[str, Any]) -> Path:
    """Returns the page, which is written first: by the record, a killed process knows what is left to do."""
    written = {
        name: one if isinstance(one, str) else json.dumps(one, indent=1) for name, one in facts.items()
    }
    rows = "".join(f"<tr><th>{escape(name)}<td><pre>{escape(text)}</pre>" for name, text in written.items())
    style = "body{font:14px sans-serif}th{text-align:left;vertical-align:top}pre{margin:0}"
    head = f"<!doctype html><meta charset=utf-8><title>Removal</title><style>{style}</style>"
    told = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences(facts))
    page = f"{head}<h1>Removal of documents</h1>{told}<h2>The record</h2><table>{rows}</table>"
    for name, text in ((PAGE, page), (CERTIFICATE, json.dumps(facts, indent=1))):
        write_atomically(folder / name, text)
    return folder / PAGE


def sentences(facts: Mapping[str, Any]) -> list[str]:
    """What a person who asked for the removal, or an authority, has to know."""
    number, corpora = sum(facts["documents"].values()), ", ".join(facts["documents"])
    these = "This document" if number == 1 else "These documents"
    models = len({one["checkpoint"].partition("-")[0] for one in facts["read by"]})
    found = [
        f"On {facts['asked'][:DAY]} the removal of {counted(number, 'documents')} from {corpora} was asked "
        f"for, for this reason: {facts['reason']}.",
        f"{these} will not be read from the source again.",
        f"{counted(models, 'models')} had been trained on such text."
        if models
        else "No model had read them.",
    ]
    if places := facts.get("copies under other ids"):
        copied = [f"{what} in {place}" for place, whats in places.items() for what in whats]
        found.append(f"Under other ids, and not part of the request, there then was {', '.join(copied)}.")
    if deleted := facts.get("deleted"):
        left = len(facts["still found"])
        rest = f"{counted(left, 'places')} that still hold some are listed below" if left else "none are left"
        gone = _held(deleted["versions"], deleted["runs"])
        found.append(f"On {deleted['at'][:DAY]} {gone} that held them were deleted from this store; {rest}.")
    else:
        held = _held(facts["versions before"], facts["runs before"])
        found.append(f"{held} that hold them are still to be deleted.")
    return [*found, f"Out of reach, and not deleted, are: {'; '.join(UNREACHED)}."]


def _held(versions: Collection[str], runs: Collection[str]) -> str:
    return f"{counted(len(versions), 'stored versions')} and {counted(len(runs), 'training runs')}"
