"""Small conversations and preferences: a tokenizer with control tokens, shards, and the settings of a run."""

import hashlib
import json
import random
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from tests.trainer.shards import write_shard
from trainer.config import ChatIds

BOT, EOT, VOCAB = 2, 3, 305
CONTROL = ["[SYSTEM]", "[USER]", "[ASSISTANT]", "[TOOL]", "[END]"]
CHAT = ChatIds(system=300, user=301, assistant=302, tool=303, end=304)
Turns = list[tuple[str, str]]


class Chats:
    """Writes into `folder` from the tokenizer of `corpus_dir`."""

    def __init__(self, corpus_dir: Path, folder: Path) -> None:
        self.folder = folder
        self.tokenizer = Tokenizer.from_file(str(corpus_dir / "tokenizer/tokenizer.json"))
        self.tokenizer.add_special_tokens([AddedToken(name, special=True) for name in CONTROL])
        self.tokenizer.encode_special_tokens = True
        (folder / "tokenizer").mkdir(parents=True)
        self.tokenizer.save(str(folder / "tokenizer/tokenizer.json"))
        config = json.loads((corpus_dir / "tokenizer/tokenizer_config.json").read_text())
        (folder / "tokenizer/tokenizer_config.json").write_text(json.dumps(config))

    def ids(self, turns: Turns) -> list[int]:
        ids = [BOT]
        for role, text in turns:
            ids += [getattr(CHAT, role), *self.tokenizer.encode(text, add_special_tokens=False).ids, CHAT.end]
        return [*ids, EOT]

    def write(self, name: str, documents: list[list[int]]) -> Path:
        return write_shard(self.folder / name, documents)

    def settings(self, run: dict[str, Any], name: str, **training: Any) -> dict[str, Any]:
        """Those of `run`, on the shards `name` and `name`-v."""
        tokenizer = self.folder / "tokenizer"
        corpus = {
            "name": name, "weight": 1, "train": [str(self.folder / name)],
            "validation": [str(self.folder / f"{name}-v")], "validation_bytes": 100,
        }  # fmt: skip
        data = {
            "tokenizer": str(tokenizer),
            "tokenizer_sha256": hashlib.sha256((tokenizer / "tokenizer.json").read_bytes()).hexdigest(),
            "vocab_size": VOCAB, "bot_id": BOT, "eot_id": EOT, "chat": CHAT.model_dump(), "corpora": [corpus],
        }  # fmt: skip
        return {**run, "data": data, "training": {**run["training"], **training}}


def conversations(count: int, seed: int = 0) -> list[Turns]:
    chooser = random.Random(seed)
    made = []
    for _ in range(count):
        turns: Turns = [("system", "Answer in one line.")] if chooser.random() < 0.3 else []
        for _ in range(chooser.randint(1, 3)):
            a, b = chooser.randint(1, 9), chooser.randint(1, 9)
            turns += [("user", f"{a} + {b}?"), ("assistant", f"{a + b}" + " yes" * chooser.randint(0, 3))]
        made.append(turns)
    return made


def preferences(count: int, seed: int = 0) -> list[tuple[Turns, Turns]]:
    chooser = random.Random(seed)
    made = []
    for _ in range(count):
        number = chooser.randint(1, 99)
        asked = [("user", f"Where is {number}?")]
        chosen, rejected = f"In {number}.", "I do not know" + ", sorry" * chooser.randint(0, 2)
        made.append(([*asked, ("assistant", chosen)], [*asked, ("assistant", rejected)]))
    return made
