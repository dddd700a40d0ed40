"""Compiles the kernels of the later stages on a free core while a first run reads and scrubs its text.

The first call of a kernel compiles it, which takes seconds to half a minute on one core; what was compiled is
kept beside the code. Scrubbing comes first in a run, so the run compiles that itself.
"""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

import pipeline.stages
from pipeline.sources.files import FilesConfig
from pipeline.stages import dedup, quality
from pipeline.stages import tokenizer as bpe
from pipeline.steps.files import tables
from pipeline.store.engine import LocalEngine
from trainer.system.signals import stop_with_parent

STAGES = Path(pipeline.stages.__file__).parent
TEXT = "The kernels are compiled for the types of their arguments, whatever text these hold, so any will do. "


@cache
def start() -> None:
    """Starts this once, in a process that ends with the present one, unless kernels were compiled before."""
    cache = Path(os.environ.get("NUMBA_CACHE_DIR") or STAGES)
    if os.access(cache, os.W_OK) and not any(cache.rglob("*.nbi")):
        command = [sys.executable, "-m", "pipeline.steps.compile_ahead"]
        quiet = subprocess.DEVNULL
        subprocess.Popen(command, stdout=quiet, stderr=quiet, preexec_fn=stop_with_parent)


def main() -> None:
    engine, documents = LocalEngine(workers=1), [TEXT * times for times in (20, 20, 21)]
    with TemporaryDirectory() as directory:
        place = Path(directory)
        rows = [json.dumps({"id": str(number), "text": text}) for number, text in enumerate(documents)]
        (place / "documents.jsonl").write_text("\n".join(rows), encoding="utf-8")
        files = FilesConfig(paths=(str(place / "*.jsonl"),))
        tables.judge(files, place, quality.PROFILES["default"], engine, _no_progress)
        tables.deduplicate(files, place, dedup.DedupParams(), engine, _no_progress)
    bpe.train([pa.array(documents)], bpe.TokenizerParams(vocab_size=270))


def _no_progress(done: int, total: int) -> None:
    pass


if __name__ == "__main__":
    main()
