"""Pretrained weights: finds them, checks that they fit, and identifies them."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from trainer.config import DataConfig, ModelConfig, PretrainedConfig
from trainer.config.hugging_face import check_shape, check_vocabulary, file_of, read_size, weight_files
from trainer.config.model_files import TOKENIZER
from trainer.config.peft import downloaded
from trainer.hf.tokenizer import load_tokenizer
from trainer.system.hub import downloading


@dataclass(frozen=True)
class Pretrained:
    """A directory of weights that fit a run; `sha256`, over the hashes of their files, identifies them.
    `context`: the tokens that the model knows at a time.
    """

    directory: Path
    sha256: str
    context: int

    @classmethod
    def find(
        cls, source: PretrainedConfig, model: ModelConfig, data: DataConfig, learns_tokens: bool = True
    ) -> "Pretrained":
        """Finds the weights, downloading them if need be, and checks them.

        Raises TrainerError when they cannot be read, or do not fit `model` or the vocabulary of `data`.
        """
        directory = _locate(source)
        check_shape(directory, model)
        theirs = load_tokenizer(directory).get_vocab() if file_of(directory, TOKENIZER).is_file() else {}
        ours = load_tokenizer(data.tokenizer).get_vocab()
        check_vocabulary(directory, theirs, ours, data.vocab_size, data.tokenizer, learns_tokens)
        hashes = {}
        for path in weight_files(directory):
            with path.open("rb") as file:
                hashes[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
        sha256 = hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()
        return cls(directory, sha256, read_size(directory, "max_position_embeddings"))


def _locate(source: PretrainedConfig) -> Path:
    if source.path is not None:
        return source.path
    with downloading(f"training.pretrained: {source.repo} at {source.revision}"):
        return downloaded(str(source.repo), source.revision)
