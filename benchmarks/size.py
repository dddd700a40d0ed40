"""What each data stage costs: processor time and stored bytes, for each megabyte of text and each document.

`python benchmarks/size.py` needs the sample corpora in ../shared/corpora. The same text goes through all
stages twice, as long documents and as short ones, from which the two rates follow. `python -m pipeline size`
extrapolates the rates of `RATES` in `pipeline/reports/size.py`: copy what this prints.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness.alone import alone, here
from harness.sidebyside import record, texts

from pipeline.recipe.shards import ShardParams
from pipeline.reports.size import VOCAB_SIZE
from pipeline.sources.files import FilesConfig
from pipeline.stages.dedup import DedupParams
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES
from pipeline.stages.tokenizer import TokenizerParams
from pipeline.steps.corpus.ingest import collect
from pipeline.steps.corpus.quality import judge
from pipeline.steps.corpus.scrub import scrub
from pipeline.steps.dedup.dedup import deduplicate
from pipeline.steps.dedup.signatures import sign, sources
from pipeline.steps.tokens.shards import tokenize
from pipeline.steps.tokens.tokenizer import tokenizer
from pipeline.store.engine import LocalEngine
from pipeline.store.versions import Store

CORPUS = "sample"
NAMES = ("enwiki", "techdocs", "books")
MEGABYTES = 60
CHARACTERS = (10_000, 1_000)  # of a document
PART_BYTES = 128_000_000
REPEATS = 3

Measured = dict[str, dict[str, float]]


def stages(directory: Path) -> Measured:
    """Processor seconds and stored bytes of each stage, in this process alone."""
    store, engine, found = Store(directory / "store"), LocalEngine(1), {}

    def timed(stage: str, key: str, call: Callable[[], object]) -> None:
        started = time.process_time()
        call()
        found[stage] = {"seconds": time.process_time() - started, "bytes": store.current(key).bytes}

    files = FilesConfig(paths=(str(directory / "*.jsonl"),))
    corpus = f"corpora/{CORPUS}"
    timed("raw", f"{corpus}/raw", lambda: collect(store, engine, CORPUS, files, PART_BYTES))
    timed("scrubbed", f"{corpus}/scrubbed", lambda: scrub(store, engine, CORPUS, PiiParams()))
    timed("quality", f"{corpus}/quality", lambda: judge(store, engine, CORPUS, PROFILES["none"]))
    found["quality"]["bytes"] += store.current(f"{corpus}/signals").bytes
    tables = sources(store, CORPUS, False)
    timed("signatures", f"{corpus}/signatures", lambda: sign(store, engine, CORPUS, tables, DedupParams()))
    timed("dedup", "dedup", lambda: deduplicate(store, engine, [CORPUS], DedupParams()))
    params = TokenizerParams(vocab_size=VOCAB_SIZE, sample_bytes=20_000_000)
    tokenizer(store, "benchmark", [CORPUS], params, 0.02)
    timed("token shards", f"token_shards/{CORPUS}", lambda: tokenize(store, engine, CORPUS, ShardParams()))
    return found


def write(path: Path, characters: int) -> tuple[float, int]:
    """The sample cut into documents; its megabytes and their number."""
    whole = texts(NAMES, MEGABYTES)
    pieces = [text[at : at + characters] for text in whole for at in range(0, len(text), characters)]
    path.write_text("".join(json.dumps({"text": piece}) + "\n" for piece in pieces))
    return sum(len(piece.encode()) for piece in pieces) / 1e6, len(pieces)


def both(characters: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as directory:
        megabytes, documents = write(Path(directory) / "sample.jsonl", characters)
        return {"mb": megabytes, "documents": documents, "stages": stages(Path(directory))}


def rates(runs: list[dict]) -> dict[str, dict[str, float]]:
    """For each MB and each document, so that both runs come out; never below 0."""
    (long, short), found = runs, {}
    for stage in long["stages"]:
        found[stage] = {}
        for what in ("seconds", "bytes"):
            a, b = long["stages"][stage][what], short["stages"][stage][what]
            extra = (b - a * short["mb"] / long["mb"]) / (
                short["documents"] - long["documents"] * short["mb"] / long["mb"]
            )
            for_document = max(0.0, min(extra, b / short["documents"]))
            found[stage][f"{what}_per_document"] = for_document
            found[stage][f"{what}_per_mb"] = max(0.0, a - for_document * long["documents"]) / long["mb"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("characters", nargs="?", type=int)
    characters = parser.parse_args().characters
    if characters:
        here(lambda: both(characters))
        return
    attempts = [
        [alone(__file__, str(characters))["said"] for characters in CHARACTERS] for _ in range(REPEATS)
    ]
    runs = []
    for attempt in zip(*attempts, strict=True):
        least = {
            stage: {what: min(one["stages"][stage][what] for one in attempt) for what in ("seconds", "bytes")}
            for stage in attempt[0]["stages"]
        }
        runs.append({**attempt[0], "stages": least})
    report = {"runs": runs, "rates": {name: _rounded(rate) for name, rate in rates(runs).items()}}
    record("size", report, ("numba", "pyarrow", "gigatoken"))


def _rounded(rate: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{number:.2g}") for name, number in rate.items()}


if __name__ == "__main__":
    main()
