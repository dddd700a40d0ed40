"""The card of exported documents, for the hub and for people: README.md."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.recipe.recipe import Recipe
from pipeline.sources.hub.catalog import licenses
from pipeline.steps.model import front_matter
from pipeline.steps.model.markdown import table
from pipeline.steps.model.model_card import source
from pipeline.steps.stages import of_data
from pipeline.store import keys
from pipeline.store.keys import SPLITS, Key
from pipeline.store.manifest import Version, breakdown
from pipeline.store.store import Store

COLUMNS = {
    "corpus": "the corpus of the recipe",
    "id": "the id of the document, which stays while its text in the source does",
    "text": "the text, with placeholders for personal data",
    "source": "the file or data set that it was read from",
    "url": "its address, if the source has one",
    "metadata": "what else the source has, as JSON",
}
SIZES = {10**3: "n<1K", 10**4: "1K<n<10K", 10**5: "10K<n<100K", 10**6: "100K<n<1M"}
LARGE = "n>1M"


@dataclass(frozen=True)
class ExportedDocuments:
    """Exported documents: the corpora as a recipe dumps them, the versions that the documents follow from, in
    the order in which they were made, and what was counted in each corpus while they were written.
    """

    name: str
    corpora: Sequence[Mapping[str, Any]]
    versions: Mapping[Key, Version]
    counts: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(cls, store: Store, recipe: Recipe, counts: Mapping[str, Mapping[str, int]]) -> "ExportedDocuments":
        dumped = recipe.model_dump(mode="json", by_alias=True)["corpora"]
        made = [*of_data(recipe)]
        before = made[: made.index(keys.DEDUP) + 1]
        versions = {key: store.current(key) for key in before if key.corpus in ("", *counts)}
        return cls(recipe.name, [one for one in dumped if one["name"] in counts], versions, counts)

    @property
    def license(self) -> list[str] | None:
        return front_matter.license_of(self.corpora)

    @property
    def languages(self) -> list[str] | None:
        return front_matter.languages([{key: one.manifest for key, one in self.versions.items()}])

    @property
    def description(self) -> str:
        return (
            f"Text of {', '.join(self.counts)}: personal data replaced by placeholders, documents of low "
            "quality and duplicates left out."
        )

    def documents(self, corpus: str) -> int:
        return sum(self.counts[corpus][f"{split}_documents"] for split in SPLITS)

    def source(self, corpus: Mapping[str, Any]) -> str:
        """Where a corpus comes from; files without their place."""
        return source(self.raw(corpus).manifest["inputs"].get("revision"), corpus)

    def raw(self, corpus: Mapping[str, Any]) -> Version:
        return self.versions[keys.raw(corpus["name"])]

    def counted(self, key: Key, prefix: str) -> Mapping[str, int]:
        """What was counted in a version, by name."""
        return breakdown(self.versions[key].counts, prefix)


def card(directory: Path, what: ExportedDocuments) -> str:
    """The text of README.md in a directory with the files."""
    from huggingface_hub import DatasetCardData

    documents = sum(map(what.documents, what.counts))
    data = DatasetCardData(
        pretty_name=what.name,
        license=what.license,
        language=what.languages,
        size_categories=next((name for size, name in SIZES.items() if documents < size), LARGE),
        task_categories=["text-generation"],
        tags=front_matter.TAGS,
        configs=list(_configs(directory, list(what.counts))),
    )
    return f"""---
{data.to_yaml()}
---

# {what.name}

{what.description} Made with Groundwork. `export.json` has the versions of the data, and `croissant.json`
how each was made.

{table(("column", "what it is"), COLUMNS.items(), numbers=False)}

## Corpora

{table(("corpus", "source", "license"), _sources(what), numbers=False)}

{table(("corpus", "documents", *(f"{split} bytes of text" for split in SPLITS)), _sizes(what))}

## What was left out

{table(("corpus", "documents read", "kept by quality", "in this data set"), _funnel(what))}

Documents that each rule of quality rejected:

{table(("rule", *what.counts), _counted(what, keys.quality, "rejected"))}

Dedup compared all corpora of the recipe and removed {_removed(what)}.

## Personal data

Values that were replaced in the text of all documents that were read. The rules miss some values.

{table(("kind", *what.counts), _counted(what, keys.scrubbed, "spans"))}
"""


def _configs(out: Path, corpora: Sequence[str]) -> Iterator[dict[str, Any]]:
    """All, and each corpus: without these, `datasets` would guess splits from the names of the corpora."""
    for name, pattern in (("default", "*"), *((corpus, f"{corpus}-*") for corpus in corpora)):
        found = [split for split in SPLITS if any((out / split).glob(f"{pattern}.parquet"))]
        files = [{"split": split, "path": f"{split}/{pattern}.parquet"} for split in found]
        if files:
            yield {"config_name": name, "data_files": files}


def _sources(what: ExportedDocuments) -> Iterator[list[str]]:
    for corpus in what.corpora:
        yield [corpus["name"], what.source(corpus), ", ".join(licenses(corpus)) or "unknown"]


def _sizes(what: ExportedDocuments) -> Iterator[list[str]]:
    for name, counts in what.counts.items():
        yield [
            name,
            *(f"{n:,}" for n in (what.documents(name), *(counts[f"{one}_text_bytes"] for one in SPLITS))),
        ]


def _funnel(what: ExportedDocuments) -> Iterator[list[str]]:
    for name in what.counts:
        read, kept = (what.versions[key(name)].counts for key in (keys.raw, keys.quality))
        yield [name, *(f"{n:,}" for n in (read["documents"], kept["kept"], what.documents(name)))]


def _counted(what: ExportedDocuments, key: Callable[[str], Key], prefix: str) -> Iterator[list[str]]:
    """A row for what was counted under each name, with a column for each corpus."""
    found = [what.counted(key(corpus), prefix) for corpus in what.counts]
    for name in dict.fromkeys(name for counts in found for name in counts):
        yield [name, *(f"{counts.get(name, 0):,}" for counts in found)]


def _removed(what: ExportedDocuments) -> str:
    found = what.counted(keys.DEDUP, "removed").items()
    return ", ".join(f"{count:,} ({name})" for name, count in found) or "no document"
