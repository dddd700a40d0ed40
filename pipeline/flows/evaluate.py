"""A finished run -> evaluation: bits per byte on all held-out text beside what compressors need for it, and samples."""

import bz2
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from pipeline.errors import PipelineError
from pipeline.flows import train as train_flow
from pipeline.store import File, Part, Store, Version, Work, write_atomically
from trainer import launch
from trainer.shards import Shard

VERSION = "evaluate-1"
KEY = "evaluation"
SAMPLE_SEED = 1


class EvaluationError(PipelineError):
    """The trainer could not evaluate a checkpoint."""


def evaluate(store: Store, corpora: Sequence[str], prompts: Sequence[str]) -> Version:
    """Evaluates the final checkpoint of the current run: `evaluation.json`."""
    model = store.current(train_flow.KEY)
    with store.making(Work(KEY, VERSION, {"prompts": list(prompts)}, {model.key: model.data_version})) as draft:
        if isinstance(draft, Version):
            return draft
        result = train_flow.result(store)
        config = result["run_dir"] / "config.yaml"
        facts = json.loads(_trainer("evaluate", str(result["checkpoint"]), "--config", str(config)))
        text = held_out_text(store, corpora)
        facts["held_out_bytes"] = len(text)
        facts["compressors"] = compressed_bits_per_byte(text)
        facts["samples"] = [{"prompt": prompt, "text": sample(result["checkpoint"], prompt)} for prompt in prompts]
        path = draft.path / "evaluation.json"
        write_atomically(path, json.dumps(facts, indent=1, ensure_ascii=False))
        return draft.publish([Part(KEY, draft.work.fingerprint, {"evaluation": File.of(path, draft.path)}, {"held_out_bytes": len(text)})])


def read(version: Version) -> dict[str, Any]:
    """What an evaluation found."""
    return json.loads((version.path / "evaluation.json").read_text(encoding="utf-8"))


def sample(checkpoint: Path, prompt: str) -> str:
    """A continuation that the model writes, the same one each time."""
    return _trainer("generate", str(checkpoint), "--prompt", prompt, "--seed", str(SAMPLE_SEED)).strip()


def held_out_text(store: Store, corpora: Sequence[str]) -> bytes:
    """The validation documents of all corpora, decoded from their shards, end to end. Byte-level BPE gives back every byte."""
    tokenizer = Tokenizer.from_file(str(store.current("tokenizer").path / "tokenizer.json"))
    texts: list[str] = []
    for corpus in corpora:
        for path in store.current(f"token_shards/{corpus}").files("validation.bin"):
            shard = Shard(path.with_suffix(""))
            documents = [shard.document(i)[1:-1].tolist() for i in range(shard.num_documents)]
            texts += tokenizer.decode_batch(documents, skip_special_tokens=False)
    return "".join(texts).encode()


def compressed_bits_per_byte(text: bytes) -> dict[str, float]:
    """What general compressors need per byte of the same text: a model that needs more has learnt little."""
    return {
        "xz -9": 8 * len(lzma.compress(text, preset=9)) / len(text),
        "bzip2 -9": 8 * len(bz2.compress(text, 9)) / len(text),
    }


def _trainer(*arguments: str) -> str:
    """Standard output of `python -m trainer ...`. Raises EvaluationError with the last line of its error output."""
    environment = {**os.environ, **launch.environment(None)}
    ended = subprocess.run([sys.executable, "-m", "trainer", *arguments], capture_output=True, text=True, env=environment, check=False)
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or ["it said nothing"]
        raise EvaluationError(f"`python -m trainer {arguments[0]}` ended with exit status {ended.returncode}: {lines[-1]}")
    return ended.stdout
