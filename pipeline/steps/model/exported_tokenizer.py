"""The tokenizer of an exported model: it begins a text as documents begin in training, and knows the model's
context. The frozen tokenizer in the store stays as it is.
"""

import json
from pathlib import Path

from tokenizers import Tokenizer, processors

from pipeline.steps.tokens.existing_tokenizer import CONFIG, TOKENIZER
from trainer.system.durable import write_atomically


def prepare(directory: Path) -> None:
    """Changes the tokenizer of an exported model: it puts the begin-of-text token before each text, and
    `model_max_length` is the number of tokens that the model was trained on at a time.
    """
    model = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    tokenizer = Tokenizer.from_file(str(directory / TOKENIZER))
    settings = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
    _begin_texts_with(tokenizer, model["bos_token_id"])
    settings |= {
        "model_max_length": model["max_position_embeddings"],
        # what the model takes; transformers 4 adds `token_type_ids` otherwise
        "model_input_names": ["input_ids", "attention_mask"],
        # transformers 5 makes the template anew from these two
        "add_bos_token": True,
        "add_eos_token": False,
    }
    write_atomically(directory / TOKENIZER, tokenizer.to_str(pretty=True))
    write_atomically(directory / CONFIG, json.dumps(settings, indent=2, ensure_ascii=False))


def _begin_texts_with(tokenizer: Tokenizer, begin: int) -> None:
    """A template that was there already is replaced, since it may end a text, or begin it with another
    token.
    """
    token = tokenizer.id_to_token(begin)
    template = processors.TemplateProcessing(
        single=[token, "$A"], pair=[token, "$A", f"{token}:1", "$B:1"], special_tokens=[(token, begin)]
    )
    others = tokenizer.post_processor if not tokenizer.encode("").ids else None
    tokenizer.post_processor = processors.Sequence([others, template]) if others else template
