"""Training a byte-level BPE vocabulary."""

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import count

import numpy as np
import pyarrow as pa
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from pipeline.stages.bpe.chat_template import CHAT_TEMPLATE
from pipeline.stages.bpe.counts import CountedWords, count_words
from pipeline.stages.bpe.merges import merge
from pipeline.stages.bpe.params import (
    ALPHABET_SIZE,
    CONTROL,
    RESERVED,
    SPECIALS,
    TokenizerParams,
    VocabularyError,
)

LEAST = 2  # occurrences of a pair that is merged

# Llama 3's published pattern (the cl100k family): contractions, words, up to 3 digits, punctuation, space.
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| "
    r"?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# With each digit by itself, it is the pattern that Qwen 2 published.
SINGLE_DIGITS_PATTERN = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")


def train(
    texts: Iterable[pa.Array],
    params: TokenizerParams,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Tokenizer:
    """Trains on string columns, whose words it counts on one core. The rest is as in `train_on_words`."""
    return train_on_words(count_words(texts, params.pattern, params.single_digits), params, progress)


def train_on_words(
    words: CountedWords,
    params: TokenizerParams,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Tokenizer:
    """The same words give the same vocabulary, which is that of `tokenizers`' own trainer, as is the file.
    `progress` is called now and then with the merges that are done and all that are to be. Raises
    VocabularyError if the text has too few repeated pairs for `vocab_size`.
    """
    characters, specials = character_of_each_byte(), _specials(params)
    entries = first_entries(params)
    of_character = {character: byte for byte, character in enumerate(characters)}
    ids = np.array([entries.index(character) for character in characters])
    known = [bytes(map(of_character.__getitem__, entry)) for entry in entries]
    tokens, merges = merge(words, known, ids, vocab_size=params.vocab_size, least=LEAST, progress=progress)
    if len(tokens) < params.vocab_size:
        raise VocabularyError(params.vocab_size, len(tokens))
    entries += ["".join(map(characters.__getitem__, token)) for token in tokens[len(entries) :]]
    model = models.BPE(
        vocab={entry: id for id, entry in enumerate(entries)},
        merges=[(entries[left], entries[right]) for left, right, _ in merges],
        unk_token=None,
        byte_fallback=False,
    )
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer(params)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(specials)
    return tokenizer


def _specials(params: TokenizerParams) -> list[str]:
    return [*SPECIALS.values(), *(RESERVED if params.chat is True else ())]


def first_entries(params: TokenizerParams) -> list[str]:
    """The entries of a vocabulary that no text decides, in the order of their ids."""
    return [*_specials(params), *sorted(character_of_each_byte())]


def character_of_each_byte() -> list[str]:
    """The character that stands for each byte in a vocabulary: itself if it is printable (GPT-2's table)."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = count(0x100)
    return [chr(byte if byte in printable else next(others)) for byte in range(ALPHABET_SIZE)]


def pre_tokenizer(params: TokenizerParams) -> pre_tokenizers.PreTokenizer:
    """What cuts a text into words, for `tokenizers`; `count_words` does the same."""
    if params.pattern == "llama3":
        split = pre_tokenizers.Split(
            Regex(SINGLE_DIGITS_PATTERN if params.single_digits else LLAMA3_PATTERN), behavior="isolated"
        )
        return pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def files(tokenizer: Tokenizer) -> dict[str, str]:
    """The files that `transformers.AutoTokenizer` opens, by name."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **SPECIALS,
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(1e30),
    }
    made = {
        "tokenizer.json": tokenizer.to_str(pretty=True),
        "tokenizer_config.json": json.dumps(config, indent=2),
        "special_tokens_map.json": json.dumps(SPECIALS, indent=2),
    }
    return with_chat(made) if tokenizer.token_to_id(CONTROL["end"]) is not None else made


def with_chat(files: Mapping[str, str]) -> dict[str, str]:
    """The files of a tokenizer that knows conversations: with the tokens of CONTROL, appended if it lacks
    them, and the template in both places where programs look for it.
    """
    tokenizer = Tokenizer.from_str(files["tokenizer.json"])
    added = tokenizer.add_special_tokens(list(CONTROL.values()))
    config = json.loads(files["tokenizer_config.json"]) | {"chat_template": CHAT_TEMPLATE}
    return {
        **files,
        "tokenizer.json": tokenizer.to_str(pretty=True) if added else files["tokenizer.json"],
        "tokenizer_config.json": json.dumps(config, indent=2),
        "chat_template.jinja": CHAT_TEMPLATE,
    }
