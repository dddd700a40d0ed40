"""Corpora by name: the short form of a recipe."""

import pytest

from pipeline.recipe.sections import Corpus
from pipeline.sources.hub.catalog import ready_made, short_form
from pipeline.sources.source import SourceError


@pytest.mark.parametrize(
    ("text", "name", "repository", "config", "limit"),
    [
        ("wikitext-2-raw-v1", "wikitext_2_raw_v1", "Salesforce/wikitext", "wikitext-2-raw-v1", None),
        ("TinyStories:1000", "tinystories", "roneneldan/TinyStories", None, 1000),
        ("roneneldan/TinyStories:1000", "tinystories", "roneneldan/TinyStories", None, 1000),
        ("wikipedia-20231101.en", "wikipedia_20231101_en", "wikimedia/wikipedia", "20231101.en", None),
        ("fineweb-sample-10BT:5", "fineweb_sample_10bt", "HuggingFaceFW/fineweb", "sample-10BT", 5),
        ("someone/0-texts", "corpus_0_texts", "someone/0-texts", None, None),
    ],
)
def test_a_corpus_is_named_in_one_word(
    text: str, name: str, repository: str, config: str | None, limit: int | None
) -> None:
    found, source = short_form(text)
    assert (found, source.name, source.config, source.max_documents) == (name, repository, config, limit)
    Corpus(name=found, source=source)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("wikitext-2-raw", "did you mean 'wikitext-2-raw-v1'"),
        ("zzz", "there are wikitext-2-raw-v1, "),
        ("openwebtext:many", "openwebtext:1000"),
        ("openwebtext:0", "number of documents"),
    ],
)
def test_a_name_that_is_none_is_refused_with_one_that_is(text: str, says: str) -> None:
    with pytest.raises(SourceError, match=says):
        short_form(text)


def test_every_ready_made_corpus_says_its_size_and_license() -> None:
    assert len(ready_made()) == 6
    assert all(
        entry.documents and entry.bytes and entry.card_license and entry.about for entry in ready_made()
    )
