"""A trained model as a directory that transformers opens, and back."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from trainer.attention import choose
from trainer.errors import TrainerError
from trainer.hf.config import config_json, model_config, read_config
from trainer.hf.weights import SINGLE, load_weights, weights
from trainer.model import Cache, Llama

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
CHECKED_TOKENS = 16


def export(model: Llama, tokenizer: Path, bot_id: int, eot_id: int, destination: Path) -> None:
    """A directory that `AutoModelForCausalLM`, `AutoModel` and `AutoTokenizer` open."""
    destination.mkdir(parents=True)
    save_file(weights(model), destination / SINGLE, metadata={"format": "pt"})
    config = config_json(model.config, model.vocab_size, model.max_length, bot_id, eot_id)
    generation = {"bos_token_id": bot_id, "eos_token_id": eot_id, "do_sample": True, "temperature": 0.8, "top_k": 40}
    for name, content in (("config.json", config), ("generation_config.json", generation)):
        (destination / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    for name in TOKENIZER_FILES:
        if (tokenizer / name).exists():
            shutil.copyfile(tokenizer / name, destination / name)


def load_model(directory: Path, device: torch.device) -> Llama:
    """The model of a directory, ready to run on `device`."""
    config, shape = read_config(directory), model_config(directory)
    seq_len = config["max_position_embeddings"]
    with torch.device("meta"):
        model = Llama(shape, config["vocab_size"], seq_len, choose("auto", device, torch.float32, seq_len, masked=False))
    model.materialise(device)
    load_weights(model, directory)
    return model.eval()


@torch.no_grad()
def check_export(model: Llama, directory: Path) -> None:
    """Reads an export again and compares its logits with the model's. TrainerError when they differ. Takes the memory of a second model."""
    device = model.lm_head.weight.device
    again = load_model(directory, device)
    tokens = torch.arange(min(CHECKED_TOKENS, model.max_length), device=device)[None] % model.vocab_size
    # With a cache, blocks run as they are written, so no other shape is compiled.
    ours, theirs = (each.logits(each(tokens, cache=Cache())).float() for each in (model, again))
    difference = (ours - theirs).abs().max().item()
    if not difference <= 1e-4 * max(1.0, ours.abs().max().item()):
        raise TrainerError(f"{directory}: the exported model's logits differ from the trained one's by {difference:g}; do not use it")
