"""Dedup beside its peers: signatures, the whole of it from Parquet to decisions, and whether the decisions
are right.

`python performance/dedup.py [MEGABYTES]` needs the sample corpora in ../shared/corpora; rensa, Daft and
datatrove (with spaCy) are measured where importable. All on one core, but for the last of ours. Slow peers
get a smaller sample of the same documents.
"""

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from harness.dedup_corpus import batch, parquet, stored, with_duplicates
from harness.dedup_truth import labelled, quality, similar_pairs
from harness.sidebyside import Contender, Report, importable, measure, record, sample, size_of
from peers import dedup as peers

from pipeline.stages.dedup import signatures
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.pipeline.steps.make import deduplicate

PEER_MEGABYTES, SLOW_MEGABYTES, QUALITY_MEGABYTES = 10, 1, 12
NAMES = ("enwiki", "techdocs", "labelled/neardup_articles_2500", "books")


@contextmanager
def one_core() -> Iterator[None]:
    """Whatever threads a contender starts, they share one core."""
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(all_cores)})
    pa.set_cpu_count(1)
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_cores)


def signature_contenders(texts: list[str]) -> dict[str, Contender]:
    """All with 256 permutations of word 5-grams."""
    whole, some, few = batch(texts), sample(texts, PEER_MEGABYTES), sample(texts, SLOW_MEGABYTES)
    contenders = {
        "groundwork": Contender(size_of(texts), lambda: signatures(whole, peers.PARAMS)),
        "datasketch batch, sha1": Contender(
            size_of(few), lambda: [peers.datasketch_signature(text) for text in few]
        ),
        "datasketch batch, xxh32": Contender(
            size_of(some), lambda: [peers.datasketch_signature(text, peers.xxh32) for text in some]
        ),
    }
    if importable("rensa"):
        contenders["rensa"] = Contender(size_of(some), lambda: peers.rensa_signatures(some))
    if importable("daft"):
        contenders["daft minhash, xxhash64"] = Contender(size_of(some), peers.daft_signatures(some))
    if importable("datatrove", "spacy"):
        contenders["datatrove, sha1"] = Contender(size_of(few), peers.datatrove_signatures(few))
    return contenders


def flow(store: Store, engine: LocalEngine) -> Callable[[], object]:
    """The flow from scratch, on the text that is in the store."""

    def run() -> None:
        for key in ("corpora/text/signatures", "dedup", "dedup_evidence"):
            shutil.rmtree(store.root / key, ignore_errors=True)
        deduplicate(store, engine, ["text"], peers.PARAMS)

    return run


def end_to_end_contenders(texts: list[str], folder: Path) -> dict[str, Contender]:
    """Parquet to the documents to remove."""
    some, few = sample(texts, PEER_MEGABYTES), sample(texts, SLOW_MEGABYTES)
    whole, some_path, few_path, megabytes = (
        parquet(texts, folder),
        parquet(some, folder),
        parquet(few, folder),
        size_of(texts),
    )
    store = Store(folder / "store")
    stored(store, "text", texts)
    contenders = {
        "groundwork, in memory": Contender(megabytes, lambda: peers.ours(whole)),
        "groundwork, the flow on one process": Contender(megabytes, flow(store, LocalEngine(1))),
        "datasketch LSH loop, 32x8": Contender(
            size_of(some), lambda: peers.datasketch_loop(some_path, 32, 8)
        ),
    }
    if importable("rensa"):
        contenders["rensa LSH loop, 32 bands"] = Contender(size_of(some), lambda: peers.rensa_loop(some_path))
    if importable("datatrove", "spacy"):
        contenders["datatrove, four stages, 32x8, sha1"] = Contender(
            size_of(few), lambda: peers.datatrove_stages(few_path, 32, 8)
        )
    return contenders


def on_all_cores(texts: list[str], folder: Path) -> Report:
    """The flow on one process and on as many as there are cores."""
    store, cores = Store(folder / "spread"), len(os.sched_getaffinity(0))
    stored(store, "text", texts)
    alone, together = LocalEngine(1), LocalEngine(cores)
    try:
        contenders = {
            f"the flow on {engine.workers} processes": Contender(size_of(texts), flow(store, engine))
            for engine in (together, alone)
        }
        return measure(contenders)
    finally:
        together.close()


def removals(folder: Path) -> dict[str, Callable[[list[str]], set[int]]]:
    """Which texts each removes. Peers as their documentation has them."""
    found: dict[str, Callable[[list[str]], set[int]]] = {
        "groundwork": lambda texts: peers.ours(parquet(texts, folder)),
        "datasketch LSH loop, 32x8": lambda texts: peers.datasketch_loop(parquet(texts, folder), 32, 8),
        "datasketch LSH loop, threshold=0.8": lambda texts: peers.datasketch_loop(parquet(texts, folder)),
    }
    if importable("rensa"):
        found["rensa LSH loop, 32 bands"] = lambda texts: peers.rensa_loop(parquet(texts, folder))
    if importable("datatrove", "spacy"):
        found["datatrove, four stages, 14x8"] = lambda texts: peers.datatrove_stages(
            parquet(texts, folder), 14, 8
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("megabytes", nargs="?", type=float, default=100)
    texts = with_duplicates(NAMES, megabytes := parser.parse_args().megabytes)
    texts = sample(texts, megabytes)
    edited = sample(with_duplicates(("enwiki", "techdocs"), 70), QUALITY_MEGABYTES)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with one_core():
            signed, whole = measure(signature_contenders(texts)), measure(end_to_end_contenders(texts, place))
        spread = on_all_cores(texts, place)
        articles, pairs = labelled(peers.PARAMS.threshold)
        truths = {
            "neardup_articles_2500, labelled": (articles, pairs),
            "enwiki and techdocs, edited": (edited, similar_pairs(edited, peers.PARAMS)),
        }
        report: Report = {
            "corpus": {"documents": len(texts), "mb": round(size_of(texts), 1)},
            "params": peers.PARAMS.model_dump(),
            "signatures": signed,
            "end_to_end": whole,
            "spread": spread,
            "quality": {
                name: quality(removals(place), found, similar) for name, (found, similar) in truths.items()
            },
        }
    record(
        "dedup", report, ("numba", "pyarrow", "numpy", "datasketch", "rensa", "daft", "datatrove", "xxhash")
    )


if __name__ == "__main__":
    main()
