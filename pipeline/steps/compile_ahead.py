"""Compiles the kernels while a first run reads its text, in two processes.

The first call of a kernel compiles it, which takes seconds on one core; what was compiled is kept beside the
code. Scrubbing takes half of the time and comes first, so one process compiles that and the run waits for it.
The other compiles the kernels of the later stages.
"""

import gc
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
from pipeline.stages import dedup, pii, quality
from pipeline.stages import tokenizer as bpe
from pipeline.steps import plain_files
from pipeline.steps.compiling import compiling
from pipeline.store.engines.local import LocalEngine
from trainer.system.signals import stop_with_parent

STAGES = Path(pipeline.stages.__file__).parent
# Kernels are compiled for types, whatever the text says. The address is there for scrubbing to replace.
TEXT = "The kernels are compiled for the types of their arguments; questions go to someone@example.org. "


_scrubbing: list[subprocess.Popen[bytes]] = []


@cache
def start() -> None:
    """Starts both once, to end with the present process, unless kernels were compiled before."""
    cache = Path(os.environ.get("NUMBA_CACHE_DIR") or STAGES)
    if os.access(cache, os.W_OK) and not any(cache.rglob("*.nbi")):
        _scrubbing.append(_started("scrubbing"))
        _started("later")


def wait_for_scrubbing() -> None:
    """Returns when no process compiles scrubbing any more, whether or not it did."""
    with compiling("pii"):
        for process in _scrubbing:
            process.wait()


def _started(kernels: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pipeline.steps.compile_ahead", kernels]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=quiet, stderr=quiet, preexec_fn=stop_with_parent)


def main(kernels: str) -> None:
    gc.disable()  # looks through all that compiling leaves after each kernel: 6% of the time
    engine, documents = LocalEngine(workers=1), [TEXT * times for times in (20, 20, 21)]
    with TemporaryDirectory() as directory:
        place = Path(directory)
        rows = [json.dumps({"id": str(number), "text": text}) for number, text in enumerate(documents)]
        (place / "documents.jsonl").write_text("\n".join(rows), encoding="utf-8")
        files = FilesConfig(paths=(str(place / "*.jsonl"),))
        if kernels == "scrubbing":
            plain_files.scrub(files, place / "scrubbed", pii.PiiParams(), engine, lambda _: None)
            return
        plain_files.judge(files, place, quality.PROFILES["default"], engine, lambda _: None)
        plain_files.deduplicate(files, place, dedup.DedupParams(), engine, lambda _: None)
    words = bpe.count_words([pa.array(documents)], "llama3", single_digits=False)
    bpe.train_on_words(bpe.added([words]), bpe.TokenizerParams(vocab_size=270))


if __name__ == "__main__":
    main(sys.argv[1])
