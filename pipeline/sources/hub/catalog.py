"""Ready-made corpora, and the short form `NAME` or `NAME:N` by which a recipe names a corpus."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from pipeline.sources.hub.dataset import HubConfig
from pipeline.sources.source import SourceError
from pipeline.store.errors import did_you_mean

TABLE = Path(__file__).with_name("ready_made.yaml")


@dataclass(frozen=True)
class ReadyMade:
    """A data set of the hub with its settings. `documents`, `bytes` of text and `card_license` are those of
    its card; `license` names the licenses as the hub does.
    """

    name: str
    source: HubConfig
    documents: int
    bytes: int
    card_license: str
    license: list[str]
    about: str


@cache
def ready_made() -> tuple[ReadyMade, ...]:
    """All entries, in the order of the table."""
    entries = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return tuple(
        ReadyMade(name, HubConfig(**entry.pop("source")), **entry) for name, entry in entries.items()
    )


def licenses(corpus: Mapping[str, Any]) -> list[str]:
    """The licenses of a corpus, given as a recipe dumps it, in the hub's names: its own setting, else those
    of a ready-made corpus. Empty if they are not known.
    """
    if named := corpus.get("license"):
        return [named]
    place = corpus["source"].get("name"), corpus["source"].get("config")
    return next((one.license for one in ready_made() if (one.source.name, one.source.config) == place), [])


def short_form(text: str) -> tuple[str, HubConfig]:
    """The corpus's name and source for `NAME` or `NAME:N`: a ready-made corpus, or a data set of the hub
    by its full name. N is `max_documents`.

    Raises SourceError for any other name.
    """
    name, colon, count = text.partition(":")
    if colon and not re.fullmatch(r"[1-9][0-9]*", count):
        raise SourceError(
            f"corpus {text!r}: write the number of documents after the colon, as in {name}:1000"
        )
    source = _source(name)
    return corpus_name(name), source.model_copy(update={"max_documents": int(count)}) if count else source


def corpus_name(name: str) -> str:
    """A name for assets: `roneneldan/TinyStories` -> `tinystories`, `wikipedia-20231101.en` ->
    `wikipedia_20231101_en`.
    """
    plain = re.sub(r"[^a-z0-9]+", "_", name.rpartition("/")[2].lower()).strip("_")
    return plain if plain[:1].isalpha() else f"corpus_{plain}"


def _source(name: str) -> HubConfig:
    known = {entry.name.lower(): entry.source for entry in ready_made()}
    by_repository = {
        entry.source.name.lower(): entry.source for entry in ready_made() if entry.source.config is None
    }
    found = known.get(name.lower()) or by_repository.get(name.lower())
    if found is not None:
        return found
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        return HubConfig(name=name)
    there_are = f"there are {', '.join(entry.name for entry in ready_made())}"
    hint = did_you_mean(name.lower(), known, there_are)
    raise SourceError(
        f"corpus {name!r} is neither a ready-made corpus ({hint}) nor a data set of the hub, whose "
        "name has a '/'"
    )
