"""From jsonl.zst to token shards through every stage and manifest, on one core and on two, beside datatrove's
chain on one; where time goes.

The sample corpora are shorter than the text that is measured. What follows after them is new documents of
their sentences, drawn at random: copies would be removed by dedup and never reach the tokenizer.

`python performance/data_half.py` needs the sample corpora in ../shared/corpora; datatrove (with spaCy) is
measured where importable, on a sample. Each run is a process of its own, with kernels compiled before and
found on disk. The tokenizer is trained in each, timed apart: it happens once.
"""

import argparse
import json
import os
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import zstandard
from harness.alone import alone, here
from harness.sidebyside import RESULTS, documents, importable, record, sample, size_of

from pipeline.recipe.sections import ShardParams
from pipeline.sources.files import FilesConfig
from pipeline.stages.bpe import TokenizerParams
from pipeline.stages.dedup import DedupParams
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.pipeline.steps.make import collect, deduplicate, judge, scrub, tokenize, tokenizer

NAMES = ("enwiki", "techdocs", "labelled/neardup_articles_2500", "books")
CORPUS = "sample"
FILES = 8
PART_BYTES = 16_000_000
# characters: longer texts are cut at paragraphs, so that there are documents of the usual lengths
PIECE = 8_000
# characters of a sentence: what is longer is a table
LONG = 500
SENTENCE = re.compile(r"(?<=[.!?]) +")
REPEATS = 3
TRAINING = "tokenizer"


def ours(prepared: Path, cores: int) -> dict[str, float]:
    """Seconds of each stage."""
    pa.set_cpu_count(cores)
    with closing(LocalEngine(cores)) as engine:
        return dict(stages(prepared, engine))


def stages(prepared: Path, engine: LocalEngine, part_bytes: int = PART_BYTES) -> Iterator[tuple[str, float]]:
    """Each stage and its seconds, when it has ended."""
    config = FilesConfig(paths=(str(prepared / "*.jsonl.zst"),))
    with tempfile.TemporaryDirectory() as directory:
        store = Store(Path(directory))
        calls: dict[str, Callable[[], object]] = {
            "raw": lambda: collect(store, engine, CORPUS, config, part_bytes),
            "scrubbed": lambda: scrub(store, engine, CORPUS, PiiParams()),
            "quality": lambda: judge(store, engine, CORPUS, PROFILES["default"]),
            "dedup": lambda: deduplicate(store, engine, [CORPUS], DedupParams()),
            TRAINING: lambda: tokenizer(store, engine, "benchmark", [CORPUS], TokenizerParams(), 0.02),
            "shards": lambda: tokenize(store, engine, CORPUS, ShardParams()),
        }
        for stage, call in calls.items():
            started = time.perf_counter()
            call()
            yield stage, time.perf_counter() - started


