"""A model as one GGUF file, which llama.cpp and what is built on it read.

Names and layouts follow llama.cpp's own converter (convert_hf_to_gguf.py). Weights stay fp32, as in the
export; llama.cpp's `llama-quantize` makes smaller files of it.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import safe_open

from pipeline.stages.bpe.train import LLAMA3_PATTERN, SINGLE_DIGITS_PATTERN
from pipeline.steps.export.manifest import record
from pipeline.steps.export.whole_model import check_whole
from pipeline.store.atomic import output_directory
from pipeline.store.errors import PipelineError
from trainer.config.hugging_face import read_config
from trainer.config.model_files import GENERATION_CONFIG, SINGLE, TOKENIZER, TOKENIZER_CONFIG
from trainer.system.durable import read_json
from trainer.system.errors import install

if TYPE_CHECKING:
    from gguf import GGUFWriter

FORMAT = "gguf"
ARCHITECTURES = {"LlamaForCausalLM": "llama", "Qwen3ForCausalLM": "qwen3"}
# What llama.cpp calls a pre-tokenizer: by the pattern that splits words (None: GPT-2's), whether each digit
# is split off before, and whether a word in the vocabulary becomes one token whatever the merges say.
PRE_TOKENIZERS = {
    (LLAMA3_PATTERN, False, False): "dbrx",
    (LLAMA3_PATTERN, False, True): "llama-bpe",
    (SINGLE_DIGITS_PATTERN, False, False): "qwen2",
    (None, False, False): "gpt-2",
    (None, True, False): "smollm",
}

# How Ollama, which reads no Jinja, writes a conversation: https://docs.ollama.com/modelfile
ROLES = "".join(
    f'{{{{ if eq .Role "{role}" }}}}[{role.upper()}]{{{{ end }}}}'
    for role in ("system", "user", "assistant", "tool")
)
MODELFILE = (
    f'TEMPLATE """{{{{ range .Messages }}}}{ROLES}{{{{ .Content }}}}[END]{{{{ end }}}}[ASSISTANT]"""\n'
    "PARAMETER stop [END]\n"
)


def export_gguf(
    model: Path, made_from: Mapping[str, str], out: Path, progress: Callable[[int], object]
) -> dict[str, int]:
    """Makes `out`: an export or a checkpoint as `<recipe>.gguf`, `export.json` and, for a model that answers,
    a `Modelfile` for Ollama. Returns the numbers of tensors and parameters. `progress` is told the bytes that
    were written. Memory is that of one tensor. Raises PipelineError, TrainerError and OutputError.
    """
    try:
        lineage = read_json(model / "lineage.json")
    except (OSError, ValueError) as error:
        raise PipelineError(
            f"{model} is neither an exported model nor a checkpoint of this program, which have a "
            f"lineage.json ({error}): llama.cpp's convert_hf_to_gguf.py reads other models"
        ) from error
    name = lineage.get("recipe", {}).get("name", model.name)
    weights = model / "hf" if (model / "hf").is_dir() else model
    with output_directory(out) as directory:
        counts = write(weights, directory / f"{name}.gguf", name, progress)
        if _chat_template(weights):
            (directory / "Modelfile").write_text(f"FROM ./{name}.gguf\n{MODELFILE}", encoding="utf-8")
        record(directory, FORMAT, made_from, counts)
    return counts


def write(model: Path, path: Path, name: str, progress: Callable[[int], object]) -> dict[str, int]:
    """Writes the model of a directory in Hugging Face's format, as `export_gguf` says."""
    config = read_config(model)
    if config.get("attention_sinks"):
        raise PipelineError(
            "--format gguf: llama.cpp has no dense model with attention sinks: train without "
            "training.model.attention_sinks, or use the model with `python -m trainer`"
        )
    check_whole(model)
    try:
        import gguf
    except ModuleNotFoundError:
        raise PipelineError(f"--format gguf needs the package gguf: run {install('gguf')}") from None
    architecture = ARCHITECTURES[config["architectures"][0]]
    factors = _rope_factors(config)
    if factors is not None and architecture != "llama":
        raise PipelineError(
            "--format gguf: llama.cpp does not compute rope_scaling llama3 with qk_norm: train without one "
            "of training.model.rope_scaling and training.model.qk_norm"
        )
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    _add_shape(writer, config)
    _add_tokenizer(writer, model, config)
    arch = next(arch for arch, known in gguf.MODEL_ARCH_NAMES.items() if known == architecture)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    interleave = partial(_interleaved, config=config) if architecture == "llama" else None
    counts = _write_tensors(writer, model, factors, partial(_named, names), interleave, progress)
    writer.close()
    return counts


def _write_tensors(
    writer: "GGUFWriter",
    model: Path,
    factors: np.ndarray | None,
    named: Callable[[str], str],
    interleave: Callable[[str, np.ndarray], np.ndarray] | None,
    progress: Callable[[int], object],
) -> dict[str, int]:
    """Writes the header, and the tensors of a model with the `factors` of its rotations, if there are any.
    Returns the numbers of the model's tensors and parameters.
    """
    parameters = tensors = 0
    if factors is not None:
        writer.add_tensor_info("rope_freqs.weight", factors.shape, factors.dtype, factors.nbytes)
    with safe_open(model / SINGLE, framework="np") as file:
        stored = list(file.keys())
        for tensor in stored:
            shape = file.get_slice(tensor).get_shape()
            size = math.prod(shape)
            parameters, tensors = parameters + size, tensors + 1
            writer.add_tensor_info(named(tensor), shape, np.dtype(np.float32), 4 * size)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        if factors is not None:
            writer.write_tensor_data(factors)
        for tensor in stored:
            weights = file.get_tensor(tensor).astype(np.float32, copy=False)
            if interleave is not None:
                weights = interleave(tensor, weights)
            writer.write_tensor_data(weights)
            progress(weights.nbytes)
    return {"tensors": tensors, "parameters": parameters}


