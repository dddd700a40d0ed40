"""Bytes that each data stage moves between a machine and the bucket of its store. Each stage runs with an
empty cache, as on a machine of its own.

`python performance/bucket.py` needs the sample corpora in ../shared/corpora and the peers (moto's server).
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.sidebyside import record, texts

sys.path.append(str(Path(__file__).parents[1]))

import json

from pipeline.recipe.sections import ShardParams
from pipeline.sources.files import FilesConfig
from pipeline.stages.bpe import TokenizerParams
from pipeline.stages.dedup import DedupParams
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES
from pipeline.steps.dedup.signatures import Signatures
from pipeline.store.bucket.files import cache_of
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.pipeline.steps.make import collect, deduplicate, judge, scrub, tokenize, tokenizer
from tests.s3_server import proxied, serving

NAMES = ("enwiki", "techdocs", "books")
CORPUS = "sample"
MEGABYTES = 60
FILES = 4
PART_BYTES = 16_000_000
WORKERS = 2


def stages(files: Path) -> dict[str, Callable[[Store, LocalEngine], Any]]:
    source = FilesConfig(paths=(str(files / "*.jsonl"),))
    return {
        "raw": lambda store, engine: collect(store, engine, CORPUS, source, PART_BYTES),
        "scrubbed": lambda store, engine: scrub(store, engine, CORPUS, PiiParams()),
        "quality": lambda store, engine: judge(store, engine, CORPUS, PROFILES["default"]),
        "signatures": Signatures(CORPUS, DedupParams(), decontaminated=False, compared=True).make,
        "dedup": lambda store, engine: deduplicate(store, engine, [CORPUS], DedupParams()),
        "tokenizer": lambda store, engine: tokenizer(
            store, engine, "bench", [CORPUS], TokenizerParams(vocab_size=8192), 0.01
        ),
        "token_shards": lambda store, engine: tokenize(store, engine, CORPUS, ShardParams()),
    }


def main() -> None:
    report: dict[str, Any] = {"workers": WORKERS, "part_mb": PART_BYTES / 1e6, "text_mb": MEGABYTES}
    with tempfile.TemporaryDirectory() as directory, serving() as server, proxied(server) as (near, proxy):
        files = Path(directory) / "files"
        files.mkdir()
        found = texts(NAMES, MEGABYTES)
        for number in range(FILES):
            rows = "".join(json.dumps({"text": text}) + "\n" for text in found[number::FILES])
            (files / f"{number}.jsonl").write_text(rows)
        os.environ.update(near.environment)
        for stage, make in stages(files).items():
            proxy.moved |= {"PUT": 0, "GET": 0}
            proxy.requests, began = 0, time.monotonic()
            store = Store(cache_of("s3://bucket/store", Path(directory) / stage))
            engine = LocalEngine(WORKERS, processes_pay_above=0)
            version = make(store, engine)
            engine.close()
            if stage == "scrubbed":
                report["stored_text_mb"] = round(
                    sum(part.files["documents"].bytes for part in version.parts) / 1e6, 1
                )
            report[stage] = {
                "read_mb": round(proxy.moved["GET"] / 1e6, 1),
                "written_mb": round(proxy.moved["PUT"] / 1e6, 1),
                "requests": proxy.requests,
                "seconds": round(time.monotonic() - began, 1),
            }
            print(stage, report[stage], flush=True)
    record("bucket", report, ("pyarrow", "numba"))


if __name__ == "__main__":
    main()
