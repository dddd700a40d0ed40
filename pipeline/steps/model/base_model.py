"""What a model card says about the weights that training started from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

SHOWN = 12  # characters of a hash


def name(lineage: Mapping[str, Any]) -> str | None:
    """The name of the model that training started from: on the hub, else in its own lineage, else that of its
    directory. Never a path, which would show where the author keeps files. None: training from scratch.
    """
    source = lineage["recipe"]["training"].get("pretrained")
    if source is None:
        return None
    if source["repo"]:
        return str(source["repo"])
    known = lineage_of(lineage)
    return str(known["recipe"]["name"]) if known else Path(source["path"]).name


def lineage_of(lineage: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The lineage of the model that training started from, if it is known."""
    known: Mapping[str, Any] | None = lineage.get("pretrained", {}).get("lineage")
    return known


def paragraph(lineage: Mapping[str, Any]) -> str:
    """The weights that training started from and, as far as is known, those that they came from in turn.
    Empty for training from scratch.
    """
    sentences: list[str] = []
    at: Mapping[str, Any] | None = lineage
    while at is not None and (base := name(at)):
        weights, known = at.get("pretrained", {}), lineage_of(at)
        revision, content = weights.get("revision"), weights.get("sha256", "")[:SHOWN]
        which = f" at revision {revision}" if revision else f" (sha256 {content}...)" if content else ""
        if known:
            corpora = ", ".join(name for name, seen in known["training"]["corpus_tokens"].items() if seen)
            before = f"which had been trained on {known['training']['tokens']:,} tokens of {corpora}"
        else:
            before = "whose own training is not recorded here"
        sentences.append(f"Training{' of that' if sentences else ''} started from `{base}`{which}, {before}.")
        at = known
    return "\n\n" + "\n".join(sentences) if sentences else ""
