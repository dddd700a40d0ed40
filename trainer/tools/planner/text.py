"""A plan as text for the terminal."""

import textwrap
from collections.abc import Mapping
from dataclasses import astuple, fields

import torch

from trainer.config import TrainingConfig
from trainer.config.parallel import UNSPLITTABLE
from trainer.model.precision import resolve
from trainer.run.fit.gpu_memory import Footprint, GpuMemory
from trainer.run.fit.memory import estimate
from trainer.system.gpus import PRICES_AS_OF
from trainer.tools.planner import law
from trainer.tools.planner.plan import DAY, HOUR, Machine, Run
from trainer.tools.planner.roofline import Step
from trainer.tools.tables import table, terminal_width, width

FITTED = "the law was fitted to 70 M to 16 B parameters and 5 B to 500 B tokens"


def describe(run: Run, training: TrainingConfig, gpu_name: str, step: Step | None) -> str:
    """A plan for GPUs, with a table of their memory. Takes a few seconds."""
    machine = run.machine
    lines = {
        "Machine": f"{machine.gpus} x {gpu_name}, {machine.gpu.flops / 1e12:,.0f} TFLOP/s in bf16 and "
        f"{machine.gpu.memory / 1e9:.0f} GB each, at {_mfu(run)}, "
        f"{machine.price:.2f} USD a GPU-hour (unless given, an assumption of {PRICES_AS_OF})",
        **_step(step),
        "Time": f"{_time(run.seconds)}, {run.gpu_hours:,.1f} GPU-hours, "
        f"{count(run.tokens / run.seconds)} tokens a second",
        "Cost": f"{run.cost:,.0f} USD" if run.cost >= 100 else f"{run.cost:.2f} USD",
    }
    return f"{_summary(run, lines)}\n\n{_memory(machine, Footprint.measure(training, run.vocab_size))}"


def describe_on_cpu(run: Run, training: TrainingConfig, step: Step | None) -> str:
    """A plan for the CPU of this machine. Takes a few seconds."""
    machine, device = run.machine, torch.device("cpu")
    needed = estimate(training, run.vocab_size, 1, device)
    fits = "fits into" if needed.total <= machine.gpu.memory else "does not fit into"
    lines = {
        "Machine": f"the CPU of this machine, {torch.get_num_threads()} threads, "
        f"{machine.gpu.flops / 1e9:,.0f} GFLOP/s in {resolve(training.precision, device)} (measured now), "
        f"at {_mfu(run)}",
        **_step(step),
        "Time": f"{_time(run.seconds)}, {count(run.tokens / run.seconds)} tokens a second, evaluations apart",
        **({"Cost": f"{run.cost:.2f} USD"} if machine.price else {}),
        "Memory": f"{needed}; {fits} the {machine.gpu.memory / 1e6:,.0f} MB that are free",
    }
    return _summary(run, lines)


def _summary(run: Run, of_the_machine: Mapping[str, str]) -> str:
    model = run.model
    causal = model.flops_per_token(run.vocab_size, run.seq_len, causal=True)
    lines = {
        "Model": f"{count(run.parameters)} parameters: {model.n_layers} layers, d_model {model.d_model}, "
        f"{model.n_heads} heads ({model.n_kv_heads} for keys), d_ff {model.d_ff}, "
        f"vocabulary {run.vocab_size:,}",
        "Tokens": f"{count(run.tokens)}, {run.tokens / run.parameters:.1f} a parameter, "
        f"in windows of {run.seq_len:,}",
        "Compute": f"{run.flops:.2e} FLOPs, {count(run.flops_per_token)} a token as PaLM and torchtitan "
        f"count them; {count(causal)} as Megatron-LM does, with half of the attention",
        **of_the_machine,
        **_loss(run),
    }
    columns = terminal_width()
    return "\n".join(
        textwrap.fill(text, columns, initial_indent=f"{name:<10}", subsequent_indent=" " * 10)
        for name, text in lines.items()
    )


def _mfu(run: Run) -> str:
    causal = run.model.flops_per_token(run.vocab_size, run.seq_len, causal=True) / run.flops_per_token
    return f"{run.machine.mfu:.0%} MFU ({causal * run.machine.mfu:.0%} with half of the attention)"


def _step(step: Step | None) -> dict[str, str]:
    """Where the time goes by the roofline, longest first."""
    if step is None:
        return {}
    device = step.of_the_device
    shares = ", ".join(
        f"{name} {seconds / sum(device.values()):.0%}"
        for name, seconds in sorted(device.items(), key=lambda part: -part[1])
        if seconds
    )
    waits = "; the host, which launches the work, takes longer" if step.host > sum(device.values()) else ""
    return {"Step": f"{step.seconds:.3g} s for {step.tokens:,} tokens by a roofline: {shares}{waits}"}


def _loss(run: Run) -> dict[str, str]:
    """What the scaling law expects, where it says anything."""
    if not law.holds(run.parameters, run.tokens):
        return {"Loss": f"not predicted: {FITTED}, and this plan is far from there"}
    optimum = law.best_tokens(run.parameters)
    caution = f"; a guess: {FITTED}" if law.is_extrapolated(run.parameters, run.tokens) else ""
    return {
        "Loss": f"{run.expected_loss:.3f} nats a token, by {law.SOURCE}{caution}",
        "Optimum": f"{count(optimum)} tokens for this size ({optimum / run.parameters:.1f} a parameter): "
        f"loss {law.expected_loss(run.parameters, optimum):.3f}",
    }


def count(value: float) -> str:
    """Three digits and a unit: 1.24 B, 26.5 T."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 0.9995 * size:
            return f"{value / size:#.3g} {unit}".replace(". ", " ")
    return f"{value:.0f}"


def _memory(machine: Machine, footprint: Footprint) -> str:
    """A row for `ddp` and, where the optimizer can update split weights, one for `dp_shard` over all GPUs."""
    training = footprint.training
    ways = {"ddp": 1}
    if machine.gpus > 1 and training.optimizer.kind not in UNSPLITTABLE:
        ways[f"dp_shard: {machine.gpus}"] = machine.gpus
    rows = []
    for name, shards in ways.items():
        memory = footprint.on_gpu(training.micro_batch_windows, shards)
        largest = footprint.largest_micro_batch(shards, machine.gpu.memory)
        fits = "yes" if memory.total <= machine.gpu.memory else "no"
        parts = (f"{part / 1e9:.2f}" for part in (*astuple(memory), memory.total))
        rows.append((name, *parts, fits, str(largest or "none")))
    parts = (field.name for field in fields(GpuMemory))
    title = (
        f"Memory: {training.optimizer.kind}, micro-batch {training.micro_batch_size} x {training.seq_len}, "
        f"activation checkpointing {training.activation_checkpointing}"
    )
    header = ("GB on a GPU", *parts, "total", "fits", "micro-batch up to")
    drawn = table(header, rows)
    if width(drawn) > terminal_width():  # turned
        first, *others = zip(header, *rows, strict=True)
        drawn = table(first, others)
    return f"{textwrap.fill(title, terminal_width())}\n{drawn}"


def _time(seconds: float) -> str:
    for unit, size in (("days", DAY), ("hours", HOUR)):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds / 60:.1f} minutes"
