"""Whether training on this machine's device is right: what is installed, losses beside a CPU's in fp32,
attention backends beside each other, a resumed run beside one that was never stopped, and CUDA graphs.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import yaml

from harness.sidebyside import ROOT
from trainer.checkpoint import publish as store
from trainer.config import InitConfig, ModelConfig, RunConfig, TrainingConfig
from trainer.model.attention import attention, choose_backend, document_mask, document_numbers, flash
from trainer.model.llama import Llama
from trainer.model.precision import AUTOCAST, LossScale, Precision
from trainer.optim.build import build
from trainer.parallel.world import World, join
from trainer.run.fit.compiler import compile_blocks, compiles
from trainer.run.fit.rehearsal import dry_run
from trainer.run.resolve import resolve
from trainer.run.session import Session, build_session
from trainer.run.spikes import SpikeDetector
from trainer.run.step import StepContext, train_step

CPU = torch.device("cpu")
VOCABULARY, BOT, STEPS = 2048, 2, 10
FLASH = tuple(package.name for package in flash.PACKAGES)
PACKAGES = ("torch", "triton", *FLASH, "torchao", "transformers", "accelerate")
# Shares of the reference. In bf16 a product keeps 8 bits, and ten steps add up.
TOLERANCES: dict[str, float] = {"fp32": 1e-3, "bf16": 2e-2}

MOST_TEST_WORKERS = 14  # each has a CUDA context of half a gigabyte

Result = dict[str, Any]


def installed(device: torch.device) -> Result:
    found: Result = {name: _version(name) for name in PACKAGES}
    found["compiler"] = shutil.which("gcc") or shutil.which("clang")
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "gpu": properties.name,
            "gpus": torch.cuda.device_count(),
            "compute_capability": f"{properties.major}.{properties.minor}",
            "memory_gb": round(properties.total_memory / 1e9, 1),
            "cuda": torch.version.cuda,
        }
    return found


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def tests(device: torch.device) -> Result:
    """How many of the trainer's quick tests pass with the GPU, and the names of those that do not. Those of
    several processes are left out, which want a GPU each.
    """
    if device.type == "cpu":
        return {"skipped": "`make test` runs them on a CPU"}
    workers = str(min(MOST_TEST_WORKERS, max(1, (os.cpu_count() or 1) - 2)))
    command = [sys.executable, "-m", "pytest", "tests/trainer", "-m", "not slow", "-n", workers]
    command += ["--dist", "loadgroup", "--tb=no", "-r", "fE", "--ignore", "tests/trainer/parallel"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    failed = [line.split()[1] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    counts = next((line.strip("= ") for line in reversed(lines) if " passed" in line), "none passed")
    return {"passed": " passed" in counts and not failed, "counts": counts, "failed": failed}


def losses(device: torch.device) -> Result:
    """The losses of ten steps on masked documents, by precision, and the largest difference from those of a
    CPU in fp32, as a share. On a GPU everything is compiled, as in a run.
    """
    expected = _losses(CPU, "fp32")
    found: Result = {"expected": expected, "passed": True}
    for precision, tolerance in TOLERANCES.items():
        ours = _losses(device, precision)  # type: ignore[arg-type]
        difference = max(abs(a - b) / b for a, b in zip(ours, expected, strict=True))
        found[precision] = {"losses": ours, "difference": difference, "allowed": tolerance}
        found["passed"] &= difference <= tolerance
    return found


def stores(device: torch.device) -> Result:
    """The losses of dropout with recomputed activations, whose kernels read back what they have stored: the
    largest difference between compiled blocks and uncompiled ones, as a share, where memory holds NaN before
    each step. A compiler that leaves out a barrier reads it.
    """
    if device.type == "cpu":
        return {"skipped": "only kernels for GPUs store and read back by several threads"}
    allowed, changes = TOLERANCES["bf16"], {"dropout": 0.1, "activation_checkpointing": "full"}
    expected = _losses(device, "bf16", changes | {"compile": False})
    ours = _losses(device, "bf16", changes, _fill_free_memory)
    difference = max(abs(a - b) / b for a, b in zip(ours, expected, strict=True))
    return {"losses": ours, "difference": difference, "allowed": allowed, "passed": difference <= allowed}


def _fill_free_memory() -> None:
    """Leaves NaN in the memory that small and large tensors take next."""
    torch.cuda.empty_cache()
    left = [torch.full((size,), float("nan"), device="cuda") for size in [2**31] + 400 * [2**17]]
    torch.cuda.synchronize()
    del left


def _losses(
    device: torch.device,
    precision: Precision,
    changes: Mapping[str, Any] | None = None,
    before_step: Callable[[], None] = lambda: None,
) -> list[float]:
    batch = 4 * 256
    training = TrainingConfig.model_validate(
        {
            "model": {"n_layers": 4, "d_model": 256, "n_heads": 4, "n_kv_heads": 2, "d_ff": 688},
            "seq_len": 256,
            "micro_batch_size": 2,
            "global_batch_tokens": batch,
            "max_tokens": STEPS * batch,
            "document_masking": True,
            "checkpoint": {"every_tokens": batch},
            "evaluation": {"every_tokens": batch},
            **(changes or {}),
        }
    )
    dtype = AUTOCAST.get(precision, torch.float32)
    backend = choose_backend("auto", device, dtype, model=training.model, seq_len=256, masked=True)
    model = Llama(
        training.model,
        VOCABULARY,
        256,
        backend,
        training.activation_checkpointing,
        dropout=training.dropout,
        precision=precision,
    )
    model.initialize(InitConfig(), seed=1)
    model.to(device)
    if compiles(training, device):
        compile_blocks(model, training, device)
    optimizers, world = build(model, training.optimizer), World(0, 1, device)
    generator, found = torch.Generator().manual_seed(0), []
    for step in range(STEPS):
        # Low numbers are likelier, so that there is something to learn; documents begin all over.
        windows = (torch.rand(4, 257, generator=generator).square() * VOCABULARY).long()
        windows[torch.rand(4, 257, generator=generator) < 0.02] = BOT
        context = StepContext(step, training, BOT, world, LossScale(), SpikeDetector())
        before_step()
        found.append(train_step(model, optimizers, windows.to(device), context).loss)
    return found


def backends(device: torch.device) -> Result:
    """The result and the gradients of each backend on masked documents, against plain products in fp32 on a
    CPU: the largest difference as a share of the largest number. `kernels` is where those of flash come from.
    """
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(2, heads, 512, 64, generator=generator) for heads in (8, 2, 2)]
    tokens = (torch.rand(2, 512, generator=generator) < 0.02).long()
    expected = _with_gradients("math", CPU, torch.float32, inputs, tokens)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    allowed = TOLERANCES["bf16" if device.type == "cuda" else "fp32"]
    found: Result = {"allowed": allowed, "passed": True}
    on_gpu = []
    if device.type == "cuda":
        found["kernels"] = flash.activate(device, 64)
        on_gpu = ["flex", "flash"]
    for backend in ("math", "sdpa", *on_gpu):
        ours = _with_gradients(backend, device, dtype, inputs, tokens)
        found[backend] = max(
            ((a - b).abs().max() / b.abs().max()).item() for a, b in zip(ours, expected, strict=True)
        )
        found["passed"] &= found[backend] <= allowed
    return found


def _with_gradients(
    backend: Any, device: torch.device, dtype: torch.dtype, inputs: list[torch.Tensor], tokens: torch.Tensor
) -> list[torch.Tensor]:
    moved = [one.to(device, dtype).requires_grad_() for one in inputs]
    mask = document_mask(document_numbers(tokens.to(device), 1), tokens.shape[1], backend)
    query, key, value = moved
    result = attention(query, key, value, backend, mask=mask)
    gradients = torch.autograd.grad(result.float().square().sum(), moved)
    return [one.float().cpu() for one in (result.detach(), *gradients)]


def flash_package(device: torch.device) -> Result:
    """What the package of `training.attention: flash` gives beside PyTorch's own kernels and flex, on masked
    documents of 512 tokens on average in windows of 4,096: how far its results and gradients are from those
    of a CPU, and the milliseconds of a forward and backward pass. `auto` is the backend that a run takes.
    """
    if device.type != "cuda":
        return {"skipped": "the packages of FlashAttention run on a GPU"}
    used = flash.activate(device, 128)
    if used.split()[0] not in FLASH:
        return {"skipped": f"none of {', '.join(FLASH)} is installed for this GPU: docs/trainer.md says how"}
    compared = backends(device)
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(4, heads, 4096, 128, generator=generator) for heads in (16, 4, 4)]
    tokens = (torch.rand(4, 4096, generator=generator) < 1 / 512).long()
    found = {"package": milliseconds("flash", device, inputs, tokens)}
    flash.take_pytorchs_own()
    for name, backend in {"PyTorch's own": "flash", "flex": "flex"}.items():
        found[name] = milliseconds(backend, device, inputs, tokens)
    shape = ModelConfig(n_layers=1, d_model=16 * 128, n_heads=16, n_kv_heads=4, d_ff=8)
    return {
        "package": used,
        "auto": choose_backend("auto", device, torch.bfloat16, model=shape, seq_len=4096, masked=True),
        "difference": compared["flash"],
        "allowed": compared["allowed"],
        "milliseconds": found,
        "tokens_per_s": {name: round(tokens.numel() / taken * 1000) for name, taken in found.items()},
        "passed": compared["flash"] <= compared["allowed"],
    }


def milliseconds(
    backend: Any, device: torch.device, inputs: list[torch.Tensor], tokens: torch.Tensor, times: int = 20
) -> float:
    """The median of a forward and backward pass in bf16 on documents that begin where `tokens` are 1."""
    moved = [one.to(device, torch.bfloat16).requires_grad_() for one in inputs]
    # Room for as many documents as the fullest window has, as in a run.
    most = int(tokens.sum(dim=1).max()) + 1
    mask = document_mask(document_numbers(tokens.to(device), 1), tokens.shape[1], backend, most)
    query, key, value = moved
    taken = []
    for _ in range(times + 3):  # the first three compile, and warm up
        started = _now(device)
        torch.autograd.grad(attention(query, key, value, backend, mask=mask).sum(), moved)
        taken.append(_now(device) - started)
    return round(1000 * statistics.median(taken[3:]), 3)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def resume(config: Path) -> Result:
    """Trains by the configuration, removes the last checkpoint, and resumes from the one before. A CPU
    repeats the losses to the bit; a GPU up to rounding, which the difference says.
    """
    run = Path(yaml.safe_load(config.read_text())["run_dir"])
    whole = _trained(config, run)
    shutil.rmtree(store.existing(run / "checkpoints")[-1])
    resumed = _trained(config, run)
    difference = max(abs(resumed[step] - loss) / loss for step, loss in whole.items())
    return {
        "steps": len(whole),
        "difference": difference,
        "to_the_bit": resumed == whole,
        "passed": difference <= TOLERANCES["bf16"],
    }


def cuda_graphs(config: Path) -> Result:
    """The steps of the configuration with CUDA graphs of its micro-batches, as a run takes them on a GPU, and
    without: how far the losses are apart, as a share, and the tokens per second of both.
    """
    training = yaml.safe_load(config.read_text())["training"]
    steps = training["max_tokens"] // training["global_batch_tokens"]
    losses: list[list[float]] = []
    found: Result = {"steps": steps}
    for name in ("without", "with graphs"):
        session = _built(config)
        if name == "with graphs":
            dry_run(session)
            session.repeat_in_graphs()
        taken, losses_of = [], []
        for step in range(steps):
            windows = torch.from_numpy(session.plan.data.batch(step, 0, 1)).to(session.world.device)
            started = _now(session.world.device)
            losses_of.append(session.take_step(windows).loss)
            taken.append(_now(session.world.device) - started)
        losses.append(losses_of)
        speed = training["global_batch_tokens"] / statistics.median(taken[steps // 2 :])
        found[name] = {"tokens_per_s": round(speed)}
    apart = max(abs(theirs - ours) / ours for ours, theirs in zip(*losses, strict=True))
    return found | {"difference": apart, "passed": apart <= TOLERANCES["bf16"]}


def _built(config: Path) -> Session:
    settings = RunConfig.model_validate(yaml.safe_load(config.read_text()))
    world = join(settings.training.parallel)
    return build_session(resolve(settings, world), world)


def _trained(config: Path, run: Path) -> dict[int, float]:
    subprocess.run([sys.executable, "-m", "trainer", str(config)], cwd=ROOT, check=True)
    return {step: line["loss"] for step, line in _steps(run).items()}


def _steps(run: Path) -> dict[int, dict[str, Any]]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: line for line in lines if line["kind"] == "train"}
