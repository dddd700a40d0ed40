"""In and out of Hugging Face's format: names and layouts are the same, so tensors are copied, never permuted."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from trainer.attention import choose
from trainer.config import ModelConfig
from trainer.errors import TrainerError
from trainer.model import Llama

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def config_json(config: ModelConfig, vocab_size: int, seq_len: int, bot_id: int, eot_id: int) -> dict[str, Any]:
    """config.json of a Llama, or of a Qwen3 when queries and keys are normalised."""
    return {
        "architectures": ["Qwen3ForCausalLM" if config.qk_norm else "LlamaForCausalLM"],
        "model_type": "qwen3" if config.qk_norm else "llama",
        "vocab_size": vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": seq_len,
        "rms_norm_eps": config.norm_eps,
        # transformers 4 reads rope_theta, transformers 5 rope_parameters.
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "tie_word_embeddings": config.tie_embeddings,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "bos_token_id": bot_id,
        "eos_token_id": eot_id,
        "dtype": "float32",
    }


def weights(model: Llama) -> dict[str, torch.Tensor]:
    """The model's tensors in fp32 on the CPU, without the rows that pad the vocabulary; a tied head only once, as the embedding."""
    tensors = {}
    for name, parameter in model.named_parameters():
        rows = model.vocab_size if name in ("model.embed_tokens.weight", "lm_head.weight") else parameter.shape[0]
        tensors[name] = parameter.detach()[:rows].float().cpu().contiguous()
    return tensors


def export(model: Llama, tokenizer: Path, bot_id: int, eot_id: int, destination: Path) -> None:
    """A directory that `AutoModelForCausalLM` and `AutoTokenizer` open."""
    destination.mkdir(parents=True)
    save_file(weights(model), destination / "model.safetensors", metadata={"format": "pt"})
    config = config_json(model.config, model.vocab_size, model.max_length, bot_id, eot_id)
    generation = {"bos_token_id": bot_id, "eos_token_id": eot_id, "do_sample": True, "temperature": 0.8, "top_k": 40}
    for name, content in (("config.json", config), ("generation_config.json", generation)):
        (destination / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    for name in TOKENIZER_FILES:
        if (tokenizer / name).exists():
            shutil.copyfile(tokenizer / name, destination / name)


def load_weights(model: Llama, directory: Path) -> None:
    """Copies an export into the model; padding rows become zero. TrainerError when a tensor is missing, unknown or of another shape."""
    tensors = load_file(directory / "model.safetensors")
    parameters = dict(model.named_parameters())
    if tensors.keys() != parameters.keys():
        raise TrainerError(f"{directory}: tensors differ from the model's: {', '.join(sorted(tensors.keys() ^ parameters.keys()))}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            rows = model.vocab_size if name in ("model.embed_tokens.weight", "lm_head.weight") else parameter.shape[0]
            if tensors[name].shape != parameter[:rows].shape:
                raise TrainerError(f"{directory}: {name} has shape {tuple(tensors[name].shape)}, the model needs {tuple(parameter[:rows].shape)}")
            parameter[:rows] = tensors[name]
            parameter[rows:] = 0.0


def read_config(directory: Path) -> dict[str, Any]:
    """config.json of an export. TrainerError when it is not there or not JSON."""
    try:
        config: dict[str, Any] = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrainerError(f"{directory / 'config.json'}: cannot be read: {error}") from error
    return config


def load_model(directory: Path, device: torch.device) -> Llama:
    """The model of an export made here, ready to run on `device`."""
    config = read_config(directory)
    shape = ModelConfig(
        n_layers=config["num_hidden_layers"],
        d_model=config["hidden_size"],
        n_heads=config["num_attention_heads"],
        n_kv_heads=config["num_key_value_heads"],
        d_ff=config["intermediate_size"],
        rope_theta=config["rope_parameters"]["rope_theta"],
        norm_eps=config["rms_norm_eps"],
        tie_embeddings=config["tie_word_embeddings"],
        qk_norm=config["model_type"] == "qwen3",
    )
    seq_len = config["max_position_embeddings"]
    model = Llama(shape, config["vocab_size"], seq_len, choose("auto", device, seq_len)).to(device)
    load_weights(model, directory)
    return model.eval()
