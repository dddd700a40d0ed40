"""A model's directory in Hugging Face's format, without its tensors: config.json, both ways, and which files
hold the weights.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainer.config.base import Config
from trainer.config.model import LinearScaling, Llama3Scaling, ModelConfig, YarnScaling
from trainer.config.model_files import (
    CONFIG,
    GENERATION_CONFIG,
    INDEX,
    SINGLE,
    TOKENIZER,
    files_of_index,
    read_settings,
)
from trainer.config.peft import ADAPTER, ADAPTER_WEIGHTS, adapter_of
from trainer.config.run import format_validation_error
from trainer.system.errors import TrainerError

# The model_type of what no architecture in transformers computes, so that transformers refuses it, and the
# keys that config.json has for it only.
OWN = "groundwork"
_OWN_KEYS = ("attention_sinks", "qk_norm")
LARGEST_SIZE = 2**31 - 1
# The defaults of transformers where config.json has no value. A Mistral without its window is a Llama.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {"rms_norm_eps": 1e-6},
    "mistral": {"rms_norm_eps": 1e-6, "num_key_value_heads": 8},
    "qwen3": {"rms_norm_eps": 1e-6, "num_key_value_heads": 32, "head_dim": 128},
    OWN: {},
}
_WINDOW = 4096
_ROPE: dict[str, type[Config]] = {"linear": LinearScaling, "llama3": Llama3Scaling, "yarn": YarnScaling}
_SCALES = ("mscale", "mscale_all_dim")  # DeepSeek's keys for the attention_factor of YaRN
# Keys of these families that our model does not support, and the values that turn them off.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "hidden_act": ("silu", "swish", None),  # two names of one function
    "partial_rotary_factor": (1.0, None),
    "is_causal": (True,),
    "quantization_config": (None,),
}


def config_json(
    config: ModelConfig, *, vocab_size: int, context: int, bot_id: int, eot_id: int
) -> dict[str, Any]:
    """config.json of a Llama, of a Qwen3 (with `qk_norm`), or of our own type (with `attention_sinks`)."""
    architecture, family = ("Qwen3ForCausalLM", "qwen3") if config.qk_norm else ("LlamaForCausalLM", "llama")
    own: dict[str, Any] = {}
    if config.attention_sinks:
        architecture, family = "GroundworkForCausalLM", OWN
        own = {key: getattr(config, key) for key in _OWN_KEYS}
    scaling = config.rope_scaling.model_dump(exclude_none=True) if config.rope_scaling else None
    return {
        "architectures": [architecture],
        "model_type": family,
        "vocab_size": vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": context,
        "rms_norm_eps": config.norm_eps,
        # transformers 4 reads rope_theta and rope_scaling, transformers 5 rope_parameters.
        "rope_theta": config.rope_theta,
        "rope_scaling": scaling,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta, **(scaling or {})},
        "tie_word_embeddings": config.tie_embeddings,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "bos_token_id": bot_id,
        "eos_token_id": eot_id,
        "dtype": "float32",
        **own,
    }


def is_model(directory: Path) -> bool:
    """Whether a directory holds a model, or an adapter to one."""
    return any((directory / name).is_file() for name in (CONFIG, ADAPTER))


def file_of(directory: Path, name: str) -> Path:
    """Where a file of a model is: that of its base, where the directory of an adapter has none."""
    path = directory / name
    adapter = None if path.exists() else adapter_of(directory)
    return adapter.base / name if adapter else path


def read_config(directory: Path) -> dict[str, Any]:
    """config.json of a model's directory. Raises TrainerError when it is missing or not a JSON object."""
    merged = directory.resolve().with_name("hf")
    if (directory / ADAPTER).is_file() and merged.is_dir():
        raise TrainerError(
            f"{directory}: holds an adapter, not a model: name {merged}, which it is merged with"
        )
    try:
        return read_settings(file_of(directory, CONFIG))
    except FileNotFoundError:
        inside = sorted([*directory.glob("hf"), *directory.glob("checkpoints/*/hf")])
        instead = f"{inside[-1]}, which is in it" if inside else "the directory of a model"
        raise TrainerError(f"{directory}: holds no config.json: name {instead}") from None


