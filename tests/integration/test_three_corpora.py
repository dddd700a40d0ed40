"""Real text of three kinds and pages of the web through the whole pipeline: no document is lost on the way
without being counted.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from pipeline.steps.tokens.shards import prefixes
from tests.corpora import CORPORA, needs_corpora
from tests.integration.project import Project
from trainer.data.shards import Shard

pytest.importorskip("warcio", reason="needs the extra `web`")
pytest.importorskip("resiliparse", reason="needs the extra `web`")

FILES = {name: CORPORA / f"{name}.jsonl.zst" for name in ("books", "enwiki", "techdocs")}
WARC = CORPORA / "warc" / "dolma_sample-0000.warc.gz"
pytestmark = [pytest.mark.slow, needs_corpora]


@pytest.fixture(scope="module")
def project(make_project: Callable[[Path], Project], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Taken to token shards."""
    project = make_project(tmp_path_factory.mktemp("corpora"))
    sources = {name: {"kind": "files", "paths": [str(path)]} for name, path in FILES.items()}
    sources["crawl"] = {"kind": "warc", "paths": [str(WARC)]}
    project.recipe |= {
        "corpora": [{"name": name, "source": source} for name, source in sources.items()],
        "raw": {"part_bytes": 8_000_000},
        "quality": "default",
        "tokenizer": {"vocab_size": 2048},
    }
    status, said = project.run(job="retokenize")
    assert status == 0, said
    return project


def counts(project: Project, corpus: str, stage: str) -> dict[str, int]:
    return project.store.current(f"corpora/{corpus}/{stage}").counts


def lines(path: Path) -> int:
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as content:
        return sum(block.count(b"\n") for block in iter(lambda: content.read(1 << 20), b""))


@pytest.mark.parametrize("corpus", FILES)
def test_every_line_of_a_file_is_a_document_that_is_kept_or_rejected(project: Project, corpus: str) -> None:
    raw, quality = counts(project, corpus, "raw"), counts(project, corpus, "quality")
    assert (raw["documents"], raw["set_aside"]) == (lines(FILES[corpus]), 0)
    assert quality["kept"] + quality["rejected"] == raw["documents"]
    assert (
        sum(number for name, number in quality.items() if name.startswith("rejected/")) == quality["rejected"]
    )


def test_pages_of_the_web_arrive_and_what_is_no_page_is_set_aside(project: Project) -> None:
    raw = counts(project, "crawl", "raw")
    assert (raw["documents"], raw["set_aside"], raw["set_aside/not_a_page"]) == (22, 2, 2)


def test_what_was_kept_of_each_corpus_is_in_its_shards(project: Project) -> None:
    decided, written = project.store.current("dedup").counts, 0
    assert decided["documents"] == sum(
        counts(project, corpus, "quality")["kept"] for corpus in (*FILES, "crawl")
    )
    for corpus in (*FILES, "crawl"):
        version = project.store.current(f"token_shards/{corpus}")
        shards = [Shard(prefix) for split in ("train", "validation") for prefix in prefixes(version, split)]
        documents = sum(shard.num_documents for shard in shards)
        assert documents == version.counts["train_documents"] + version.counts["validation_documents"] > 0
        written += documents
    assert written == decided["kept"]
