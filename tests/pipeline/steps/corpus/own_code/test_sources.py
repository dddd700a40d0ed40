"""The user's own source: when it is read again, and what it is told about a document."""

from collections.abc import Callable

import pytest

from pipeline.sources.source import SourceError
from pipeline.sources.user_code import PythonConfig
from pipeline.steps.corpus.ingest import Raw
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import ENGINE
from tests.pipeline.steps.corpus.own_code.conftest import source
from tests.pipeline.steps.make import collect


def test_a_source_is_read_again_when_its_fingerprint_version_or_parameters_change(
    store: Store, calls: Callable[[], int]
) -> None:
    def read(config: PythonConfig) -> tuple[int, int]:
        calls()
        return collect(store, ENGINE, "some", config, 40_000).counts["documents"], calls()

    assert read(source(name="once")) == (3, 1)
    assert read(source(name="once")) == (3, 0)
    assert read(source(version="2", name="once")) == (3, 1)
    assert read(source(version="2", name="once", many=4)) == (4, 1)
    assert Raw("some", source(many=7), 1).observe(store) != Raw("some", source(many=8), 1).observe(store)


def test_a_source_that_breaks_off_names_its_last_document_and_publishes_nothing(store: Store) -> None:
    with pytest.raises(
        SourceError,
        match=r"corpus 'more': own:Chapters failed after document 'chapter-11': OSError: the server went "
        r"away \(own\.py, line \d+\)",
    ):
        collect(store, ENGINE, "more", source(broken_after=12), 40_000)
    assert not [*store.newest_first(keys.raw("more"))]


def test_what_a_source_raises_is_shown_without_what_may_be_of_a_document(store: Store) -> None:
    said = r"ValueError: no line of \.\.\. \.\.\. \.\.\. in '\.\.\.' was read \(own\.py, line \d+\)$"
    with pytest.raises(SourceError, match=said):
        collect(store, ENGINE, "some", source(name="tells"), 40_000)


@pytest.mark.parametrize(
    ("since", "said"),
    [
        (2024, "gave a whole number as its fingerprint: give a text"),
        ("May", r"cannot tell its fingerprint: TypeError: .*\(own\.py, line \d+\)"),
    ],
)
def test_a_fingerprint_that_is_none_is_named(store: Store, since: object, said: str) -> None:
    with pytest.raises(SourceError, match=f"^corpus 'some': own:Dated {said}"):
        collect(store, ENGINE, "some", source(name="Dated", since=since), 40_000)


def test_a_document_without_metadata_may_say_none(store: Store) -> None:
    version = collect(store, ENGINE, "some", source(name="odd_documents", metadata=None), 40_000)
    assert version.counts["documents"] == 1


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            source(name="odd_documents", url=3),
            "failed before its first document: the url of document 'a' is of type int, not a text$",
        ),
        (
            source(name="odd_documents", metadata="x"),
            "the metadata of document 'a' is of type str, not a dictionary$",
        ),
        (source(name="odd_documents", url="\ud800"), "the url of document 'a' holds half a surrogate pair$"),
        (source(name="leaves"), r"failed after document 'a': SystemExit: \.\.\. \(own\.py, line \d+\)$"),
    ],
)
def test_a_document_that_cannot_be_stored_is_named(store: Store, config: PythonConfig, said: str) -> None:
    with pytest.raises(SourceError, match=f"^corpus 'some': own:{config.object[4:]} .*{said}"):
        collect(store, ENGINE, "some", config, 40_000)


def test_a_source_of_numbers_as_ids_says_so(store: Store) -> None:
    with pytest.raises(
        PipelineError, match=r"'some' is empty: its source gave no valid document \(bad_id 1\)"
    ):
        collect(store, ENGINE, "some", source(name="odd_documents", id=7), 40_000)
