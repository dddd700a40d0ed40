"""The files of a small exported model."""

import json
import tempfile
from pathlib import Path

from tokenizers import Tokenizer, models

from tests.trainer.models import small
from trainer import hf


def exported_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        words = ["[UNK]", "[PAD]", "[BOT]", "[EOT]"]
        vocabulary = {word: number for number, word in enumerate(words)}
        Tokenizer(models.WordLevel(vocabulary, "[UNK]")).save(str(directory / "tokenizer.json"))
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "[BOT]", "eos_token": "[EOT]"}
        (directory / "tokenizer_config.json").write_text(json.dumps(settings))
        hf.export(small(), directory, bot_id=2, eot_id=3, destination=directory / "hf")
        return {path.name: path.read_bytes() for path in (directory / "hf").iterdir()}
