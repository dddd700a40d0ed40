"""Reads the tokenizer of a directory."""

from pathlib import Path

from tokenizers import Tokenizer

from trainer.config.hugging_face import file_of, is_model, read_size
from trainer.config.model_files import TOKENIZER, TOKENIZER_CONFIG, read_settings
from trainer.data.message_tokenizer import for_messages
from trainer.system.errors import TrainerError


def load_tokenizer(directory: Path) -> Tokenizer:
    """Reads tokenizer.json; special strings in text stay text, and all of a text is encoded. Raises
    TrainerError if it is unreadable, or the tokenizer of another model than the one beside it.
    """
    path = file_of(directory, TOKENIZER)
    if not path.is_file():
        raise TrainerError(
            f"{path}: no such file; copy it from the model's own directory, or write it with "
            "`save_pretrained` of transformers' AutoTokenizer"
        )
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises Exception itself
        raise TrainerError(f"{path}: cannot be read as a tokenizer: {error}") from error
    tokenizer.encode_special_tokens = True
    # What the file says of these is how somebody trained with it.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # Added tokens may be beyond the rows of a model that never reads them.
    if is_model(directory):
        entries, rows = tokenizer.get_vocab_size(with_added_tokens=False), read_size(directory, "vocab_size")
        if entries > rows:
            raise TrainerError(
                f"{path}: has {entries} tokens, but the model beside it {rows}: put the model's own "
                "tokenizer there"
            )
    return tokenizer


def load_for_messages(directory: Path) -> Tokenizer:
    """As `load_tokenizer`, to encode messages of a conversation, each by itself."""
    tokenizer = Tokenizer.from_str(for_messages(load_tokenizer(directory).to_str()))
    tokenizer.encode_special_tokens = True
    return tokenizer


def begin_of_text(directory: Path) -> str:
    """The token that begins a text, which tokenizer_config.json names; [BOT] where there is no such file."""
    path = file_of(directory, TOKENIZER_CONFIG)
    try:
        named = read_settings(path).get("bos_token")
    except FileNotFoundError:
        return "[BOT]"
    return str(named["content"] if isinstance(named, dict) else named)