def datatrove(prepared: Path, cores: int) -> dict[str, float]:
    """Formatter and four filters, MinHash in four stages with as many bands and rows, and a tokenizer of
    ours, as it trains none.

    On one core only: on two it hung in half of the attempts.
    """
    from datatrove.executor.local import LocalPipelineExecutor
    from datatrove.pipeline import dedup, filters
    from datatrove.pipeline.formatters import PIIFormatter
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer
    from datatrove.pipeline.writers import JsonlWriter
    from datatrove.utils.hashing import HashConfig

    # sha1, because datatrove 0.10 hands strings to xxhash, which xxhash 4 refuses.
    bands = DedupParams()
    config = dedup.MinhashConfig(
        n_grams=5,
        num_buckets=bands.bands,
        hashes_per_bucket=bands.rows,
        hash_config=HashConfig(hash_fc="sha1"),
    )
    with tempfile.TemporaryDirectory() as directory:
        at = {
            name: f"{directory}/{name}"
            for name in ("clean", "signatures", "buckets", "removed", "kept", "tokens", "logs")
        }
        four = [
            filters.GopherRepetitionFilter(),
            filters.GopherQualityFilter(),
            filters.C4QualityFilter(),
            filters.FineWebQualityFilter(),
        ]
        steps_of = {
            "format and filter": [
                JsonlReader(str(prepared)),
                PIIFormatter(),
                *four,
                JsonlWriter(at["clean"]),
            ],
            "signatures": [
                JsonlReader(at["clean"]),
                dedup.MinhashDedupSignature(at["signatures"], config=config),
            ],
            "buckets": [dedup.MinhashDedupBuckets(at["signatures"], at["buckets"], config=config)],
            "cluster": [dedup.MinhashDedupCluster(at["buckets"], at["removed"], config=config)],
            "filter": [
                JsonlReader(at["clean"]),
                dedup.MinhashDedupFilter(at["removed"]),
                JsonlWriter(at["kept"]),
            ],
            "tokens": [
                JsonlReader(at["kept"]),
                DocumentTokenizer(at["tokens"], str(prepared.with_suffix(".json")), eos_token="[EOT]"),
            ],
        }
        seconds = {}
        for stage, steps in steps_of.items():
            tasks = {"buckets": config.num_buckets, "cluster": 1}.get(stage, cores)
            started = time.perf_counter()
            LocalPipelineExecutor(
                steps, tasks=tasks, workers=min(cores, tasks), logging_dir=f"{at['logs']}/{stage}"
            ).run()
            seconds[stage] = time.perf_counter() - started
    return seconds


CHAINS: dict[str, Callable[[Path, int], dict[str, float]]] = {"ours": ours, "datatrove": datatrove}


def prepared_texts(megabytes: float) -> list[str]:
    """The sample corpora in pieces, then as many documents drawn from their sentences as are missing."""
    pieces = [piece for name in NAMES for row in documents(name) for piece in _pieces(row["text"])]
    found, size = [], 0.0
    for text in _endless(pieces):
        if size >= megabytes * 1e6:
            break
        found.append(text)
        size += len(text.encode())
    return found


def _pieces(text: str) -> Iterator[str]:
    piece = ""
    for paragraph in text.split("\n\n"):
        if piece and len(piece) + len(paragraph) > PIECE:
            yield piece
            piece = ""
        piece += paragraph + "\n\n"
    yield piece


def _endless(pieces: Sequence[str]) -> Iterator[str]:
    """These texts, then others of as many sentences, drawn from all of them."""
    yield from pieces
    drawn = random.Random(0)
    counts = [len(SENTENCE.findall(piece)) + 1 for piece in pieces]
    sentences = [sentence for piece in pieces for sentence in SENTENCE.split(piece) if len(sentence) <= LONG]
    while True:
        yield from (" ".join(drawn.choices(sentences, k=count)) for count in counts)


def write(directory: Path, found: list[str], files: int = FILES) -> float:
    """So many files of JSON lines; their megabytes of text."""
    directory.mkdir()
    for number in range(files):
        lines = "".join(
            json.dumps({"id": f"{number}-{row}", "text": text}) + "\n"
            for row, text in enumerate(found[number::files])
        )
        (directory / f"{number}.jsonl.zst").write_bytes(zstandard.compress(lines.encode()))
    return size_of(found)


def medians(chain: str, prepared: Path, cores: int, repeats: int) -> tuple[dict[str, float], int]:
    """Seconds of each stage, and the peak of memory in MB."""
    runs = [alone(__file__, "--one", chain, str(prepared), str(cores)) for _ in range(repeats)]
    stages = {
        stage: round(statistics.median(run["said"][stage] for run in runs), 3) for stage in runs[0]["said"]
    }
    return stages, max(run["peak_mb"] for run in runs)


