"""Quality signals and verdicts beside datatrove's four filters, on one core: speed, and how often the verdicts agree.

`python benchmarks/quality.py` needs the sample corpora in ../shared/corpora; datatrove (with spaCy) is measured where importable, with its default
splitter and with str.split() (and a regular expression for sentences). Contenders take turns; figures are medians of processor time, which other
work on the machine disturbs least. datatrove gets a smaller sample of the same documents, and ours is measured on that sample too.
"""

import datetime
import importlib.util
import io
import json
import os
import platform
import re
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import zstandard

from pipeline.stages.quality import PROFILES, QualityParams, judge, measure

ROOT = Path(__file__).parents[1]
CORPORA = ROOT.parent / "shared" / "corpora"
RESULTS = ROOT / "benchmarks" / "results" / "quality.json"
FILES = ("books", "enwiki", "techdocs", "labelled/neardup_articles_2500")
REPEATS, SAMPLE_EVERY = 5, 40

SENTENCE = re.compile(r"(?<=[.!?])\s+")

Verdicts = dict[str, list[bool]]
Split = Callable[[str, str], list[str]]


def corpus() -> list[str]:
    texts = []
    for name in FILES:
        with (CORPORA / f"{name}.jsonl.zst").open("rb") as file:
            lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
            texts += [json.loads(line)["text"] for line in lines]
    return texts


def batch(texts: list[str]) -> pa.RecordBatch:
    return pa.record_batch({"id": [f"{i:08}" for i in range(len(texts))], "text": pa.array(texts, pa.large_string())})


def ours(documents: pa.RecordBatch) -> Verdicts:
    signals = measure(documents)
    return {name: judge(signals, PROFILES[name])["keep"].to_pylist() for name in ("gopher", "gopher-repetition", "c4", "fineweb")}


def datatrove(texts: list[str], words: Split | None = None, sentences: Split | None = None) -> Verdicts:
    """Each filter on each document, document by document as in a datatrove pipeline, so that its cache of split words serves all four."""
    from datatrove.data import Document
    from datatrove.pipeline import filters
    from datatrove.utils.text import split_into_sentences, split_into_words

    for module in (filters.gopher_quality_filter, filters.gopher_repetition_filter, filters.fineweb_quality_filter):
        module.split_into_words = words or split_into_words
    filters.c4_filters.split_into_sentences = sentences or split_into_sentences
    peers = {
        "gopher": filters.GopherQualityFilter(),
        "gopher-repetition": filters.GopherRepetitionFilter(),
        "c4": filters.C4QualityFilter(),
        "fineweb": filters.FineWebQualityFilter(),
    }
    verdicts: Verdicts = {name: [] for name in peers}
    for text in texts:
        for name, peer in peers.items():
            verdicts[name].append(peer.filter(Document(text=text, id="")) is True)
    return verdicts


def white_space(text: str, language: str) -> list[str]:
    return text.split()


def plain_sentences(text: str, language: str) -> list[str]:
    return SENTENCE.split(text)


def speeds(contenders: dict[str, tuple[float, Callable[[], object]]]) -> dict[str, dict[str, float]]:
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for run in range(REPEATS + 1):
        for name, (_, call) in contenders.items():
            started = time.process_time()
            call()
            if run:
                seconds[name].append(time.process_time() - started)
    return {name: {"mb": round(size, 1), "mb_per_s": round(size / statistics.median(seconds[name]), 2)} for name, (size, _) in contenders.items()}


def agreement(mine: Verdicts, theirs: Verdicts) -> dict[str, float]:
    return {name: round(statistics.mean(a == b for a, b in zip(mine[name], theirs[name], strict=True)), 4) for name in mine}


def megabytes(texts: list[str]) -> float:
    return sum(len(text.encode()) for text in texts) / 1e6


def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.+)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return named[1] if named else platform.processor() or platform.machine()


def main() -> None:
    pa.set_cpu_count(1)
    texts = corpus()
    few = texts[::SAMPLE_EVERY]
    documents, some = batch(texts), batch(few)
    signals = measure(documents)
    contenders: dict[str, tuple[float, Callable[[], object]]] = {
        "groundwork, all signals": (megabytes(texts), lambda: measure(documents)),
        "groundwork, verdicts from signals": (megabytes(texts), lambda: judge(signals, QualityParams())),
        "groundwork, signals and verdicts, sample": (megabytes(few), lambda: ours(some)),
    }
    report: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{processor()}, {os.cpu_count()} cores, one used, Python {platform.python_version()}",
        "corpus": {"documents": len(texts), "mb": round(megabytes(texts), 1)},
        "sample": {"documents": len(few), "mb": round(megabytes(few), 1)},
    }
    has_datatrove = importlib.util.find_spec("datatrove") is not None
    report["versions"] = {name: version(name) for name in ("numba", "pyarrow", *(("datatrove", "spacy") if has_datatrove else ()))}
    if has_datatrove:
        contenders["datatrove, white-space splitter, sample"] = megabytes(few), lambda: datatrove(few, white_space, plain_sentences)
        contenders["datatrove, default splitter, sample"] = megabytes(few), lambda: datatrove(few)
    report["speed"] = speeds(contenders)
    if has_datatrove:
        sample_speed = report["speed"]["groundwork, signals and verdicts, sample"]["mb_per_s"]
        report["times_as_fast_on_the_sample"] = {
            name: round(sample_speed / report["speed"][name]["mb_per_s"]) for name in contenders if name.startswith("datatrove")
        }
        report["same_verdict_on_the_sample"] = {
            "white-space splitter": agreement(ours(some), datatrove(few, white_space)),
            "default splitter": agreement(ours(some), datatrove(few)),
        }
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
