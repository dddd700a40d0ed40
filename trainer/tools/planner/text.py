"""A plan as text for the terminal."""

from dataclasses import replace

from trainer.config import ModelConfig
from trainer.config.parallel import NOT_SPLIT
from trainer.system.gpus import PRICES_AS_OF
from trainer.tools.planner.gpu_memory import (
    FORMULAS,
    SHARDINGS,
    Sharding,
    Workload,
    gpu_memory,
    largest_micro_batch,
)
from trainer.tools.planner.laws import FITTED_PARAMETERS, FITTED_TOKENS, LAWS, ScalingLaw
from trainer.tools.planner.plan import DAY, HOUR, Machine, Run, smaller_models
from trainer.tools.tables import table

OVERTRAINING = (0.5, 1, 2, 5, 10, 20)


def describe(run: Run, work: Workload, law: ScalingLaw, gpu_name: str) -> str:
    return "\n\n".join(
        (
            _summary(run, law, gpu_name),
            _memory(run.machine, work),
            _optima(run),
            _overtraining(run, law),
            _smaller(run, law),
        )
    )


def count(value: float) -> str:
    """1.24 B, 26.5 T: three digits and a unit."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 0.9995 * size:
            return f"{value / size:#.3g} {unit}".replace(". ", " ")
    return f"{value:.0f}"


def shape(model: ModelConfig) -> str:
    return (
        f"{model.n_layers} layers, d_model {model.d_model}, {model.n_heads} heads ({model.n_kv_heads} "
        "for "
        f"keys), d_ff {model.d_ff}"
    )


def _summary(run: Run, law: ScalingLaw, gpu_name: str) -> str:
    machine = run.machine
    return "\n".join(
        (
            f"Model     {count(run.parameters)} parameters: {shape(run.model)}, vocabulary "
            f"{run.vocab_size:,}",
            f"Tokens    {count(run.tokens)}, {run.tokens / run.parameters:.1f} a parameter, in windows of "
            f"{run.seq_len:,}",
            f"Compute   {run.flops:.2e} FLOPs, {count(run.flops_per_token)} a token",
            f"Machine   {machine.gpus} x {gpu_name}, {machine.gpu.flops / 1e12:,.0f} TFLOP/s in bf16 and "
            f"{machine.gpu.memory / 1e9:.0f} GB each, "
            f"at {machine.mfu:.0%} MFU, {machine.price:.2f} USD a GPU-hour (the table's prices are "
            f"assumptions of {PRICES_AS_OF})",
            f"Time      {_time(run.seconds)}, {run.gpu_hours:,.1f} GPU-hours, "
            f"{count(run.tokens / run.seconds)} tokens a second",
            f"Cost      {_dollars(run.cost)} USD",
            f"Loss      {run.expected_loss(law):.3f} nats a token, by {law.source}{_caution(run)}",
        )
    )


def _memory(machine: Machine, work: Workload) -> str:
    header = (
        "GB on a GPU",
        "weights",
        "gradients",
        "optimizer",
        "bf16",
        "gathered",
        "activations",
        "logits",
        "total",
        "fits",
        "micro-batch up to",
        "weights + gradients + state",
    )
    rows = [_memory_row(name, machine, work) for name in SHARDINGS]
    batch = f"micro-batch {work.micro_batch_size} x {work.seq_len}"
    note = (
        f"Memory: {work.optimizer}, {batch}, activation checkpointing {work.activation_checkpointing}; "
        "`python -m trainer` works as ddp"
    )
    if machine.gpus > 1 and work.optimizer not in NOT_SPLIT:
        note += (
            f", with `training.parallel: {{dp_shard: {machine.gpus}}}` as zero3, after 4P on each GPU "
            "for a moment"
        )
    return f"{note}\n{table(header, rows)}"


def _memory_row(sharding: Sharding, machine: Machine, work: Workload) -> tuple[str, ...]:
    memory, available = gpu_memory(work, sharding, machine.gpus), machine.gpu.memory
    lasting = (memory.weights, memory.gradients, memory.optimizer, memory.bf16_weights, memory.gathered)
    parts = (*lasting, memory.activations, memory.logits, memory.total)
    fits = "yes" if memory.total <= available else "no"
    largest = largest_micro_batch(work, sharding, machine.gpus, available)
    return (
        sharding,
        *(f"{part / 1e9:.2f}" for part in parts),
        fits,
        str(largest or "none"),
        FORMULAS[sharding],
    )


def _optima(run: Run) -> str:
    rows = []
    for law in LAWS.values():
        tokens = law.best_tokens(run.parameters)
        rows.append(
            (
                law.source,
                count(tokens),
                f"{tokens / run.parameters:.1f}",
                f"{law.loss(run.parameters, tokens):.3f}",
                f"{run.expected_loss(law):.3f}",
            )
        )
    header = ("Compute-optimal for this size", "tokens", "a parameter", "loss there", "loss of the plan")
    return table(header, rows)


def _overtraining(run: Run, law: ScalingLaw) -> str:
    optimum = law.best_tokens(run.parameters)
    rows = []
    for factor in OVERTRAINING:
        longer = replace(run, tokens=factor * optimum)
        # What the same operations would give, spent on the best size for them.
        best = law.loss(*law.best_for_compute(6 * longer.parameters * longer.tokens))
        loss = longer.expected_loss(law)
        cells = (
            f"{loss:.3f}",
            f"{loss - best:+.3f}",
            _time(longer.seconds),
            f"{longer.gpu_hours:,.1f}",
            _dollars(longer.cost),
        )
        rows.append((f"{factor:g}x the optimum", count(longer.tokens), *cells))
    return table(
        ("Training longer", "tokens", "loss", "above the best size", "time", "GPU-hours", "USD"), rows
    )


def _smaller(run: Run, law: ScalingLaw) -> str:
    rows = [
        (
            f"{count(smaller.parameters)} parameters",
            count(smaller.tokens),
            f"{smaller.training_flops / (6 * run.parameters * run.tokens):.2f}x",
            f"{smaller.parameters / run.parameters:.2f}x",
            count(smaller.tokens_served),
        )
        for smaller in smaller_models(run.parameters, run.tokens, law)
    ]
    if not rows:
        return "Smaller models: none reaches this loss, however long it trains"
    return table(
        ("Same loss, cheaper to serve", "tokens", "training", "inference", "paid back after tokens served"),
        rows,
    )


def _time(seconds: float) -> str:
    for unit, size in (("days", DAY), ("hours", HOUR)):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds / 60:.1f} minutes"


def _dollars(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.2f}"


def _caution(run: Run) -> str:
    fitted = (
        FITTED_PARAMETERS[0] <= run.parameters <= FITTED_PARAMETERS[1]
        and FITTED_TOKENS[0] <= run.tokens <= FITTED_TOKENS[1]
    )
    return (
        "" if fitted else "; beyond what was fitted (70 M to 16 B parameters, 5 B to 500 B tokens), a guess"
    )
