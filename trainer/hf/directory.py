"""The directory of a model, which `transformers` opens: written and loaded again. Weights are in one
model.safetensors, or in several files with an index.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from trainer.config import ModelConfig, SamplesConfig
from trainer.config.hugging_face import config_json, model_config, read_size, weight_files
from trainer.config.model_files import CONFIG, GENERATION_CONFIG, SINGLE, TOKENIZER, TOKENIZER_CONFIG
from trainer.config.peft import adapter_of
from trainer.config.tensors import HEAD, WITH_VOCABULARY, check_tensors, is_read, stored_shapes
from trainer.hf.adapter import merged_tensors
from trainer.model.attention import choose_backend
from trainer.model.llama import Llama
from trainer.parallel.dtensor import fill
from trainer.system.errors import TrainerError
from trainer.system.tensor_files import WEIGHTS_OF_PYTORCH, save_tensors

TOKENIZER_FILES = (TOKENIZER, TOKENIZER_CONFIG, "special_tokens_map.json", "chat_template.jinja")


def export(
    model: Llama, tokenizer: Path, *, bot_id: int, eot_id: int, destination: Path, end_id: int | None = None
) -> None:
    """Writes a directory that `AutoModelForCausalLM`, `AutoModel` and `AutoTokenizer` open. Answers end with
    `end_id`, if the model gives some.
    """
    destination.mkdir(parents=True)
    save_tensors(weights(model), destination / SINGLE, WEIGHTS_OF_PYTORCH)
    ends = eot_id if end_id is None else [end_id, eot_id]
    config = config_json(
        model.config,
        vocab_size=model.vocab_size,
        context=model.context,
        bot_id=bot_id,
        eot_id=eot_id if end_id is None else end_id,
    )
    usual = SamplesConfig()  # as `chat` and `generate` draw
    drawn = {"do_sample": True, "temperature": usual.temperature, "top_k": usual.top_k}
    generation = {"bos_token_id": bot_id, "eos_token_id": ends, **drawn}
    for name, content in ((CONFIG, config), (GENERATION_CONFIG, generation)):
        (destination / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    for name in TOKENIZER_FILES:
        if (tokenizer / name).exists():
            shutil.copyfile(tokenizer / name, destination / name)


def weights(model: Llama) -> dict[str, torch.Tensor]:
    """The model's tensors, in fp32 on the CPU, without the rows that pad the vocabulary.

    A tied head is left out, because it is the embedding.
    """
    tensors = {}
    for name, parameter in model.named_parameters():
        rows = model.vocab_size if name in WITH_VOCABULARY else parameter.shape[0]
        tensors[name] = parameter.detach()[:rows].float().cpu().contiguous()
    return tensors


def load_model(directory: Path, device: torch.device | None = None) -> Llama:
    """Loads the model of a directory for inference on `device`, by default the GPU if there is one. Raises
    TrainerError for files that cannot be read, and for a model that is larger than the memory.
    """
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    shape, seq_len = model_config(directory), read_size(directory, "max_position_embeddings")
    vocab_size = read_size(directory, "vocab_size")
    _check_size(directory, shape, vocab_size, seq_len, device)
    with torch.device("meta"):
        backend = choose_backend("auto", device, torch.float32, model=shape, seq_len=seq_len, masked=False)
        model = Llama(shape, vocab_size, seq_len, backend)
    model.materialize(device)
    load_weights(model, directory)
    return model.eval()


def _check_size(
    directory: Path, shape: ModelConfig, vocab_size: int, seq_len: int, device: torch.device
) -> None:
    """Raises TrainerError unless the memory of the device, with its swap space, can hold the model."""
    numbers = shape.parameters(vocab_size) + 2 * seq_len * shape.head_dim  # and the tables of its rotations
    needed, given = numbers * torch.float32.itemsize, _memory(device)
    if needed > given:
        raise TrainerError(
            f"{directory / 'config.json'}: a model of {shape.parameters(vocab_size):,} parameters that reads "
            f"{seq_len:,} tokens takes {needed / 1e9:,.0f} GB, and the memory has {given / 1e9:,.0f} GB: "
            "correct its sizes if they are wrong, else use a machine with more memory"
        )


def _memory(device: torch.device) -> int:
    """All bytes of a device, also those that other programs use now."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    lines = Path("/proc/meminfo").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("MemTotal:", "SwapTotal:")))


def load_weights(model: Llama, directory: Path, grows: bool = False) -> None:
    """Copies a directory's tensors, one at a time, into the parameters that this process holds.

    Padding rows become zero. Rows beyond the vocabulary are left out; where it `grows`, those that are
    missing are the mean of the others. Raises TrainerError when a tensor is missing, unknown or has another
    shape, or when a head that is tied differs from the embedding.
    """
    check_tensors(directory, stored_shapes(directory), model.config, model.vocab_size, grows)
    parameters, tied = dict(model.named_parameters()), []
    with torch.no_grad():
        for name, tensor in _tensors(directory):
            if name in WITH_VOCABULARY and model.config.tie_embeddings:
                tied.append(tensor)
                if len(tied) == 2 and not torch.equal(*tied):  # transformers does not tie them then
                    raise TrainerError(
                        f"{directory}: config.json ties {HEAD} to the embedding, but the weights have "
                        f"another {HEAD}: set tie_word_embeddings to false if that is meant, else remove it"
                    )
                if name == HEAD:
                    continue
            used = tensor[: model.vocab_size] if name in WITH_VOCABULARY else tensor
            if name in WITH_VOCABULARY and (lacking := model.vocab_size - len(used)):
                used = torch.cat([used, used.float().mean(0, keepdim=True).expand(lacking, -1)])
            if name in parameters:
                fill(parameters[name], used)


def _tensors(directory: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a model; for an adapter, those of its base, merged with it."""
    if adapter := adapter_of(directory):
        yield from merged_tensors(adapter, _tensors(adapter.base))
        return
    for path in weight_files(directory):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 (not a dict)
                    if is_read(name):
                        yield name, file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise TrainerError(f"{path}: cannot be read: {error}") from error
