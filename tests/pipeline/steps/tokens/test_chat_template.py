"""Conversations have the same tokens in training as in the template of the exported model, for tokenizers of
all kinds, or the tokenizer is refused when it is frozen.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from pipeline.recipe.sections import ShardParams
from pipeline.stages import bpe
from pipeline.stages.chat import parsed
from pipeline.steps.tokens.existing_tokenizer import fetch
from pipeline.steps.tokens.shards import SplitShards, _encoder
from tests.pipeline.steps.corpora import TEXTS
from trainer.data.shards import Shard
from trainer.run.evaluation.conversation import ChatFormat

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPECIAL = ["<unk>", "<s>", "</s>"]


def metaspace(scheme: str, split: bool = False, inside: bool = False) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    step = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([step]) if inside else step
    spaces = decoders.Metaspace(prepend_scheme=scheme, split=split)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), spaces])
    return trained(tokenizer, trainers.BpeTrainer(vocab_size=600, special_tokens=[*SPECIAL, *BYTES]))


def llama_2() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return trained(tokenizer, trainers.BpeTrainer(vocab_size=600, special_tokens=[*SPECIAL, *BYTES]))


def byte_level(prefix: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return trained(
        tokenizer, trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet)
    )


def word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return trained(tokenizer, trainers.WordPieceTrainer(vocab_size=400, special_tokens=SPECIAL))


def trained(tokenizer: Tokenizer, trainer: trainers.Trainer) -> Tokenizer:
    tokenizer.train_from_iterator([*TEXTS[:4], "Hello, how are you? I am fine."], trainer)
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    **{f"Metaspace {scheme}": partial(metaspace, scheme) for scheme in ("always", "first", "never")},
    "Metaspace first, in words": partial(metaspace, "first", split=True),
    "Metaspace first, in a sequence": partial(metaspace, "first", inside=True),
    "Llama 2": llama_2,
    "byte level": partial(byte_level, False),
    "byte level with a prefix": partial(byte_level, True),
    "WordPiece": word_piece,
}


def frozen(directory: Path, tokenizer: Tokenizer, **config: object) -> Path:
    directory.mkdir()
    tokenizer.save(str(directory / "tokenizer.json"))
    named = {"bos_token": "<s>", "eos_token": "</s>", **config}
    (directory / "tokenizer_config.json").write_text(json.dumps(named))
    for name, content in fetch(bpe.ExistingTokenizer(source=str(directory), chat=True)).items():
        (directory / name).write_text(content)
    return directory


@pytest.mark.parametrize("kind", KINDS)
def test_shards_hold_the_tokens_of_the_template(tmp_path: Path, kind: str) -> None:
    directory = frozen(tmp_path / "tokenizer", KINDS[kind](), tokenizer_class="LlamaTokenizer", legacy=True)
    talks = [
        [("system", "Be brief."), ("user", "Hello, how are you?"), ("assistant", "I am fine.")],
        [("user", " Hello"), ("assistant", "\nHello"), ("user", ""), ("assistant", "  two ")],
        [("user", "[USER] Ünï 中 🙂"), ("assistant", "[END]")],
    ]
    texts = ["".join(f"\x1e{role}\x1f{content}" for role, content in talk) for talk in talks]
    rows = pa.RecordBatch.from_pydict({"id": ["a", "b", "c"], "text": pa.array(texts, pa.large_string())})
    used = (directory / "tokenizer.json", directory / "tokenizer_config.json")
    fast = bpe.unsupported(used[0].read_text()) is None
    encoder, _ = _encoder(used, fast, True)
    writing = SplitShards(tmp_path, "part", encoder, ShardParams(validation_fraction=1e-9, longest=200))
    writing.write([rows])
    shard = Shard(tmp_path / "train" / "part.00000")
    written = [shard.document(number).tolist() for number in range(3)]
    plain = Tokenizer.from_file(str(used[0]))
    end = plain.token_to_id("</s>")
    for talk, ids in zip(talks[:2], written, strict=False):
        text = "<s>" + "".join(f"[{role.upper()}]{content}[END]" for role, content in talk)
        assert ids == [*plain.encode(text, add_special_tokens=False).ids, end]
    assert len(parsed(texts[2])[0]) == 2 and np.isin(written[2], [plain.token_to_id("[END]")]).sum() == 2
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(str(directory))
    for talk, ids in zip(talks[:2], written, strict=False):
        said = [{"role": role, "content": content} for role, content in talk]
        assert [*theirs.apply_chat_template(said, return_dict=False), end] == ids
    form = ChatFormat.of(directory)
    asked = [form.begin, *(id for role, content in talks[1] for id in form.message(role, content))]
    assert [*asked, end] == written[1]


def test_a_tokenizer_whose_messages_depend_on_the_token_before_is_refused(tmp_path: Path) -> None:
    tokenizer = byte_level(False)
    tokenizer.add_special_tokens(["<s>[USER]"])
    with pytest.raises(bpe.TokenizerError, match="has other tokens in training than in the template"):
        frozen(tmp_path / "tokenizer", tokenizer)
