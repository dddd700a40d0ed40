"""Two corpora in a store, with and without documents that were forgotten."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.sources.documents import document_id, own_id
from pipeline.sources.files import FilesConfig
from pipeline.stages.bpe import ExistingTokenizer
from pipeline.stages.dedup import DedupParams
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES
from pipeline.steps.training import plan
from pipeline.store import keys
from pipeline.store.fingerprint import file_sha256
from pipeline.store.forgotten import forget
from pipeline.store.manifest import Version
from pipeline.store.parquet import read_table
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import ENGINE, TEXTS
from tests.pipeline.steps.lineage.conftest import QUICK, train
from tests.pipeline.steps.make import collect, deduplicate, judge, scrub, tokenize, tokenizer
from tests.pipeline.steps.training.test_plan import HELD_OUT, recipe

PART_BYTES = 12_000
Texts = dict[str, str]  # by the id that the source gives
# `late` is nearly `0`, of which dedup keeps one, and the last of a corpus are in a small file of their own
CORPORA: dict[str, dict[str, Texts]] = {
    "first": {
        "large": {str(number): text[:3000] for number, text in enumerate(TEXTS[:18])},
        "small": {f"short {number}": text[:2000] for number, text in enumerate(TEXTS[18:22])},
    },
    "second": {
        "large": {f"long {number}": TEXTS[number][16_000:32_000] for number in (8, 24, 29)}
        | {f"second {number}": text[:3000] for number, text in enumerate(TEXTS[22:30])}
        | {"late": TEXTS[0][:2990] + " indeed"}
    },
}
SHORT: dict[str, Any] = {
    **QUICK,
    "max_tokens": 4096,
    "checkpoint": {"every_tokens": 4096, "keep_last": 1},
    "evaluation": {"every_tokens": 4096},
}


@dataclass
class Made:
    """A store and its sources, which lack the documents with the ids in `without`."""

    directory: Path
    tokenizer: Path | None
    without: Collection[str] = ()

    @property
    def store(self) -> Store:
        return Store(self.directory / "store")

    def config(self, corpus: str) -> FilesConfig:
        return FilesConfig(paths=(f"{corpus}/*.jsonl",)).anchored(self.directory)

    def read(self, corpus: str) -> Version:
        folder = self.directory / corpus
        folder.mkdir(exist_ok=True, parents=True)
        for name, texts in CORPORA[corpus].items():
            rows = {key: json.dumps({"id": key, "text": text}) for key, text in texts.items()}
            # Blank lines take the place of what is missing: files are grouped by their sizes.
            lines = [" " * len(row) if key in self.without else row for key, row in rows.items()]
            path, written = folder / f"{name}.jsonl", "".join(line + "\n" for line in lines)
            if not path.exists():
                path.write_text(written)
        raw = collect(self.store, ENGINE, corpus, self.config(corpus), PART_BYTES)
        scrub(self.store, ENGINE, corpus, PiiParams())
        judge(self.store, ENGINE, corpus, PROFILES["docs"])
        return raw

    def made(self, corpora: Collection[str] = tuple(CORPORA)) -> dict[str, str]:
        """Everything up to the shards: the data version of each key."""
        store = self.store
        for corpus in corpora:
            self.read(corpus)
        deduplicate(store, ENGINE, list(corpora), DedupParams())
        assert self.tokenizer is not None
        tokenizer(store, ENGINE, "mine", list(corpora), ExistingTokenizer(source=str(self.tokenizer)), 0.2)
        for corpus in corpora:
            tokenize(store, ENGINE, corpus, HELD_OUT)
        read = [key(corpus) for corpus in corpora for key in (keys.raw, keys.scrubbed, keys.quality)]
        shards = [keys.token_shards(corpus) for corpus in corpora]
        return Store(store.root).data_versions([*read, keys.DEDUP, *shards])

    def trained(self, corpora: Collection[str] = tuple(CORPORA)) -> dict[str, str]:
        """As `made`, and the weights of a short training."""
        made = self.made(corpora)
        run = plan.plan(self.store, recipe(*corpora, **SHORT))
        if not run.config.run_dir.exists():
            train(self.store, recipe(*corpora, **SHORT))
        (weights,) = run.config.run_dir.glob("checkpoints/*/hf/model.safetensors")
        return {**made, run.name: file_sha256(weights)}

    def forget(self, *named: str) -> None:
        forget(self.store.files, ids(named), "asked for")


def ids(named: Collection[str]) -> Mapping[str, list[str]]:
    return {
        corpus: found
        for corpus, files in CORPORA.items()
        if (
            found := [
                document_id(corpus, own_id(key)) for texts in files.values() for key in texts if key in named
            ]
        )
    }


def ids_in(version: Version) -> set[str]:
    return {
        one
        for path in version.files("documents")
        for one in read_table(path, columns=["id"])["id"].to_pylist()
    }


def texts() -> dict[str, str]:
    return {
        key: text for files in CORPORA.values() for found in files.values() for key, text in found.items()
    }
