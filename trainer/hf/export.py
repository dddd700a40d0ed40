"""Exports a model to a directory that `transformers` opens, and loads it again."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from trainer.hf.config import config_json, model_config, read_size
from trainer.hf.weights import SINGLE, load_weights, weights
from trainer.model.attention import choose
from trainer.model.llama import Llama

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def export(model: Llama, tokenizer: Path, bot_id: int, eot_id: int, destination: Path) -> None:
    """Writes a directory that `AutoModelForCausalLM`, `AutoModel` and `AutoTokenizer` open."""
    destination.mkdir(parents=True)
    save_file(weights(model), destination / SINGLE, metadata={"format": "pt"})
    config = config_json(model.config, model.vocab_size, model.context, bot_id, eot_id)
    generation = {
        "bos_token_id": bot_id,
        "eos_token_id": eot_id,
        "do_sample": True,
        "temperature": 0.8,
        "top_k": 40,
    }
    for name, content in (("config.json", config), ("generation_config.json", generation)):
        (destination / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    for name in TOKENIZER_FILES:
        if (tokenizer / name).exists():
            shutil.copyfile(tokenizer / name, destination / name)


def load_model(directory: Path, device: torch.device) -> Llama:
    """Loads the model of a directory for inference on `device`."""
    shape, seq_len = model_config(directory), read_size(directory, "max_position_embeddings")
    vocab_size = read_size(directory, "vocab_size")
    with torch.device("meta"):
        backend = choose(
            "auto", device, torch.float32, seq_len, shape.head_dim, masked=False, sinks=shape.attention_sinks
        )
        model = Llama(shape, vocab_size, seq_len, backend)
    model.materialise(device)
    load_weights(model, directory)
    return model.eval()
