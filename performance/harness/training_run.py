"""A training run on given text: tokenizer, shards, and the configuration that `python -m trainer` reads."""

import hashlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from tokenizers import Tokenizer

from harness.turns import Turns
from pipeline.stages import bpe
from trainer.data.shard_writer import ShardWriter


def write(
    directory: Path, tokenizer: Tokenizer, train: Iterable[str], validation: str, training: dict[str, Any]
) -> Path:
    """The path of the configuration. Shards are `train` and `validation` in `directory`, documents end to end
    between [BOT] and [EOT].
    """
    (directory / "tokenizer").mkdir()
    for name, content in bpe.files(tokenizer).items():
        (directory / "tokenizer" / name).write_text(content)
    begin, end = (tokenizer.token_to_id(bpe.SPECIALS[key]) for key in ("bos_token", "eos_token"))
    for name, texts in (("train", train), ("validation", [validation])):
        with ShardWriter(directory / name, np.dtype("<u2")) as writer:
            for text in texts:
                writer.add(np.array([begin, *tokenizer.encode(text).ids, end]))
    corpus = {"name": "text", "weight": 1, "train": [str(directory / "train")]}
    corpus |= {"validation": [str(directory / "validation")], "validation_bytes": len(validation.encode())}
    data = {
        "tokenizer": str(directory / "tokenizer"),
        "tokenizer_sha256": hashlib.sha256(
            (directory / "tokenizer" / "tokenizer.json").read_bytes()
        ).hexdigest(),
        "vocab_size": tokenizer.get_vocab_size(),
        "bot_id": begin,
        "eot_id": end,
        "corpora": [corpus],
    }
    path = directory / "config.yaml"
    path.write_text(yaml.safe_dump({"run_dir": str(directory / "run"), "data": data, "training": training}))
    return path


def paced(config: Path, *overrides: str) -> None:
    """The run of `python -m trainer` in turns with others; a step lasts from the request for its batch to
    that for the next one.
    """
    from trainer.config import load_run_config
    from trainer.run import loop
    from trainer.system.prefetch import ahead

    turns = Turns()

    def in_turns(batches: Iterator[np.ndarray]) -> Generator[np.ndarray]:
        with closing(ahead(batches)) as coming:
            while True:
                turns.next()
                yield next(coming)

    loop.ahead = in_turns
    loop.run(load_run_config(config, list(overrides)))
