"""A text that is asked about, as the recipe treats the text of its corpora."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from pipeline.plugins.settings import TransformParams
from pipeline.plugins.transforms import of_corpus
from pipeline.sources.formats.text_files import universal_newlines
from pipeline.stages import pii
from pipeline.store.params import DOCUMENT_SCHEMA


def treated(recipe: Mapping[str, Any], corpora: Iterable[str], text: str) -> dict[str, list[str]]:
    """The text as it may be in the corpora, each with those that treat it so. `recipe`: as in a lineage."""
    found: dict[str, list[str]] = {}
    for corpus in corpora:
        for one in dict.fromkeys(_treated(recipe, corpus, text)):
            found.setdefault(one, []).append(corpus)
    return found


def _treated(recipe: Mapping[str, Any], corpus: str, text: str) -> Iterator[str]:
    """Scrubbed as the recipe scrubs the corpus, and before that, where it transforms it, transformed; its
    lines as they end, and as a source of plain text ends them.
    """
    own = next(one for one in recipe["corpora"] if one["name"] == corpus)
    scrub = pii.PiiParams.model_validate(own.get("scrub") or recipe["scrub"])
    chain = of_corpus([TransformParams.model_validate(one) for one in recipe["transforms"]], corpus)
    rest = {"id": "", "source": None, "url": None, "metadata": None}
    rows = [{"text": one, **rest} for one in dict.fromkeys((text, universal_newlines(text)))]
    documents = [pa.RecordBatch.from_pylist(rows, DOCUMENT_SCHEMA)]
    for one in chain:
        documents.append(one.apply(documents[-1])[0])
    for batch in {0, len(chain)}:
        yield from pii.scrub(documents[batch], scrub)[0].column("text").to_pylist()
