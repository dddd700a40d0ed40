"""What a part costs, whatever their number: many small files from JSON lines to token shards, in one process.

`python performance/many_parts.py 250 5000` makes corpora of as many files, each of five documents in two
parts, with words drawn at random, and prints processor milliseconds of a part in each stage.
"""

import argparse
import json
import random
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness.alone import alone, here
from harness.sidebyside import record

from pipeline.recipe.sections import ShardParams
from pipeline.sources.files import FilesConfig
from pipeline.stages.dedup import DedupParams
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES
from pipeline.stages.tokenizer import TokenizerParams
from pipeline.steps.corpus.ingest import collect
from pipeline.steps.corpus.quality import judge
from pipeline.steps.corpus.scrub import scrub
from pipeline.steps.dedup.dedup import deduplicate
from pipeline.steps.tokens.shards import tokenize
from pipeline.steps.tokens.tokenizer import tokenizer
from pipeline.store import keys
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store

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


def run(files: int) -> dict[str, float]:
    """The number of parts, and the processor milliseconds of each stage for one."""
    spent: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "source").mkdir()
        write(root / "source", files)
        store, engine = Store(root / "store"), LocalEngine(1)

        def timed(stage: str, call: Callable[[], object]) -> None:
            started = _processor()
            call()
            spent[stage] = round(1000 * (_processor() - started) / made(), 2)

        def made() -> int:
            return len(store.current(keys.raw(CORPUS)).parts)

        config = FilesConfig(paths=(str(root / "source" / "*.jsonl"),))
        timed("raw", lambda: collect(store, engine, CORPUS, config, PART_BYTES))
        timed("scrubbed", lambda: scrub(store, engine, CORPUS, PiiParams()))
        timed("quality", lambda: judge(store, engine, CORPUS, PROFILES["none"]))
        timed("dedup", lambda: deduplicate(store, engine, [CORPUS], DedupParams()))
        params = TokenizerParams(vocab_size=1024)
        timed("tokenizer", lambda: tokenizer(store, "benchmark", [CORPUS], params, 0.02))
        timed("shards", lambda: tokenize(store, engine, CORPUS, ShardParams()))
        return {"parts": made(), **spent, "all": round(sum(spent.values()), 2)}


def _processor() -> float:
    """Seconds of this process and of those that it has waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("files", type=int, nargs="+")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        here(lambda: run(options.files[0]))
        return
    found = {str(files): alone(__file__, "--one", str(files)) for files in options.files}
    report = {
        files: {"processor milliseconds a part": one["said"], "peak_mb": one["peak_mb"]}
        for files, one in found.items()
    }
    record("many_parts", report, ["pyarrow", "numpy"])


if __name__ == "__main__":
    main()
