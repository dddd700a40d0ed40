"""What a part costs, whatever their number: many small files from JSON lines to token shards, in one process.

`python performance/many_parts.py 250 5000` makes corpora of as many files, each of five documents in two
parts, with words drawn at random, and prints processor milliseconds of a part in each stage.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from engines import of_the_cluster, of_this_process
from harness.alone import alone, here
from harness.sidebyside import record

from pipeline.recipe.sections import ShardParams
from pipeline.sources.files import FilesConfig
from pipeline.stages.bpe import TokenizerParams
from pipeline.stages.dedup import DedupParams
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES
from pipeline.store import keys
from pipeline.store.engines.local import Engine, LocalEngine
from pipeline.store.store import Store
from tests.pipeline.steps.make import collect, deduplicate, judge, scrub, tokenize, tokenizer
from tests.ray_cluster import engine_on, started

CORPUS = "many"
DOCUMENTS, WORDS, VOCABULARY = 5, 150, 20_000  # a file, a document, in all
PART_BYTES = 4_000  # a file is more than that, so that each has its own part


def write(directory: Path, files: int) -> None:
    drawn = random.Random(files)
    words = ["".join(drawn.choices("etaoinshrdlu", k=drawn.randint(2, 9))) for _ in range(VOCABULARY)]
    common = ["the", "of", "and", "to", "that", "with"]
    for number in range(files):
        texts = (
            " ".join(drawn.choices(words, k=6) + drawn.choices(common, k=3)) + ".\n"
            for _ in range(DOCUMENTS * WORDS // 9)
        )
        lines = list(texts)
        size = len(lines) // DOCUMENTS
        rows = ("".join(lines[first : first + size]) for first in range(0, size * DOCUMENTS, size))
        content = "".join(json.dumps({"text": text}) + "\n" for text in rows)
        (directory / f"{number:06d}.jsonl").write_text(content)


def run(files: int, engine: Engine) -> dict[str, float]:
    """The number of parts, the seconds, and the processor milliseconds of each stage for one part."""
    spent: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as directory, closing(engine):
        root = Path(directory)
        (root / "source").mkdir()
        write(root / "source", files)
        store, begun = Store(root / "store"), time.monotonic()

        def timed(stage: str, call: Callable[[], object]) -> None:
            before = processor()
            call()
            spent[stage] = round(1000 * (processor() - before) / made(), 2)

        def made() -> int:
            return len(store.current(keys.raw(CORPUS)).parts)

        config = FilesConfig(paths=(str(root / "source" / "*.jsonl"),))
        timed("raw", lambda: collect(store, engine, CORPUS, config, PART_BYTES))
        timed("scrubbed", lambda: scrub(store, engine, CORPUS, PiiParams()))
        timed("quality", lambda: judge(store, engine, CORPUS, PROFILES["none"]))
        timed("dedup", lambda: deduplicate(store, engine, [CORPUS], DedupParams()))
        params = TokenizerParams(vocab_size=1024)
        timed("tokenizer", lambda: tokenizer(store, engine, "benchmark", [CORPUS], params, 0.02))
        timed("shards", lambda: tokenize(store, engine, CORPUS, ShardParams()))
        seconds = round(time.monotonic() - begun)
        return {"parts": made(), "seconds": seconds, **spent, "all": round(sum(spent.values()), 2)}


def processor() -> float:
    """Seconds of this process, of those that it has waited for, and of Ray."""
    return of_this_process() + of_the_cluster()


def on_ray(files: int) -> dict[str, float]:
    with started() as cluster:
        return run(files, engine_on(cluster.address))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("files", type=int, nargs="+")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        here(lambda: on_ray(options.files[0]) if options.ray else run(options.files[0], LocalEngine(1)))
        return
    way = ["--ray"] if options.ray else []
    found = {str(files): alone(__file__, "--one", *way, str(files)) for files in options.files}
    report = {
        files: {"processor milliseconds a part": one["said"], "peak_mb": one["peak_mb"]}
        for files, one in found.items()
    }
    record(
        "many_parts_ray" if options.ray else "many_parts",
        report,
        ["pyarrow", "numpy", "ray"][: 2 + options.ray],
    )


if __name__ == "__main__":
    main()
