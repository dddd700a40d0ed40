"""A run in memory: the model, its optimizers, its data, and how many steps are done."""

import logging
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from trainer.checkpoint import state, store
from trainer.checkpoint.staging import Staging
from trainer.config import RunConfig, TrainingConfig, run_identity
from trainer.data.loader import TrainingData
from trainer.hf import Pretrained, load_weights
from trainer.model import fp8
from trainer.model.attention import Backend, choose, masks_documents
from trainer.model.llama import Llama
from trainer.model.precision import AUTOCAST, LossScale, Precision, resolve
from trainer.optim import weight_averaging
from trainer.optim.build import build
from trainer.parallel.parallelize import split
from trainer.parallel.pipeline_parallel import PipelineModel
from trainer.parallel.world import World
from trainer.run import preflight
from trainer.run.spikes import SpikeDetector
from trainer.run.step import StepContext, StepResult, add_gradients, train_step
from trainer.system.errors import TrainerError

# What a run cannot change on the way, whatever is allowed: its state would not fit.
FIXED = (
    "training.model",
    "training.seq_len",
    "training.global_batch_tokens",
    "training.optimizer.kind",
    "data.tokenizer_sha256",
    "data.vocab_size",
)

log = logging.getLogger("trainer")


@dataclass
class Session:
    """`step` steps are done; `loss` is the last one's, `evaluation` that of the current step if there was
    one.

    `metrics_bytes`: how long metrics.jsonl was when this state was saved. `changes`: what of the settings
    changed since step 0, and when.
    """

    config: RunConfig
    meaning: dict[str, Any]
    world: World
    precision: Precision
    attention: Backend
    data: TrainingData
    model: Llama
    optimizers: list[Optimizer]
    loss_scale: LossScale
    step: int = 0
    loss: float = float("nan")
    evaluation: dict[str, Any] | None = None
    spikes: SpikeDetector = field(default_factory=SpikeDetector)
    metrics_bytes: int = 0
    changes: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.curriculum = self.training.curriculum

    @classmethod
    def prepare(cls, config: RunConfig, world: World) -> "Session":
        """Checks everything that can be checked before the first step (TrainerError) and builds the run
        at step 0.
        """
        training, shape = config.training, config.training.model
        # What `auto` means here is part of the run's meaning, so that it is not another one on another
        # machine.
        training = training.model_copy(
            update={"document_masking": masks_documents(training.document_masking, world.device)}
        )
        config = config.model_copy(update={"training": training})
        contents: Any = world.from_main(preflight.check(config, world) if world.is_main else None)
        data = TrainingData(config.data, training, config.run_dir / "packing")
        if world.device.type == "cpu" and training.threads:
            torch.set_num_threads(training.threads)
        if world.is_main and shape.not_stock:
            log.warning(
                "no architecture of transformers has %s: the model cannot be exported, only this trainer "
                "reads it",
                " and ".join(shape.not_stock),
            )
        precision = resolve(training.precision, world.device)
        dtype = AUTOCAST.get(precision, torch.float32)
        attention = choose(
            training.attention,
            world.device,
            dtype,
            training.seq_len,
            bool(training.document_masking),
            shape.attention_sinks,
        )
        pretrained = Pretrained.find(training.pretrained, shape, config.data) if training.pretrained else None
        wanted = (
            shape,
            config.data.vocab_size,
            training.seq_len,
            attention,
            training.activation_checkpointing,
            training.dropout,
        )
        with torch.device("meta"):
            model = (
                Llama(*wanted)
                if world.pipeline is None
                else PipelineModel(world.pipeline, training.parallel, precision, *wanted)
            )
        model.materialise(world.device)
        if pretrained:
            load_weights(model, pretrained.directory)
        else:
            model.initialise(training.init, training.seed)
        if precision == "fp8":
            fp8.convert(model.model.layers)
        split(model, world, training.parallel, precision)
        meant = run_identity(config, precision, contents, pretrained.sha256 if pretrained else None)
        optimizers, loss_scale = build(model, training.optimizer, model.shapes), LossScale.of(precision)
        return cls(config, meant, world, precision, attention, data, model, optimizers, loss_scale)

    @property
    def training(self) -> TrainingConfig:
        return self.config.training

    @property
    def tokens(self) -> int:
        return self.curriculum.tokens(self.step)

    @property
    def is_complete(self) -> bool:
        return self.step == self.curriculum.steps

    @property
    def bot_id(self) -> int | None:
        """What separates documents for attention; None when they may see each other."""
        return self.config.data.bot_id if self.training.document_masking else None

    @property
    def context(self) -> StepContext:
        """What the next step needs besides the model, its optimizers and the windows."""
        return StepContext(
            self.step, self.training, self.precision, self.bot_id, self.world, self.loss_scale, self.spikes
        )

    def passes(self, every_tokens: int) -> bool:
        """Whether the step just done reached a multiple of `every_tokens`."""
        return self._passes(self.step, every_tokens)

    def logs(self, step: int) -> bool:
        """Whether a step is written down even if nothing is special about it."""
        return step % self.training.log_every_steps == 0 or step == self.curriculum.steps

    def stays(self, step: int) -> bool:
        """Whether the checkpoint of a step is one of those kept for good."""
        every_tokens = self.training.checkpoint.keep_every_tokens
        return every_tokens is not None and self._passes(step, every_tokens)

    def _passes(self, step: int, every_tokens: int) -> bool:
        return self.curriculum.tokens(step) // every_tokens > self.curriculum.tokens(step - 1) // every_tokens

    def corpus_tokens(self) -> dict[str, int]:
        """Tokens taken from each corpus so far; those of a mixture that was changed on the way included."""
        since: dict[str, Any] = self.changes[-1] if self.changes else {"step": 0, "corpus_tokens": {}}
        taken = dict(since["corpus_tokens"])
        first, last = (self._consumed(step) for step in (since["step"], self.step))
        return {name: taken.get(name, 0) + last.get(name, 0) - first.get(name, 0) for name in taken | last}

    def _consumed(self, step: int) -> dict[str, int]:
        tokens = self.data.order.tokens(self.curriculum.samples(step))
        return dict(zip(self.data.order.names, tokens.tolist(), strict=True))

    def epochs(self) -> dict[str, float]:
        """How often each corpus will have been read at the end of the run."""
        tokens, length = self._consumed(self.curriculum.steps), self.training.seq_len
        return {
            name: round(tokens[name] / (size * length), 3)
            for name, size in zip(self.data.order.names, self.data.order.sizes, strict=True)
        }

    def compile_blocks(self) -> None:
        """Compiles each block where that is wanted and possible; parameter names stay as they are."""
        wanted = self.training.compile
        if wanted == "auto":
            wanted = self.world.device.type == "cuda" or any(map(shutil.which, ("c++", "g++", "clang++")))
        if wanted:
            # Each length of windows is compiled for; at its limit torch would end the run in mid-course.
            torch._dynamo.config.recompile_limit += len({stage.seq_len for stage in self.curriculum.stages})
            for block in self.model.model.layers:
                block.compile(fullgraph=True, dynamic=False)

    def dry_run(self) -> None:
        """Compiles, and makes the gradients of one micro-batch, which are thrown away: TrainerError when that
        cannot be done.

        A pipeline has as many micro-batches in it as processes.
        """
        self.compile_blocks()
        rows = self.data.batch(self.step, self.world.data_rank, self.world.data_size)
        micro_batch_size = self.training.micro_batch_tokens // (rows.shape[1] - 1)
        context = self.context
        windows = torch.from_numpy(rows[: micro_batch_size * self.training.parallel.pp]).to(self.world.device)
        with preflight.explained(self.training):
            add_gradients(self.model, context.batch(windows), context)
        self.model.zero_grad(set_to_none=True)

    def whole_model(self) -> Llama | None:
        """The model itself; where it is split, a copy in the main process's memory, which is a collective."""
        return self.model if self.world.mesh is None else Staging().model(self.model, self.world)

    def take_step(self, windows: torch.Tensor) -> StepResult:
        """The next step, on this process's windows [rows, seq_len + 1]. NotFiniteError as train_step."""
        before, averaging = self.tokens, self.training.averaging
        if self.step == self.curriculum.stage(self.step).first_step:
            self.spikes = SpikeDetector()  # other data or windows have another loss
        result = train_step(self.model, self.optimizers, windows, self.context)
        self.step, self.loss, self.evaluation = self.step + 1, result.loss, None
        if averaging is not None and not result.skipped:
            weight_averaging.update(averaging, self.optimizers, before, self.tokens)
        return result

    def snapshot(self, staging: Staging, metrics_bytes: int, model_only: bool) -> state.Snapshot:
        """What a checkpoint of the current step is written from, copied into `staging`: the average weights,
        if there are any, beside the others.
        """
        progress = state.Progress(
            step=self.step,
            tokens=self.tokens,
            samples=self.curriculum.samples(self.step),
            corpus_tokens=self.corpus_tokens(),
            loss=self.loss,
            loss_scale=replace(self.loss_scale),
            evaluation=self.evaluation,
            spike_history=self.spikes.history,
            metrics_bytes=metrics_bytes,
            changes=self.changes,
        )
        with weight_averaging.use_averaged_weights(self.optimizers):
            return state.Snapshot.take(
                self.model,
                None if model_only else self.optimizers,
                progress,
                self.config,
                self.meaning,
                staging,
                self.world,
            )

    def resume(self, checkpoints: Path, allow_changes: bool = False) -> Path | None:
        """Goes to the newest checkpoint that verifies, if any. TrainerError when it is of another run."""
        found = self.world.from_main(self._newest(checkpoints, allow_changes) if self.world.is_main else None)
        if not isinstance(found, Path):
            return None
        self._go_to(found)
        return found

    def _go_to(self, checkpoint: Path) -> None:
        """Takes over everything from a checkpoint, which may be of settings that are changed from there
        on.
        """
        saved = state.read_state(checkpoint)
        for optimizer in self.optimizers:
            optimizer.state.clear()
        state.restore(checkpoint, self.model, self.optimizers)
        weight_averaging.put_back(self.optimizers)
        weight_averaging.drop_others(self.training.averaging, self.optimizers)
        self.step, self.loss, self.evaluation = saved["step"], saved["loss"], saved["evaluation"]
        self.loss_scale = LossScale.of(self.precision).resumed_from(LossScale(**saved["loss_scale"]))
        self.spikes, self.metrics_bytes, self.changes = (
            SpikeDetector(map(tuple, saved["spike_history"])),
            saved["metrics_bytes"],
            saved["changes"],
        )
        changed = state.differences(saved["meaning"], self.meaning)
        if changed:
            log.warning("the settings changed after step %d: %s", self.step, "; ".join(changed))
            at = {"step": self.step, "tokens": saved["tokens"], "corpus_tokens": saved["corpus_tokens"]}
            self.changes = [*self.changes, {**at, "changed": changed}]

    def _newest(self, checkpoints: Path, allow_changes: bool) -> Path | None:
        found, skipped = store.newest_valid(
            checkpoints, lambda checkpoint: state.verify(checkpoint, self.curriculum.steps)
        )
        if skipped and found is None:
            raise TrainerError(
                f"no checkpoint of {checkpoints} can be gone on from: {'; '.join(skipped)}. "
                "Remove that directory to begin anew, or choose another run_dir"
            )
        for reason in skipped:
            log.warning("skipped a checkpoint: %s", reason)
        if found is not None:
            saved = state.read_state(found)
            changed = state.differences(saved["meaning"], self.meaning)
            fixed = [line for line in changed if line.startswith(FIXED)]
            if not fixed and (saved["tokens"], saved["samples"]) != (
                self.curriculum.tokens(saved["step"]),
                self.curriculum.samples(saved["step"]),
            ):
                fixed = [f"course of stages up to step {saved['step']}"]
            if fixed and allow_changes:
                raise TrainerError(
                    f"{found}: cannot be gone on from with another {'; '.join(fixed)}: choose another run_dir"
                )
            if changed and not allow_changes:
                raise TrainerError(
                    f"{found.parent.parent} holds a run with other settings ({'; '.join(changed)}): restore "
                    "them, choose another run_dir, "
                    "or go on all the same with --allow-changes"
                )
            if saved["step"] > self.curriculum.steps:
                raise TrainerError(
                    f"{found}: is past training.max_tokens {self.training.max_tokens}; choose another run_dir"
                )
        return found
