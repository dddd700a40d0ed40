"""The answers of `lineage --corpus` and `lineage --document`, as rows for JSON and as text."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.store import keys

if TYPE_CHECKING:
    from pipeline.steps.lineage.checkpoints import Sighting
    from pipeline.steps.lineage.documents import Seen, Untraceable

SHOWN = 12  # characters of a version


def corpus_row(sighting: "Sighting", corpus: str) -> dict[str, Any]:
    checkpoint, by = sighting.checkpoint, sighting.by
    raw = by.lineage["assets"][keys.raw(corpus)]
    return {
        "checkpoint": checkpoint.name,
        "path": str(checkpoint.path),
        **({"through": sighting.through} if sighting.through else {}),
        "tokens": by.corpus_tokens[corpus],
        "epochs": round(by.epochs(corpus), 4),
        "raw": raw["data_version"],
        **raw.get("inputs", {}),
    }


def corpus_lines(sightings: "Sequence[Sighting]", corpus: str) -> Iterator[str]:
    """A table of 80 columns."""
    yield f"{'checkpoint':<17}{'tokens':>15}{'epochs':>8}  {'raw':<13}{'source':<13}revision"
    for sighting in sightings:
        row = corpus_row(sighting, corpus)
        yield (
            f"{row['checkpoint']:<17}{row['tokens']:>15,}{row['epochs']:>8.3f}  "
            f"{row['raw'][:SHOWN]:<13}{row.get('source', '?')[:SHOWN]:<13}"
            f"{row.get('revision', '-')[:SHOWN]}"
        )
        if sighting.through:
            yield f"  through the weights it started from: {sighting.through}"
    if not sightings:
        yield f"no checkpoint on disk was trained on this version of {corpus}"
    yield "deleted checkpoints are not listed; `python -m pipeline lineage RUN-STEP` shows their lineage"


def document_row(seen: "Seen") -> dict[str, Any]:
    place: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value for name, value in asdict(seen.place).items()
    }
    return {
        "checkpoint": seen.checkpoint.name,
        **({"through": seen.through.described} if seen.through else {}),
        **place,
        "windows": seen.windows,
        "windows_seen": seen.seen,
        "times": seen.times,
    }


def untraceable_row(unknown: "Untraceable") -> dict[str, Any]:
    return {
        "checkpoint": unknown.checkpoint.name,
        "through": unknown.through.described,
        "untraceable": True,
        "corpora": unknown.through.corpus_tokens,
    }


def document_lines(answers: "Sequence[Seen]", unknown: "Sequence[Untraceable]", width: int) -> Iterator[str]:
    place = None
    for answer in answers:
        if answer.place != place:
            place = answer.place
            where = place.rejected or (
                f"document {place.number} of {place.shard}, tokens {place.begin:,} to "
                f"{place.end - 1:,} of the corpus ({place.split})"
            )
            yield _wrapped(f"{place.document} of corpus {place.corpus}: {where}", width)
        if answer.place.rejected:
            use = "not trained on"
        elif answer.windows:
            use = (
                f"trained on {answer.seen:,} of the {answer.windows:,} windows that contain part of it, "
                f"{answer.times:,} times in total"
            )
        else:
            use = "held out for validation, not trained on"
        through = (
            f", through the weights it started from: {answer.through.described}" if answer.through else ""
        )
        yield _wrapped(f"  {answer.checkpoint.name}  {use}{through}", width)
    for one in unknown:
        corpora = ", ".join(name for name, tokens in one.through.corpus_tokens.items() if tokens)
        yield _wrapped(
            f"  {one.checkpoint.name}  started from the weights of {one.through.described}, whose run is not "
            f"in this store: it was trained on {corpora}, and only its own store can tell whether on this "
            "document",
            width,
        )


def _wrapped(text: str, width: int) -> str:
    """The text in lines of this width; a path is never cut."""
    return "\n".join(
        textwrap.wrap(text, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    )
