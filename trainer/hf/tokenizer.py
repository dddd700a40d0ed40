"""Reads the tokenizer of a directory."""

from pathlib import Path

from tokenizers import Tokenizer

from trainer.system.errors import TrainerError


def load_tokenizer(directory: Path) -> Tokenizer:
    """Reads tokenizer.json of `directory`; it encodes special strings in text as text. Raises TrainerError if
    the file cannot be read.
    """
    path = directory / "tokenizer.json"
    if not path.is_file():
        raise TrainerError(f"{path}: no such file")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises Exception itself
        raise TrainerError(f"{path}: cannot be read as a tokenizer: {error}") from error
    tokenizer.encode_special_tokens = True
    return tokenizer
