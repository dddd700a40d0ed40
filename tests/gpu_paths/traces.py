"""Traces of training on a pretended GPU, each in its process: `traces.py NAME key=value ...` prints JSON."""

# ruff: noqa: I001 (the GPU is pretended before torch is imported)
from tests.gpu_paths.pretended_gpu import pretend, synchronizations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch
import torch.distributed as dist
import yaml
from torch._dynamo.utils import counters
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import _disable_current_modes

import trainer.model.attention.documents
import trainer.model.loss
from trainer.config import ModelConfig, TrainingConfig
from trainer.model.attention import choose_backend, document_mask, document_numbers, flash, masks_documents
from trainer.model.joined_products import join_products
from trainer.model.llama import Llama
from trainer.model.loss import softmax_loss
from trainer.model.precision import AUTOCAST, LossScale, autocast, convert_to_fp8, resolve_precision
from trainer.optim.build import build
from trainer.parallel import dtensor
from trainer.parallel.pipeline_parallel import release
from trainer.parallel.parallelize import split
from trainer.parallel.world import DIMENSIONS, World
from trainer.run.spikes import SpikeDetector
from trainer.run.batch import Batch
from trainer.run.fit.store_barrier import wait_for_stores
from trainer.run.objectives import loss_sum
from trainer.run.step import StepContext, train_step

RECIPES = Path(__file__).parents[2] / "pipeline/recipes"
GPU = torch.device("cuda", 0)
BOT, VOCABULARY = 2, 50_304
# A block of the recipes, and the 124M beside which nanoGPT is known.
MODELS: dict[str, dict[str, Any]] = {
    "narrow": {"n_layers": 4, "d_model": 192, "n_heads": 3, "n_kv_heads": 3, "d_ff": 512, "qk_norm": False},
    "124m": {"n_layers": 12, "d_model": 768, "n_heads": 12, "n_kv_heads": 12, "d_ff": 2048, "qk_norm": False},
    "1b": {"size": "1b", "qk_norm": False},
    "7b": {"size": "7b", "qk_norm": False},
}


def steps(recipe: str, shards: str = "1", **changes: str) -> dict[str, Any]:
    """Four steps of a recipe's training, of two micro-batches each, and two evaluations between them. Graphs
    are made by AOT, without code for kernels. `shards`: the model is split over so many processes.

    Windows have no content, and what reads it gets another number each time: code that depends on where
    documents begin would be compiled anew, or fail.
    """
    settings = yaml.safe_load((RECIPES / f"{recipe}.yaml").read_text())["training"]
    for key, value in changes.items():
        section, _, name = key.rpartition(".")
        (settings.setdefault(section, {}) if section else settings)[name] = yaml.safe_load(value)
    settings["parallel"] = {"dp_shard": int(shards)}
    if settings["micro_batch_size"] == "auto":  # no memory to look at
        settings["micro_batch_size"] = 8
    settings["global_batch_tokens"] = 2 * settings["micro_batch_size"] * settings["seq_len"] * int(shards)
    settings["max_tokens"] = 8 * settings["global_batch_tokens"]
    settings["schedule"] |= {"warmup_tokens": 0}
    training = TrainingConfig.model_validate(settings)
    found: dict[str, Any] = {"graphs": [], "synchronizations": [], "when_logged": []}
    tensors_without_content = pretend()
    world = _split_world(int(shards)) if training.parallel.splits_model else World(0, 1, GPU)
    with tensors_without_content:
        precision = resolve_precision(training.precision, GPU)
        masked = masks_documents(training.document_masking, GPU)
        attention = choose_backend(
            training.attention,
            GPU,
            AUTOCAST[precision],
            model=training.model,
            seq_len=training.seq_len,
            masked=masked,
        )
        kernels = flash.activate(GPU, training.model.head_dim) if attention == "flash" else None
        with GPU:
            model = Llama(
                training.model,
                VOCABULARY,
                training.seq_len,
                attention,
                training.activation_checkpointing,
                dropout=training.dropout,
                precision=precision,
            )
        if precision == "fp8":
            convert_to_fp8(model.model.layers)
        bot_id = BOT if masked else None
        if world.mesh:
            split(model, world.mesh, training.parallel, precision)
        torch._dynamo.config.recompile_limit += 1
        if training.parallel.tp == 1:
            join_products(model.model.layers)
        for block in model.model.layers:
            block.compile(fullgraph=True, dynamic=False, backend="aot_eager")
        model.loss_is_compiled = True
        trainer.model.loss.compiled_softmax_loss = lambda: torch.compile(
            softmax_loss, dynamic=False, backend="aot_eager"
        )
        trainer.model.attention.documents.compiled_block_mask = lambda: torch.compile(
            trainer.model.attention.documents.create_block_mask, dynamic=False, backend="aot_eager"
        )
        optimizers = build(model, training.optimizer, holders=world.group)
        for step in range(4):
            context = StepContext(step, training, bot_id, world, LossScale.of(precision), SpikeDetector())
            synchronizations.clear()
            windows = torch.zeros(2 * training.micro_batch_size, training.seq_len + 1, dtype=torch.int64)
            train_step(model, optimizers, windows.to(GPU), context)
            found["synchronizations"].append(sum(synchronizations.values()))
            world.norm([parameter.detach() for parameter in model.parameters()]).item()
            found["when_logged"].append(sum(synchronizations.values()))
            if step in (1, 2):
                with torch.no_grad():
                    loss_sum(model, Batch.of(windows.to(GPU)[: training.micro_batch_size], bot_id), precision)
                release(model)
            found["graphs"].append(counters["stats"]["unique_graphs"])
    breaks = sum(counters["graph_break"].values())
    return found | {"attention": attention, "kernels": kernels, "breaks": breaks}