def end_ids(directory: Path) -> frozenset[int]:
    """The tokens that end a text: those of generation_config.json or else of config.json, as transformers
    takes them. Empty where neither names any. Raises TrainerError.
    """
    for name in (GENERATION_CONFIG, CONFIG):
        try:
            named = read_settings(file_of(directory, name)).get("eos_token_id")
        except FileNotFoundError:
            continue
        if named is not None:
            found = named if isinstance(named, list) else [named]
            if not all(type(number) is int for number in found):
                raise TrainerError(f"{directory / name}: eos_token_id is {named!r}: set it to ids of tokens")
            return frozenset(found)
    return frozenset()


def read_size(directory: Path, key: str) -> int:
    """A size in config.json. Raises TrainerError when it is not a whole number above zero."""
    size = read_config(directory).get(key)
    if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= LARGEST_SIZE:
        raise TrainerError(
            f"{directory / CONFIG}: {key} is {size!r}, not a whole number from 1 to {LARGEST_SIZE}"
        )
    return size


def model_config(directory: Path) -> ModelConfig:
    """The shape of the model in `directory`. Raises TrainerError with the setting that our model lacks."""
    values, path = read_config(directory), file_of(directory, CONFIG)
    family = values.get("model_type")
    if not isinstance(family, str) or family not in _DEFAULTS:
        raise TrainerError(
            f"{path}: model_type {family!r} is not supported; use one of {', '.join(_DEFAULTS)}"
        )
    values = {"is_causal": True, **_DEFAULTS[family], **values}
    own = {key: values.get(key) for key in _OWN_KEYS} if family == OWN else {}
    # Of two descriptions, transformers reads the older one.
    rope = values.get("rope_scaling") or values.get("rope_parameters") or {}
    if not isinstance(rope, dict):
        raise TrainerError(f"{path}: the rotary embeddings are described by {rope!r}, not by a JSON object")
    for key, unused in _UNSUPPORTED.items():
        value = rope.get(key, values.get(key))
        if value not in unused:
            raise TrainerError(f"{path}: {key} {value!r} is not supported; use a model without it")
    _check_window(path, values, always=family == "mistral")
    shape = {
        "n_layers": values.get("num_hidden_layers"),
        "d_model": values.get("hidden_size"),
        "n_heads": values.get("num_attention_heads"),
        "n_kv_heads": values.get("num_key_value_heads") or values.get("num_attention_heads"),
        "d_ff": values.get("intermediate_size"),
        "head_dim": values.get("head_dim"),
        "rope_theta": rope.get("rope_theta") or values.get("rope_theta"),
        "rope_scaling": _rope_scaling(rope, values),
        "norm_eps": values.get("rms_norm_eps"),
        "tie_embeddings": values.get("tie_word_embeddings"),
        "qk_norm": family == "qwen3",
        **own,
    }
    try:
        return ModelConfig.model_validate({key: value for key, value in shape.items() if value is not None})
    except ValidationError as error:
        raise TrainerError(f"{path}: invalid model shape: {format_validation_error(error)}") from error


def _check_window(path: Path, values: dict[str, Any], always: bool) -> None:
    """Raises TrainerError when a token would not attend to all tokens of the context before it. `always`: the
    family has no key that switches its window on.
    """
    window, context = values.get("sliding_window", _WINDOW), values.get("max_position_embeddings")
    holds_all = isinstance(window, int) and isinstance(context, int) and window >= context
    if (always or values.get("use_sliding_window")) and window is not None and not holds_all:
        raise TrainerError(
            f"{path}: sliding_window {window!r} is not supported, since it is below max_position_embeddings "
            f"{context!r}; use a model without it"
        )