def draw(report: dict[str, Any], megabytes: float) -> None:
    """Stacked bars: seconds of each stage, one bar for each number of cores."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    bars = {name: report[name]["seconds"] for name in ("one core", "two cores")}
    stages, colors = (
        list(bars["one core"]),
        ["#c6dbef", "#6baed6", "#2171b5", "#08306b", "#fdae6b", "#d94801"],
    )
    for place, (name, seconds) in enumerate(bars.items()):
        left = 0.0
        for stage, color in zip(stages, colors, strict=True):
            axes.barh(
                place,
                seconds[stage],
                left=left,
                color=color,
                edgecolor="white",
                label=stage if place == 0 else None,
            )
            if seconds[stage] > 0.04 * sum(bars["one core"].values()):
                dark = color in ("#2171b5", "#08306b", "#d94801")
                axes.text(
                    left + seconds[stage] / 2,
                    place,
                    f"{seconds[stage]:.1f}",
                    ha="center",
                    va="center",
                    color="white" if dark else "black",
                )
            left += seconds[stage]
        axes.text(
            left, place, f"  {report[name]['mb_per_s']} MB/s\n  without training", va="center", fontsize=8
        )
    axes.set_yticks(range(len(bars)), list(bars))
    axes.invert_yaxis()
    axes.set(
        xlabel="seconds",
        title=f"{megabytes:.0f} MB from jsonl.zst to token shards",
        xlim=(0, 1.2 * sum(bars["one core"].values())),
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=len(stages), fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.22))
    figure.savefig(RESULTS / "data_half.png")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--megabytes", type=float, default=350)
    options.add_argument("--peer-megabytes", type=float, default=1.5)
    options.add_argument("--one", nargs=3, metavar=("CHAIN", "PREPARED", "CORES"), help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.one:
        chain, prepared, cores = chosen.one
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
        here(lambda: CHAINS[chain](Path(prepared), int(cores)))
        return
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        found = prepared_texts(chosen.megabytes)
        few = sample(found, chosen.peer_megabytes)
        everything, part = directory / "all", directory / "few"
        megabytes, few_megabytes = write(everything, found), write(part, few)
        medians("ours", part, 1, 1)  # compiles
        report: dict[str, Any] = {"documents": len(found), "mb": round(megabytes, 1)}
        for label, cores in (("one core", 1), ("two cores", 2)):
            seconds, peak = medians("ours", everything, cores, REPEATS)
            work = sum(seconds.values()) - seconds[TRAINING]
            speed, with_training = (round(megabytes / spent, 2) for spent in (work, sum(seconds.values())))
            report[label] = {
                "seconds": seconds,
                "mb_per_s": speed,
                "mb_per_s_with_training": with_training,
                "peak_mb": peak,
            }
        draw(report, megabytes)
        if importable("datatrove", "spacy"):
            report["datatrove, one core"] = beside_datatrove(directory, part, few_megabytes, report)
        record("data_half", report, ("numba", "pyarrow", "gigatoken", "tokenizers", "datatrove", "spacy"))


def beside_datatrove(directory: Path, part: Path, megabytes: float, report: dict[str, Any]) -> dict[str, Any]:
    store = Store(directory / "vocabulary")
    engine = LocalEngine(1)
    collect(store, engine, CORPUS, FilesConfig(paths=(str(part / "*.jsonl.zst"),)), PART_BYTES)
    scrub(store, engine, CORPUS, PiiParams())
    judge(store, engine, CORPUS, PROFILES["default"])
    deduplicate(store, engine, [CORPUS], DedupParams())
    made = tokenizer(store, LocalEngine(1), "benchmark", [CORPUS], TokenizerParams(vocab_size=4096), 0.02)
    part.with_suffix(".json").write_bytes((made.path / "tokenizer.json").read_bytes())
    seconds, _ = medians("datatrove", part, 1, 1)
    speed = megabytes / sum(seconds.values())
    return {
        "mb": round(megabytes, 2),
        "seconds": seconds,
        "mb_per_s": round(speed, 3),
        "ratio": round(report["one core"]["mb_per_s"] / speed, 1),
    }


if __name__ == "__main__":
    main()
