"""Our profiles against the datatrove filters that they name, both on str.split() words, on real text."""

import io
import json
from itertools import islice

import pyarrow as pa
import pytest
import zstandard

from pipeline.stages.quality import PROFILES, judge, measure
from tests.corpora import CORPORA, needs_corpora

pytest.importorskip("datatrove", reason="datatrove is not installed: it is the reference here")
pytest.importorskip("spacy", reason="spacy is not installed: datatrove's C4 filter splits sentences with it")

from datatrove.data import Document
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
    fineweb_quality_filter,
    gopher_quality_filter,
    gopher_repetition_filter,
)

from tests.rows import documents

FILES = ("books", "enwiki", "techdocs", "labelled/neardup_articles_2500", "labelled/pii_presidio_synth_v2")
EVERY = 6  # documents, because datatrove judges 0.3 MB a second
FILTERS = {
    "gopher": GopherQualityFilter,
    "gopher-repetition": GopherRepetitionFilter,
    "c4": C4QualityFilter,
    "fineweb": FineWebQualityFilter,
}

pytestmark = [pytest.mark.slow, needs_corpora]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    found = []
    for name in FILES:
        with (CORPORA / f"{name}.jsonl.zst").open("rb") as file:
            lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
            found += [json.loads(line)["text"] for line in islice(lines, 0, None, EVERY)]
    # To datatrove, but not to us, lines of white space repeat each other.
    return ["\n".join(line if line.strip() else "" for line in text.split("\n")) for text in found]


@pytest.fixture(scope="module")
def signals(texts: list[str]) -> pa.RecordBatch:
    return measure(documents(*texts))


@pytest.mark.parametrize("profile", FILTERS)
def test_a_named_profile_decides_as_the_filter_that_it_names(profile, texts, signals, monkeypatch):
    for module in (gopher_quality_filter, gopher_repetition_filter, fineweb_quality_filter):
        monkeypatch.setattr(module, "split_into_words", lambda text, language: text.split())
    keep = judge(signals, PROFILES[profile])["keep"].to_pylist()
    peer = FILTERS[profile]()
    differing = [
        row
        for row, text in enumerate(texts)
        if keep[row] != (peer.filter(Document(text=text, id="")) is True)
    ]
    # Gopher, its repetition rules and FineWeb agree on every document. C4 may differ where a document has
    # about 5 sentences: we count sentences by the ends of words, datatrove with spaCy's sentencizer, and we
    # keep lines that end in a curly quote or in a citation behind a space.
    assert len(differing) <= (0.005 * len(texts) if profile == "c4" else 0)
    assert all(signals["num_sentences"][row].as_py() in range(3, 8) for row in differing)
