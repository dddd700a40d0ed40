"""Training a byte-level BPE vocabulary."""

import json
from collections.abc import Iterable, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from pipeline.stages.tokenizer.params import TokenizerParams, VocabularyError

# Llama 3's published pre-tokenization pattern (the cl100k family): contractions, words, up to three digits,
# punctuation, white space.
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| "
    r"?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# With each digit by itself, it is the pattern that Qwen 2 published.
SINGLE_DIGITS_PATTERN = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")


def train(texts: Iterable[Sequence[str]], params: TokenizerParams) -> Tokenizer:
    """Trains on batches of texts, in their order. The same batches give the same vocabulary.

    Raises VocabularyError if the text has too few repeated pairs for `vocab_size`.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=None, byte_fallback=False))
    tokenizer.pre_tokenizer = _pre_tokenizer(params)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=params.vocab_size,
        min_frequency=2,
        special_tokens=params.specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    reached = tokenizer.get_vocab_size()
    if reached < params.vocab_size:
        raise VocabularyError(
            f"tokenizer.vocab_size is {params.vocab_size}, but the text supports only {reached} entries: set "
            f"it to {reached} or less, or add text"
        )
    return tokenizer


def _pre_tokenizer(params: TokenizerParams) -> pre_tokenizers.PreTokenizer:
    if params.pattern == "llama3":
        split = pre_tokenizers.Split(
            Regex(SINGLE_DIGITS_PATTERN if params.single_digits else LLAMA3_PATTERN), behavior="isolated"
        )
        return pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    by_word = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return (
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), by_word])
        if params.single_digits
        else by_word
    )


def files(tokenizer: Tokenizer, params: TokenizerParams) -> dict[str, str]:
    """The files that `transformers.AutoTokenizer` opens, by name."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": params.unknown,
        "pad_token": params.padding,
        "bos_token": params.begin_of_text,
        "eos_token": params.end_of_text,
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(1e30),
    }
    specials = {name: config[name] for name in ("unk_token", "pad_token", "bos_token", "eos_token")}
    return {
        "tokenizer.json": tokenizer.to_str(pretty=True),
        "tokenizer_config.json": json.dumps(config, indent=2),
        "special_tokens_map.json": json.dumps(specials, indent=2),
    }