def _with_content(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*arguments: Any) -> Any:
        with _disable_current_modes():
            return function(*arguments)

    return called


def _split_world(processes: int) -> World:
    """The first of so many processes, whose collectives and streams do nothing."""
    for name in ("Stream", "Event", "stream", "current_stream"):
        setattr(torch.cuda, name, MagicMock())
    # Computes a part's place by tensors, which must have content.
    place = dtensor._slices_at
    dtensor._slices_at = _with_content(place)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=processes)
    mesh = init_device_mesh("cuda", (1, processes, 1), mesh_dim_names=DIMENSIONS)
    return World(0, processes, GPU, mesh, group=dist.group.WORLD)


def block(
    model: str,
    rows: str,
    length: str,
    masked: str = "true",
    kind: str = "none",
    precision: str = "bf16",
    capability: str = "90",
    wanted: str = "auto",
    dropout: str = "0",
    barriers: str = "true",
) -> dict[str, Any]:
    """The code of one block, forward and backward, and the bytes that its kernels move for each token."""
    from tests.gpu_paths import generated_code

    if barriers == "true":
        wait_for_stores()
    shape = ModelConfig.model_validate({**MODELS[model], "n_layers": 1})
    with pretend(int(capability)):
        generated_code.prepare(int(capability))
        dtype = AUTOCAST.get(precision, torch.float32)
        attention = choose_backend(
            wanted,  # type: ignore[arg-type]
            GPU,
            dtype,
            model=shape,
            seq_len=int(length),
            masked=masked == "true",
        )
        if attention == "flash":
            flash.activate(GPU, shape.head_dim)
        with GPU:
            whole = Llama(
                shape,
                VOCABULARY,
                int(length),
                attention,
                kind,  # type: ignore[arg-type]
                dropout=float(dropout),
            )
        if precision == "fp8":
            convert_to_fp8(whole.model.layers)
        join_products(whole.model.layers)
        whole.model.layers[0].compile(fullgraph=True, dynamic=False, backend=generated_code.backend)
        tokens = torch.zeros(int(rows), int(length), dtype=torch.int64, device=GPU)
        documents = document_numbers(tokens, BOT) if masked == "true" else None
        # Its code would be captured in place of the block's.
        trainer.model.attention.documents.compiled_block_mask = lambda: (
            trainer.model.attention.documents.create_block_mask
        )
        x = torch.zeros(*tokens.shape, shape.d_model, device=GPU, requires_grad=True)
        mask = document_mask(documents, int(length), attention)
        with autocast(precision, GPU):  # type: ignore[arg-type]
            keys = 2 * (torch.zeros(int(rows), 2, dtype=torch.int32, device=GPU),)
            given = (x, whole.model.cos, whole.model.sin, mask, None)
            whole.model.layers[0](*given, keys if float(dropout) else (None, None)).sum().backward()
    return {"attention": attention, **_summary(generated_code, int(rows) * int(length))}


def loss(
    rows: str, d_model: str = "768", compiled: str = "true", z_loss: str = "0", capability: str = "90"
) -> dict[str, Any]:
    """The bytes that a loss of so many tokens moves, both ways, and those of its softmax for each logit."""
    from tests.gpu_paths import generated_code

    with pretend(int(capability)):
        generated_code.prepare(int(capability))
        trainer.model.loss.compiled_softmax_loss = lambda: torch.compile(
            softmax_loss, dynamic=False, fullgraph=True, backend=generated_code.backend
        )
        # The last norm gives the type of autocast.
        hidden = torch.zeros(int(rows), int(d_model), dtype=torch.bfloat16, device=GPU, requires_grad=True)
        head = torch.zeros(VOCABULARY, int(d_model), device=GPU, requires_grad=True)
        targets = torch.zeros(int(rows), dtype=torch.int64, device=GPU)
        with autocast("bf16", GPU), generated_code.Moved() as moved:
            trainer.model.loss.summed_cross_entropy(
                hidden, head, targets, VOCABULARY - 4, float(z_loss), compiled=compiled == "true"
            ).backward()
    return {
        **_summary(generated_code, int(rows)),
        "bytes_a_token": moved.total / int(rows),
        "bytes_a_logit": moved.total / int(rows) / VOCABULARY,
    }


def nanogpt(rows: str, length: str) -> dict[str, Any]:
    """nanoGPT's 124M, compiled as one, with its loss: the bytes that it moves for each token."""
    from peers.train import GPT, Work

    from tests.gpu_paths import generated_code

    torch.nn.init.normal_ = lambda tensor, **_: tensor
    with pretend():
        generated_code.prepare(90)
        with GPU:
            model = GPT(Work("", VOCABULARY, 12, 768, 12, int(length), int(rows)))
        tokens = torch.zeros(int(rows), int(length), dtype=torch.int64, device=GPU)
        with autocast("bf16", GPU):
            torch.compile(model, backend=generated_code.backend)(tokens, tokens).backward()
    return _summary(generated_code, int(rows) * int(length))


def _summary(generated_code: Any, tokens: int) -> dict[str, Any]:
    graphs = generated_code.graphs
    return {
        "graphs": len(graphs),
        "bytes_a_token": sum(graph.bytes_moved for graph in graphs) / tokens,
        "calls": sum(len(graph.calls) for graph in graphs),
        "kernels": {
            f"{number}/{name}": source
            for number, graph in enumerate(graphs)
            for name, source in graph.kernels.items()
        },
    }


def main(name: str, *arguments: str) -> None:
    given = dict(argument.split("=", 1) for argument in arguments)
    kinds = {"steps": steps, "block": block, "loss": loss, "nanogpt": nanogpt}
    print(json.dumps(kinds[name](**given)))


if __name__ == "__main__":
    main(*sys.argv[1:])
