"""What laws ask of training data, filled in where a lineage tells, marked where only the provider knows: the
template of July 2025 for Article 53(1)(d) of the AI Act, Regulation (EU) 2024/1689, and section 3111(a) of
California's Civil Code (AB 2013). The fields are in regulators.yaml.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup

from pipeline.sources.hub.catalog import ready_made
from pipeline.sources.listing import is_url
from pipeline.steps.lineage.checkpoints import Checkpoint
from pipeline.steps.model import funnel
from pipeline.steps.model.model_card import SOURCES, base_name
from pipeline.store import keys
from pipeline.store.fingerprint import HASH_SHOWN
from pipeline.store.manifest import breakdown

FIELDS = Path(__file__).with_name("regulators.yaml")
GAP = "to be filled in by the provider"
DAY = len("2025-07-24")  # of a time


def laws(checkpoint: Checkpoint) -> list[dict[str, Any]]:
    """The `title` of each law, what it is (`law`), and its `fields`, each with the answer in HTML."""
    facts = _facts(checkpoint)
    found: list[dict[str, Any]] = yaml.safe_load(FIELDS.read_text(encoding="utf-8"))
    for law in found:
        law["fields"] = [(name, Markup(text).format(**facts)) for name, text in law["fields"].items()]
    return found


def source(lineage: Mapping[str, Any], corpus: Mapping[str, Any]) -> list[str]:
    """Where a corpus comes from, its revision and license, as far as they are known, and its data version.
    Files are named without their directories, which would show where the author keeps them.
    """
    settings, raw = corpus["source"], lineage["assets"][keys.raw(corpus["name"])]
    named = (*settings.get("paths", ()), *settings.get("packages", ()))
    names = [one if is_url(one) else Path(one).name for one in named]
    names += filter(None, (settings.get(name) for name in ("name", "config", "split", "object")))
    known = {(it.source.name, it.source.config): it.card_license for it in ready_made()}
    license = corpus.get("license") or known.get((settings.get("name"), settings.get("config")), "unknown")
    place = ", ".join([SOURCES.get(settings["kind"], "Hugging Face hub"), *names])
    return [place, raw["inputs"].get("revision", "none"), license, raw["data_version"][:HASH_SHOWN]]


def _facts(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the fields in regulators.yaml name in braces."""
    recipe, assets = checkpoint.lineage["recipe"], checkpoint.lineage["assets"]
    sources = {corpus["name"]: source(checkpoint.lineage, corpus) for corpus in recipe["corpora"]}
    days = [assets[keys.raw(name)]["finished"][:DAY] for name in sources]
    counts = Counter[str]()
    for name, left in funnel.of_lineage(checkpoint.lineage).items():
        found = assets[keys.scrubbed(name)]["counts"] | assets[keys.quality(name)]["counts"]
        counts.update(found | left)
    return {
        "gap": Markup(f"<mark>{GAP}</mark>"),
        "checkpoint": checkpoint,
        "recipe": recipe,
        "base": base_name(checkpoint.lineage) or "none, training started from random weights",
        "counts": counts,
        "first": min(days),
        "last": max(days),
        "languages": listed(breakdown(counts, "languages")),
        "personal": listed(breakdown(counts, "spans")),
        "sources": "; ".join(f"{name}, {place}" for name, (place, *_) in sources.items()),
        "licenses": "; ".join(f"{name} {license}" for name, (_, _, license, _) in sources.items()),
        "transforms": ", ".join(entry["name"] for entry in recipe.get("transforms", ())) or "none",
    }


def listed(counts: Mapping[str, int]) -> str:
    """Counts in words, such as `email 12, phone 3`."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "none"
