"""Compiles the kernels by working on three short documents, as a process of `compile_ahead`."""

import gc
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from pipeline.sources.files import FilesConfig
from pipeline.stages import bpe, dedup, pii, quality
from pipeline.steps import plain_files
from pipeline.steps.compile_ahead import SCRUBBING
from pipeline.store.engines.local import LocalEngine

# Kernels are compiled for types, whatever the text says. The address is there for scrubbing to replace.
TEXT = "The kernels are compiled for the types of their arguments; questions go to someone@example.org. "


def main(kernels: str) -> None:
    gc.disable()  # looks through all that compiling leaves after each kernel: 6% of the time
    engine, documents = LocalEngine(workers=1), [TEXT * times for times in (20, 20, 21)]
    with TemporaryDirectory() as directory:
        place = Path(directory)
        rows = [json.dumps({"id": str(number), "text": text}) for number, text in enumerate(documents)]
        (place / "documents.jsonl").write_text("\n".join(rows), encoding="utf-8")
        files = FilesConfig(paths=(str(place / "*.jsonl"),))
        if kernels == SCRUBBING:
            plain_files.scrub(files, place / "scrubbed", pii.PiiParams(), engine, lambda _: None)
            return
        plain_files.judge(files, place, quality.PROFILES["default"], engine, lambda _: None)
        plain_files.deduplicate(files, place, dedup.DedupParams(), engine, lambda _: None)
    words = bpe.count_words([pa.array(documents)], "llama3", single_digits=False)
    bpe.train_on_words(bpe.added([words]), bpe.TokenizerParams(vocab_size=270))


if __name__ == "__main__":
    main(sys.argv[1])