def _rope_scaling(rope: dict[str, Any], values: dict[str, Any]) -> dict[str, Any] | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    # As in transformers, keys that a kind does not have change nothing.
    known = {*_ROPE[kind].model_fields, *_SCALES} if str(kind) in _ROPE else set()
    scaling = {key: value for key, value in rope.items() if key in known and value is not None}
    if "truncate" in rope:  # transformers takes null for false
        scaling["truncate"] = bool(rope["truncate"])
    if kind in ("llama3", "yarn"):
        # Of two places for the earlier context, transformers prefers that beside the scaling.
        if "original_max_position_embeddings" in values:
            scaling["original_max_position_embeddings"] = values["original_max_position_embeddings"]
        scaling.setdefault("original_max_position_embeddings", values.get("max_position_embeddings"))
    scales = [scaling.pop(key, None) for key in _SCALES]
    if kind == "yarn":
        scaling = _yarn(scaling, scales)
    return {**scaling, "rope_type": kind}


def _yarn(scaling: dict[str, Any], scales: list[Any]) -> dict[str, Any]:
    """The scaling with `attention_factor` in place of DeepSeek's two `scales`, as
    transformers computes it.
    """
    kept = dict(scaling)
    numbers: list[Any] = [*scales, kept.get("factor")]
    match numbers:
        case [int() | float() as over, int() | float() as under, int() | float() as factor] if over and under:
            grown = 0.1 * math.log(max(factor, 1))
            kept.setdefault("attention_factor", (over * grown + 1) / (under * grown + 1))
    return kept


def check_shape(directory: Path, model: ModelConfig) -> None:
    """Raises TrainerError unless the model in `directory` has the shape of `model`."""
    theirs, ours = model_config(directory).model_dump(mode="json"), model.model_dump(mode="json")
    changes = [
        f"{key}: {json.dumps(theirs[key])} (now {json.dumps(ours[key])})"
        for key in theirs
        if theirs[key] != ours[key]
    ]
    if changes:
        raise TrainerError(
            f"{directory / CONFIG}: training.model must have the pretrained model's shape; set "
            f"{', '.join(changes)}"
        )


def check_vocabulary(
    directory: Path,
    theirs: Mapping[str, int],
    ours: Mapping[str, int],
    entries: int,
    source: object,
    learns_tokens: bool,
) -> None:
    """Raises TrainerError unless the data's tokenizer, `ours` of `source`, is that of the model in
    `directory`, up to tokens past its last, which a training must learn. `theirs` is empty where the model
    has no tokenizer beside it.
    """
    rows, last = read_size(directory, "vocab_size"), max(theirs.values(), default=-1)
    added = {token for token, number in ours.items() if theirs and number > last}
    if entries > rows + len(added):
        raise TrainerError(
            f"{directory}: the model has {rows} tokens, but the data's tokenizer has {entries}; tokenize the "
            "data with the model's own tokenizer"
        )
    for token, number in ours.items():
        if theirs and token not in added and theirs.get(token) != number:
            raise TrainerError(
                f"{file_of(directory, TOKENIZER)}: token {token!r} has id {theirs.get(token, 'none')}, but "
                f"{number} in {source}; tokenize the data with the model's own tokenizer"
            )
    if entries > rows and not learns_tokens:
        raise TrainerError(
            f"{directory}: the model lacks the control tokens, and training.lora would not learn them: set "
            "training.lora.control_tokens to true, which is for tuning, leave out training.lora, or start "
            "from a model that has them"
        )


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a directory, sorted by name: of two copies the one that transformers reads,
    the single file. For an adapter, those of its base and all of its own. Raises TrainerError when there are
    none.
    """
    if adapter := adapter_of(directory):
        if not (adapter.directory / ADAPTER_WEIGHTS).exists():
            raise TrainerError(
                f"{directory}: holds no {ADAPTER_WEIGHTS}; convert other formats to safetensors"
            )
        return [*weight_files(adapter.base), *adapter.files]
    index = directory / INDEX
    if (directory / SINGLE).exists():
        return [directory / SINGLE]
    if not index.exists():
        raise TrainerError(
            f"{directory}: holds neither {SINGLE} nor {INDEX}; convert other formats to safetensors"
        )
    names = files_of_index(index)
    for name in names:
        if Path(name).name != name or not (directory / name).exists():
            raise TrainerError(f"{index}: lists {name}, which is not a file in the same directory")
    return [directory / name for name in names]
