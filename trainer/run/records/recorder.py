"""Records a run's metrics, loss curve and progress, and reports them to Dagster. In the main process only."""

import logging
import re
import time
from collections.abc import Mapping
from typing import Any

from trainer.hf.tokenizer import load_tokenizer
from trainer.model.llama import Llama
from trainer.run.evaluation.generate import complete
from trainer.run.fit.hardware import peak_flops, peak_memory
from trainer.run.records.dagster_pipes import Reporter
from trainer.run.records.loss_curve import draw_losses
from trainer.run.records.metrics import MetricsLog
from trainer.run.records.profiling import profiler
from trainer.run.records.trackers import Trackers
from trainer.run.session import Session
from trainer.run.step import StepResult
from trainer.system import terminal
from trainer.system.durable import write_atomically
from trainer.system.run_directory import RunDirectory
from trainer.system.run_history import RunHistory, bits_shown

LOG_INTERVAL_SECONDS = 10.0
PICTURE_INTERVAL_SECONDS = 20.0
LONGEST_FOLDER = 100  # characters
LOSS = {"pretrain": "loss", "sft": "answer loss", "dpo": "preference loss"}
# The keys of a record that Dagster is sent, beside the metrics of preferences.
SENT = ("step", "tokens", "loss", "lr", "grad_norm", "spike", "tokens_per_second", "mfu")

log = logging.getLogger("trainer")


class NullRecorder:
    """Records nothing, in the processes other than the main one."""

    def before_step(self) -> None: ...

    def step(
        self, result: StepResult, weight_norm: float | None, *, step_seconds: float, wait_seconds: float
    ) -> None: ...

    def after_step(self) -> None: ...

    def evaluation(self, evaluation: dict[str, Any] | None) -> None: ...

    def samples(self, model: Llama) -> None: ...

    def sync(self) -> int:
        """Makes the metrics durable and returns their length in bytes for the checkpoint."""
        return 0


