"""The tensors of a model by name, known without their values: those it needs, and those its files hold."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open

from trainer.config.hugging_face import weight_files
from trainer.config.model import ModelConfig
from trainer.config.peft import adapter_of
from trainer.system.errors import TrainerError

HEAD, SINKS = "lm_head.weight", "sinks.weight"
# Those with a row for each token of the vocabulary.
WITH_VOCABULARY = ("model.embed_tokens.weight", HEAD)

WHOLE_MODELS = "name a causal language model, saved whole and without quantization"
Shape = tuple[int, ...]


def stored_shapes(directory: Path) -> Iterator[tuple[str, Shape]]:
    """The tensors of a model's files; for an adapter, those of its base. Raises TrainerError."""
    if adapter := adapter_of(directory):
        yield from stored_shapes(adapter.base)
        return
    for path in weight_files(directory):
        try:
            with safe_open(path, framework="np") as file:
                for name in file.keys():  # noqa: SIM118 (not a dict)
                    yield name, (*file.get_slice(name).get_shape(),)
        except (OSError, SafetensorError) as error:
            raise TrainerError(f"{path}: cannot be read: {error}") from error


def is_read(name: str) -> bool:
    """False for the tables of angles of early Llamas, which follow from the configuration."""
    return not name.endswith("rotary_emb.inv_freq")


def check_tensors(
    place: object,
    stored: Iterable[tuple[str, Shape]],
    model: ModelConfig,
    vocab_size: int,
    grows: bool = False,
) -> None:
    """Raises TrainerError unless the tensors in `place` are those of the model. Of a vocabulary they may have
    more rows, and fewer where it `grows`. A head that is tied may be stored, too.
    """
    needed = _shapes(model, vocab_size)
    left = set(needed)
    for name, shape in stored:
        if not is_read(name):
            continue
        if name not in left:
            raise TrainerError(
                f"{place}: tensor {name} is unknown to the model, or stored twice: {WHOLE_MODELS}"
            )
        left.remove(name)
        rows, least = shape[:1], needed[name][:1]
        fits = rows >= least or (grows and rows > (0,)) if name in WITH_VOCABULARY else rows == least
        if not fits or shape[1:] != needed[name][1:]:
            raise TrainerError(
                f"{place}: {name} has shape {shape}, but the model needs {needed[name]}: put the "
                "config.json of these weights beside them"
            )
    if missing := left - ({HEAD} if model.tie_embeddings else set()):
        raise TrainerError(
            f"{place}: tensors of the model are missing: {', '.join(sorted(missing))}: {WHOLE_MODELS}"
        )


def _shapes(model: ModelConfig, vocab_size: int) -> dict[str, Shape]:
    """As transformers names and stores them."""
    d_model, d_ff = model.d_model, model.d_ff
    queries, keys = model.n_heads * model.head_dim, model.n_kv_heads * model.head_dim
    block: dict[str, Shape] = {
        "input_layernorm.weight": (d_model,),
        "self_attn.q_proj.weight": (queries, d_model),
        "self_attn.k_proj.weight": (keys, d_model),
        "self_attn.v_proj.weight": (keys, d_model),
        "self_attn.o_proj.weight": (d_model, queries),
        "post_attention_layernorm.weight": (d_model,),
        "mlp.gate_proj.weight": (d_ff, d_model),
        "mlp.up_proj.weight": (d_ff, d_model),
        "mlp.down_proj.weight": (d_model, d_ff),
    }
    if model.qk_norm:
        block |= {f"self_attn.{name}_norm.weight": (model.head_dim,) for name in "qk"}
    if model.attention_sinks:
        block[f"self_attn.{SINKS}"] = (model.n_heads,)
    blocks = {
        f"model.layers.{number}.{name}": shape
        for number in range(model.n_layers)
        for name, shape in block.items()
    }
    ends = dict.fromkeys(WITH_VOCABULARY, (vocab_size, d_model))
    return ends | {"model.norm.weight": (d_model,)} | blocks
