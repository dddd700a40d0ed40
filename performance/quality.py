"""Quality signals and verdicts beside datatrove's four filters: speed on one core and two, memory, and how
often the verdicts agree.

`python performance/quality.py` needs the sample corpora in ../shared/corpora; datatrove (with spaCy) is
measured where importable, with its default splitter and with str.split() (and a regular expression for
sentences), on a smaller sample of the same documents. Speeds are medians of processor time, the contenders
taking turns.
"""

import re
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
from harness.processes import peak_mb, scaling
from harness.sidebyside import Contender, Report, importable, measure, record, sample, size_of, texts
from harness.stored import CORPUS, stored

from pipeline.stages.quality import PROFILES, QualityParams, judge
from pipeline.stages.quality import measure as signals_of
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.pipeline.steps.make import judge as judge_step

FILES = ("books", "enwiki", "techdocs", "labelled/neardup_articles_2500")
MEGABYTES, SAMPLE_MEGABYTES, BATCH_ROWS = 100, 1.5, 500

SENTENCE = re.compile(r"(?<=[.!?])\s+")

Verdicts = dict[str, list[bool]]
Split = Callable[[str, str], list[str]]


def batches(found: list[str]) -> list[pa.RecordBatch]:
    parts = [found[row : row + BATCH_ROWS] for row in range(0, len(found), BATCH_ROWS)]
    return [
        pa.record_batch(
            {"id": [f"{row:08}" for row in range(len(part))], "text": pa.array(part, pa.large_string())}
        )
        for part in parts
    ]


def all_signals(parts: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return [signals_of(part) for part in parts]


def share_of_ours(share: int, shares: int) -> Callable[[], object]:
    pa.set_cpu_count(1)
    return partial(all_signals, batches(texts(FILES, MEGABYTES)[share::shares]))


def judged(measured: list[pa.RecordBatch]) -> None:
    for signals in measured:
        judge(signals, QualityParams())


def ours(parts: list[pa.RecordBatch]) -> Verdicts:
    measured = pa.Table.from_batches(all_signals(parts)).combine_chunks().to_batches()[0]
    return {
        name: judge(measured, PROFILES[name])["keep"].to_pylist()
        for name in ("gopher", "gopher-repetition", "c4", "fineweb")
    }


def datatrove(texts: list[str], words: Split | None = None, sentences: Split | None = None) -> Verdicts:
    """Each filter on each document, document by document as in a datatrove pipeline, so that its cache of
    split words serves all four.
    """
    from datatrove.data import Document
    from datatrove.pipeline import filters
    from datatrove.utils.text import split_into_sentences, split_into_words

    for module in (
        filters.gopher_quality_filter,
        filters.gopher_repetition_filter,
        filters.fineweb_quality_filter,
    ):
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


def agreement(mine: Verdicts, theirs: Verdicts) -> dict[str, float]:
    return {
        name: round(statistics.mean(a == b for a, b in zip(mine[name], theirs[name], strict=True)), 4)
        for name in mine
    }


def judge_stored(root: Path) -> None:
    judge_step(Store(root), LocalEngine(1), CORPUS, QualityParams())


def main() -> None:
    pa.set_cpu_count(1)
    found = texts(FILES, MEGABYTES)
    few = sample(found, SAMPLE_MEGABYTES)
    parts, some = batches(found), batches(few)
    contenders = {"groundwork, signals and verdicts": Contender(size_of(few), partial(ours, some))}
    if importable("datatrove", "spacy"):
        contenders["datatrove, white-space splitter"] = Contender(
            size_of(few), partial(datatrove, few, white_space, plain_sentences)
        )
        contenders["datatrove, default splitter"] = Contender(size_of(few), partial(datatrove, few))
    alone = {
        "all signals": Contender(size_of(found), partial(all_signals, parts)),
        "verdicts from signals": Contender(size_of(found), partial(judged, all_signals(parts))),
    }
    report: Report = {
        "corpus": {"documents": len(found), "mb": round(size_of(found), 1)},
        "one_core": measure(alone, time.process_time),
        "one_core_on_a_sample": measure(contenders, time.process_time),
        "processes": scaling(share_of_ours, size_of(found)),
    }
    if importable("datatrove", "spacy"):
        mine = ours(some)
        report["same_verdict_on_the_sample"] = {
            "white-space splitter": agreement(mine, datatrove(few, white_space)),
            "default splitter": agreement(mine, datatrove(few)),
        }
    with stored(FILES[:3]) as root:
        report["peak_mb_of_a_worker_on_a_stored_part"] = peak_mb(judge_stored, root)
    record("quality", report, ("numba", "pyarrow", "datatrove", "spacy"))


if __name__ == "__main__":
    main()