class Recorder(NullRecorder):
    """Records a session from its current step on."""

    def __init__(
        self, session: Session, directory: RunDirectory, reporter: Reporter, traces: bool = False
    ) -> None:
        """With `traces`, a few of the next steps are traced."""
        self._session, self._directory, self._reporter = session, directory, reporter
        self._trackers = Trackers(session.config, session.plan.identity, directory.sinks, session.step > 0)
        self.metrics = MetricsLog(
            directory.metrics,
            directory.tensorboard / _as_folder(session.config.name),
            resumed_step=session.step,
            resumed_bytes=session.metrics_bytes,
            trackers=self._trackers,
            redraws=bool(session.trunks) and session.trunks[-1]["step"] == session.step,
        )
        write_atomically(directory.config, session.config.as_yaml)
        self._started, self._started_tokens = time.monotonic(), session.tokens
        self._last_line = self._last_picture = self._started
        self._bar = terminal.doing("training").__enter__()
        self._validation: list[str] = []
        self._peak_flops = peak_flops(session.world.device, session.plan.precision) * session.world.size
        self._tracing = profiler(directory.profile, session.step) if traces else None
        if self._tracing is not None:
            self._tracing.start()

    def close(self) -> None:
        if self._tracing is not None:
            self._tracing.stop()
        self._bar.__exit__()
        self.metrics.close()
        self._trackers.close(complete=self._session.is_complete)

    def before_step(self) -> None:
        stage = self._session.curriculum.stage(self._session.step)
        if stage.name and stage.first_step == self._session.step:
            size = f"{stage.global_batch_tokens:,} tokens, windows of {stage.seq_len}"
            log.info(f"stage {stage.name}: {stage.steps} steps of {size}")

    def step(
        self, result: StepResult, weight_norm: float | None, *, step_seconds: float, wait_seconds: float
    ) -> None:
        """Records the step if there is a `weight_norm`; warns of a skipped step or a spike in any case."""
        session, stage = self._session, self._session.curriculum.stage(self._session.step - 1)
        elapsed = time.monotonic() - self._started
        eta = (
            elapsed * (session.training.max_tokens - session.tokens) / (session.tokens - self._started_tokens)
        )
        speed = stage.global_batch_tokens / step_seconds
        self._warn(result)
        if weight_norm is not None:
            record = self._record(result, weight_norm, step_seconds=step_seconds, wait_seconds=wait_seconds)
            self.metrics.write(record)
            message = {name: record[name] for name in SENT} | result.preferences
            self._reporter.send("metrics", **message, eta_seconds=round(eta, 1))
        share = session.tokens / session.training.max_tokens
        facts = [f"loss {result.loss:.3f}", f"step {session.step:,} of {session.training.steps:,}"]
        self._bar.update(share, [*facts, f"{speed:,.0f} tokens/s", *self._validation], eta)
        if time.monotonic() - self._last_line >= LOG_INTERVAL_SECONDS:
            self._last_line = time.monotonic()
            loss = f"{LOSS[session.training.objective]} {result.loss:.3f}{_metrics_text(result.preferences)}"
            line = f"{share:6.1%}  {session.tokens:,} tokens  {loss}  {speed:.0f} tokens/s  {eta:.0f} s left"
            log.info(line, extra=terminal.IN_LINE)

    def _warn(self, result: StepResult) -> None:
        session = self._session
        if result.skipped and not result.spike:
            scale = f"the loss scale is now {session.context.loss_scale.value:g}"
            log.warning(f"step {session.step} skipped: gradients overflowed in fp16; {scale}")
        if result.spike:
            consequence = "update skipped" if result.skipped else "logged only"
            seen = f"loss {result.loss:.3f}, gradient norm {result.grad_norm:.3f}"
            log.warning(f"step {session.step}: spike: {seen}; {consequence}")

    def _record(
        self, result: StepResult, weight_norm: float, *, step_seconds: float, wait_seconds: float
    ) -> dict[str, Any]:
        """The record of the last step in metrics.jsonl."""
        session, stage = self._session, self._session.curriculum.stage(self._session.step - 1)
        optimizer = session.training.optimizer
        speed = stage.global_batch_tokens / step_seconds
        flops = session.training.model.flops_per_token(session.config.data.vocab_size, stage.seq_len)
        record = {
            "kind": "train",
            "step": session.step,
            "tokens": session.tokens,
            "loss": result.loss,
            **result.preferences,
            "lr": optimizer.lr * result.lr_factor,
            **({"muon_lr": optimizer.muon_lr * result.lr_factor} if optimizer.kind == "muon" else {}),
            "grad_norm": result.grad_norm,
            "param_norm": weight_norm,
            "spike": result.spike,
            "skipped": result.skipped,
            "tokens_per_second": round(speed, 1),
            "mfu": round(speed * flops / self._peak_flops, 4),
            "step_ms": round(1000 * step_seconds, 3),
            "data_wait_ms": round(1000 * wait_seconds, 3),
            "memory_mb": round(peak_memory(session.world.device) / 1e6, 1),
        }
        return record | {"stage": stage.name} if session.training.stages else record

    def after_step(self) -> None:
        if self._tracing is not None:
            self._tracing.step()

    def evaluation(self, evaluation: dict[str, Any] | None) -> None:
        """Records an evaluation, if there is held-out text, and plots the losses so far: at the end of the
        run, and before it at most once in PICTURE_INTERVAL_SECONDS, since no step is taken meanwhile.
        """
        if evaluation is not None:
            self._write_evaluation(evaluation)
        self.metrics.flush()
        if self._session.is_complete or time.monotonic() - self._last_picture >= PICTURE_INTERVAL_SECONDS:
            # Read back from disk: a long run does not hold it in memory.
            draw_losses(RunHistory(self._directory.path))
            self._last_picture = time.monotonic()

    def _write_evaluation(self, evaluation: dict[str, Any]) -> None:
        session = self._session
        self.metrics.write(
            {"kind": "evaluation", "step": session.step, "tokens": session.tokens, **evaluation}
        )
        self._validation = [f"validation {evaluation['loss']:.3f}"]
        self._reporter.send("evaluation", step=session.step, tokens=session.tokens, **evaluation)
        loss = f"{LOSS[session.training.objective]} {evaluation['loss']:.4f}{_metrics_text(evaluation)}"
        told = f"perplexity {evaluation['perplexity']:.1f}, {bits_shown(evaluation['bits_per_byte'])}"
        log.info(f"step {session.step}: validation {loss}, {told}")

    def samples(self, model: Llama) -> None:
        """Records what the unsplit `model` writes; the text depends only on the run and its step."""
        session, data = self._session, self._session.config.data
        samples, seed = session.training.samples, session.training.seed
        with terminal.doing(f"step {session.step}: writing samples"):
            tokenizer = load_tokenizer(data.tokenizer)
            texts = complete(model, tokenizer, samples, bot_id=data.bot_id, ends={data.eot_id}, seed=seed)
        for prompt, text in zip(samples.prompts, texts, strict=True):
            self.metrics.write_text("sample", text, session.step)
            self._reporter.send("sample", step=session.step, prompt=prompt, text=text)
            log.info("step %d: %s", session.step, text.replace("\n", " / "))

    def sync(self) -> int:
        return self.metrics.sync()


def _metrics_text(preferences: Mapping[str, Any]) -> str:
    """The METRICS of preferences in words; empty without any."""
    if "margin" not in preferences:
        return ""
    told = ", accuracy {accuracy:.3f}, margin {margin:.3f}, change of log p(chosen) {chosen_change:.3f}"
    return told.format(**preferences)


def _as_folder(name: str) -> str:
    """TensorBoard shows a run by its path."""
    return re.sub(r"[^\w .-]", "_", name)[:LONGEST_FOLDER].strip(". ")
