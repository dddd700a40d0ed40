"""A run in memory: the model, its optimizers, its data, and how many steps are done; and how it is built."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from torch.optim import Optimizer

from trainer.checkpoint import state
from trainer.checkpoint.background import Staging
from trainer.config import RunConfig, TrainingConfig
from trainer.hf import load_weights
from trainer.model import precision
from trainer.model.llama import Llama
from trainer.model.lora import adapt, adapters
from trainer.model.precision import LossScale
from trainer.optim import weight_averaging
from trainer.optim.build import build
from trainer.optim.second_pass import SecondPass
from trainer.parallel.pipeline_parallel import PipelineModel
from trainer.parallel.world import World
from trainer.run.evaluation.preferences import Evaluation
from trainer.run.evaluation.validation import evaluate
from trainer.run.fit.compiler import compile_blocks
from trainer.run.gradient_graph import GradientGraphs
from trainer.run.learned_tokens import Answers
from trainer.run.reference import Reference
from trainer.run.resolve import Plan
from trainer.run.spikes import SpikeDetector
from trainer.run.state_chain import StateChain, held_out, rounding
from trainer.run.step import StepContext, StepResult, train_step
from trainer.system.errors import TrainerError, in_every_process
from trainer.system.machine import machine


@dataclass
class Session:
    """A run in memory. `build_session` makes it, and `trainer.run.resume` restores it.

    `context` has the number of steps done. `loss` is that of the last step, and `evaluation` that of the
    current step, if it was evaluated. `metrics_bytes` is the length of metrics.jsonl when the state was
    saved. `changes` lists which settings changed since step 0, and when. `trunks` are the runs that this one
    went on from, each with the step. `mixed` says that the run was computed with more than one `rounding`.
    `reference` is that of preferences, once it is known.
    """

    plan: Plan
    world: World
    model: Llama
    optimizers: list[Optimizer]
    context: StepContext
    loss: float = float("nan")
    evaluation: dict[str, Any] | None = None
    metrics_bytes: int = 0
    changes: list[dict[str, Any]] = field(default_factory=list)
    trunks: list[dict[str, Any]] = field(default_factory=list)
    mixed: bool = False
    reference: Reference | None = None

    def __post_init__(self) -> None:
        self.curriculum = self.training.curriculum
        self.chain = StateChain(self.plan)

    @property
    def config(self) -> RunConfig:
        return self.plan.config

    @property
    def training(self) -> TrainingConfig:
        return self.plan.training

    @property
    def step(self) -> int:
        return self.context.step

    @property
    def tokens(self) -> int:
        return self.curriculum.tokens(self.step)

    @property
    def machine(self) -> dict[str, Any]:
        """What of this machine decides the last bits of the weights."""
        return machine(torch.get_num_threads(), self.world.device.type)

    @property
    def rounding(self) -> dict[str, Any]:
        """What decides the last bits of the weights in the steps to come."""
        return rounding(self.plan, self.world)

    @property
    def is_complete(self) -> bool:
        return self.step == self.curriculum.steps

    @property
    def is_logged(self) -> bool:
        """Whether the last step is recorded even if nothing is special about it."""
        return self.step % self.training.log_every_steps == 0 or self.is_complete

    def with_micro_batch(self, windows: int) -> Self:
        plan = self.plan.with_micro_batch(windows)
        return replace(self, plan=plan, context=replace(self.context, training=plan.training))

    def set_reference(self) -> None:
        """Sets the reference of preferences: the one that the run has stored or, where it has none, that of
        the present weights.
        """
        if self.training.objective == "dpo":
            self.reference = Reference.of(self.model, self.plan, self.world)
            self.context.reference = partial(self.reference.of_batch, self.plan.data, self.world)

    def repeat_in_graphs(self) -> None:
        """Lets a GPU repeat the micro-batches of compiled blocks as CUDA graphs, where that is possible. To
        be called after a micro-batch, which shows how much memory one takes. Collectives, and a loss scale
        that changes, cannot be repeated.
        """
        on_gpu = self.world.device.type == "cuda" and self.plan.compiled and self.plan.precision != "fp16"
        if on_gpu and self.world.mesh is None:
            self.context.graphs = GradientGraphs.where_there_is_room(self.model.parameters())

    def passes(self, every_tokens: int | None) -> bool:
        """Whether the last step reached a multiple of `every_tokens`."""
        return self.curriculum.passes(self.step, every_tokens)

    def corpus_tokens(self) -> dict[str, int]:
        """The tokens consumed from each corpus, including those before the mixture was changed."""
        since: dict[str, Any] = self.changes[-1] if self.changes else {"step": 0, "corpus_tokens": {}}
        taken = dict(since["corpus_tokens"])
        first, last = (self.plan.data.corpus_tokens(step) for step in (since["step"], self.step))
        return {name: taken.get(name, 0) + last.get(name, 0) - first.get(name, 0) for name in taken | last}

    def take_step(self, windows: torch.Tensor) -> StepResult:
        """Takes a step on windows [rows, seq_len + 1]. Raises NotFiniteError before weights change."""
        context, before, averaging = self.context, self.tokens, self.training.moving_average
        if context.step == self.curriculum.stage(context.step).first_step:
            context.spikes = SpikeDetector()  # other data or windows have another loss
        result = train_step(self.model, self.optimizers, windows, context)
        context.step += 1
        self.loss, self.evaluation = result.loss, None
        if averaging is not None and not result.skipped:
            weight_averaging.update(averaging, self.optimizers, before=before, tokens=self.tokens)
        return result

    def evaluate(self, gives_up: Callable[[], bool]) -> dict[str, Any] | None:
        """The scores on the held-out text, as `evaluate` says, or on held-out preferences."""
        known = self.reference.held_out if self.reference else None
        return evaluate(Evaluation(self.model, self.config, self.plan.precision, self.world, gives_up), known)

    def weight_norm(self) -> float:
        """The norm of all weights. A collective if the model is split."""
        return self.world.norm([parameter.detach() for parameter in self.model.parameters()]).item()

    def unsplit_model(self) -> Llama | None:
        """The model; if it is split, a copy in the main process and None elsewhere. A collective."""
        return self.model if self.world.mesh is None else Staging().model(self.model, self.world)

    def progress(self, metrics_bytes: int) -> dict[str, Any]:
        """What a checkpoint stores about the run. `go_to` restores the run from it."""
        return {
            "step": self.step,
            "tokens": self.tokens,
            "samples": self.curriculum.samples(self.step),
            "corpus_tokens": self.corpus_tokens(),
            "loss": self.loss,
            "loss_scale": asdict(self.context.loss_scale),
            "evaluation": self.evaluation,
            "spike_history": self.context.spikes.history,
            "metrics_bytes": metrics_bytes,
            "changes": self.changes,
            "machine": self.machine,
            # Nobody but this run reaches a state after settings that changed on the way.
            "state": None if self.changes else self.chain.at(self.step),
            "rounding": None if self.mixed else self.rounding,
            "held_out": held_out(self.plan),
            "trunks": self.trunks,
        }

    def go_to(self, saved: Mapping[str, Any], changed: list[str]) -> None:
        """Restores the run from the `progress` that was saved. The settings in `changed` are other ones from
        there on.
        """
        context = self.context
        context.step, self.loss, self.evaluation = saved["step"], saved["loss"], saved["evaluation"]
        context.loss_scale = LossScale.of(self.plan.precision).resumed_from(LossScale(**saved["loss_scale"]))
        context.spikes = SpikeDetector(map(tuple, saved["spike_history"]))
        self.metrics_bytes, self.changes = saved["metrics_bytes"], saved["changes"]
        self.trunks, self.mixed = saved["trunks"], saved["rounding"] != self.rounding
        if changed:
            at = {name: saved[name] for name in ("step", "tokens", "corpus_tokens")}
            self.changes = [*self.changes, {**at, "changed": changed}]

    def snapshot(self, staging: Staging, metrics_bytes: int) -> state.Snapshot:
        """The contents of a checkpoint of the current step, copied into `staging`, with averaged weights if
        there are any. Valid until `staging` is used again. A collective if the model is split.
        """
        facts = state.Facts(self.config, self.plan.identity, self.progress(metrics_bytes))
        with weight_averaging.use_averaged_weights(self.optimizers):
            optimizer = None
            if not self.is_complete or self.training.checkpoint.optimizer != "none":
                optimizer = state.OptimizerFile.of(self.model, self.optimizers, staging, self.world)
            adapter = staging.copy(adapters(self.model).items())
            return state.Snapshot(staging.model(self.model, self.world), adapter, optimizer, facts)


def build_session(plan: Plan, world: World) -> Session:
    """The run at step 0. Raises TrainerError for weights that no training can start from."""
    model = _model(plan, world)
    if plan.training.document_masking and plan.attention == "flash":
        model.model.most_documents = plan.data.most_documents()
    optimizers = build(model, plan.training.optimizer, model.shapes, world.group)
    if plan.training.objective == "dpo" and any(isinstance(one, SecondPass) for one in optimizers):
        with in_every_process():
            raise TrainerError(
                "training.objective dpo: its loss is per pair, and the optimizer reads a second pass over "
                "targets: choose another training.optimizer"
            )
    if plan.compiled:
        compile_blocks(model, plan.training, world.device)
    context = StepContext(
        step=0,
        training=plan.training,
        bot_id=plan.config.data.bot_id if plan.training.document_masking else None,
        world=world,
        loss_scale=LossScale.of(plan.precision),
        spikes=SpikeDetector(),
        answers=Answers.of(plan.config.data, plan.training),
    )
    if plan.training.objective == "dpo":  # zeros until `set_reference`, for trials of memory
        context.reference = partial(Reference([], []).of_batch, plan.data, world)
    return Session(plan, world, model, optimizers, context)


def _model(plan: Plan, world: World) -> Llama:
    """The model with its first weights, split over the processes of the `world`."""
    training, pretrained = plan.training, plan.pretrained
    make: Callable[..., Llama] = Llama
    if world.pipeline is not None:
        make = partial(PipelineModel, world.pipeline, training.parallel)
    with torch.device("meta"):
        model = make(
            config=training.model,
            vocab_size=plan.config.data.vocab_size,
            max_length=training.seq_len,
            backend=plan.attention,
            activation_checkpointing=training.activation_checkpointing,
            dropout=training.dropout,
            precision=plan.precision,
        )
    model.materialize(world.device)
    if pretrained:
        with world.together():
            load_weights(model, pretrained.directory, grows=True)
            _check_finite(model, pretrained.directory)
        model.context = max(training.seq_len, pretrained.context)
    else:
        model.initialize(training.init, training.seed)
    if training.lora:
        adapt(model, training.lora, training.seed, plan.config.adapted_tokens)
    if plan.precision == "fp8":
        precision.convert_to_fp8(model.model.layers)
    if world.mesh and training.parallel.splits_model:
        from trainer.parallel.parallelize import split

        split(model, world.mesh, training.parallel, plan.precision)
    return model


def _check_finite(model: Llama, directory: Path) -> None:
    """Raises TrainerError when a loaded tensor of this process holds NaN or an infinite number."""
    if bad := next((name for name, one in model.named_parameters() if not one.isfinite().all()), None):
        raise TrainerError(
            f"{directory}: {bad} holds numbers that are NaN or infinite, so no training can start from it: "
            "get these weights again, or take others"
        )