def _named(names: Any, tensor: str) -> str:
    found: str | None = names.get_name(tensor, try_suffixes=(".weight",))
    if found is None:
        raise PipelineError(f"llama.cpp has no name for the tensor {tensor}")
    return found


def _interleaved(tensor: str, weights: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    """Query and key rows in the order of llama.cpp's Llama, which rotates neighboring pairs where Hugging
    Face's rotates halves. [heads x head_dim, d_model]
    """
    for projection, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
        if tensor.endswith(f"{projection}.weight"):
            halves = weights.reshape(config[heads], 2, -1, weights.shape[1])
            return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weights.shape))
    return weights


def _add_shape(writer: "GGUFWriter", config: Mapping[str, Any]) -> None:
    import gguf

    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    scaling = config["rope_scaling"] or {}
    match scaling.get("rope_type"):
        case "linear":
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(scaling["factor"])
        case "yarn":
            if scaling.get("attention_factor") is not None:
                raise PipelineError(
                    "--format gguf: llama.cpp computes YaRN's attention_factor itself and takes no other: "
                    "train without training.model.rope_scaling.attention_factor"
                )
            if not scaling.get("truncate", True):
                raise PipelineError(
                    "--format gguf: llama.cpp truncates YaRN's borders in any case: train without "
                    "training.model.rope_scaling.truncate"
                )
            writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            writer.add_rope_scaling_factor(scaling["factor"])
            writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
            writer.add_rope_scaling_yarn_beta_fast(scaling["beta_fast"])
            writer.add_rope_scaling_yarn_beta_slow(scaling["beta_slow"])


def _rope_factors(config: Mapping[str, Any]) -> np.ndarray | None:
    """What each frequency is divided by, for Llama 3's scaling, which llama.cpp reads as a tensor."""
    scaling = config["rope_scaling"] or {}
    if scaling.get("rope_type") != "llama3":
        return None
    turns = scaling["original_max_position_embeddings"] / (
        2 * np.pi * config["rope_theta"] ** (np.arange(0, config["head_dim"], 2) / config["head_dim"])
    )
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / (kept + (1 - kept) / scaling["factor"])).astype(np.float32)


def _add_tokenizer(writer: "GGUFWriter", model: Path, config: Mapping[str, Any]) -> None:
    import gguf

    settings = read_json(model / TOKENIZER)
    pre_tokenizer = _pre_tokenizer(settings)
    tokens = {number: (token, gguf.TokenType.NORMAL) for token, number in settings["model"]["vocab"].items()}
    for added in settings["added_tokens"]:
        kind = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
        tokens[added["id"]] = (added["content"], kind)
    # A vocabulary may have fewer entries than the embedding has rows.
    every = [
        tokens.get(number, (f"[PAD{number}]", gguf.TokenType.UNUSED))
        for number in range(config["vocab_size"])
    ]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer)
    writer.add_token_list([token for token, _ in every])
    writer.add_token_types([kind for _, kind in every])
    # Older tokenizer.json have pairs separated by a space, newer ones lists.
    merges = settings["model"]["merges"]
    writer.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in merges])
    writer.add_bos_token_id(config["bos_token_id"])
    first, *others = _ends(model, config)
    writer.add_eos_token_id(first)
    for other in others[:1]:  # there is room for one: what ends a document where the first ends an answer
        writer.add_eot_token_id(other)
    # Every document of the training text began with it.
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    if template := _chat_template(model):
        writer.add_chat_template(template)


def _ends(model: Path, config: Mapping[str, Any]) -> list[int]:
    """The tokens that end a text, that of config.json first."""
    path = model / GENERATION_CONFIG
    named = read_json(path).get("eos_token_id", []) if path.exists() else []
    ends = [config["eos_token_id"], *(named if isinstance(named, list) else [named])]
    return list(dict.fromkeys(ends))


def _chat_template(model: Path) -> str | None:
    """How the model's conversations are written, in Jinja; None for a model that has not learned any."""
    settings = read_json(model / TOKENIZER_CONFIG)
    return settings.get("chat_template")


def _pre_tokenizer(settings: Mapping[str, Any]) -> str:
    """llama.cpp's name of the pre-tokenizer of a tokenizer.json. Raises PipelineError when it has none."""
    model, pre = settings["model"], settings["pre_tokenizer"]
    steps = pre["pretokenizers"] if pre and pre["type"] == "Sequence" else [pre]
    match steps:
        case [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
        ]:
            kind = (pattern, False)
        case [{"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}]:
            kind = (None, False)
        case [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        ]:
            kind = (None, True)
        case _:
            kind = ("", False)
    known = PRE_TOKENIZERS.get((*kind, bool(model.get("ignore_merges"))))
    # llama.cpp does not normalize; NFC, which Qwen's tokenizers apply, leaves nearly all text as it is.
    normalizer = settings["normalizer"]
    if model["type"] != "BPE" or known is None or (normalizer and normalizer["type"] != "NFC"):
        raise PipelineError(
            "--format gguf: llama.cpp has no counterpart of this tokenizer's pre-tokenization. It reads "
            "tokenizers that Groundwork trains, and byte-level BPE as in GPT-2, Llama 3 or Qwen 2"
        )
    return known
