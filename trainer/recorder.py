"""Everything a run tells: metrics, curve, progress, messages to Dagster. Only the main process has one to tell it to."""

import logging
import resource
import time
from pathlib import Path
from typing import Any

import torch

from trainer import plot
from trainer.checkpoint import state, store
from trainer.generate import complete, load_tokenizer
from trainer.metrics import MetricsLog
from trainer.progress import Progress
from trainer.report import Reporter
from trainer.rundir import RunDirectory
from trainer.session import Session
from trainer.step import StepResult

log = logging.getLogger("trainer")


class Recorder:
    """Follows a session that starts or goes on at its current step."""

    def __init__(self, session: Session, directory: RunDirectory, reporter: Reporter) -> None:
        self._session, self._directory, self._reporter = session, directory, reporter
        self.metrics = MetricsLog(directory.metrics, directory.tensorboard, session.step)
        self._progress = Progress(session.tokens, session.training.max_tokens)
        self._started, self._started_tokens = time.monotonic(), session.tokens

    def close(self) -> None:
        self.metrics.close()
        self._progress.close()

    def step(self, result: StepResult, step_seconds: float, wait_seconds: float) -> None:
        session = self._session
        elapsed = time.monotonic() - self._started
        eta = elapsed * (session.training.max_tokens - session.tokens) / (session.tokens - self._started_tokens)
        speed = session.training.global_batch_tokens / step_seconds
        if result.skipped:
            log.warning("step %d skipped: gradients overflowed in fp16; the loss scale is now %g", session.step, session.loss_scale.value)
        if session.step % session.training.log_every_steps == 0 or session.is_complete:
            record = {
                "kind": "train",
                "step": session.step,
                "tokens": session.tokens,
                "loss": result.loss,
                "lr": session.optimizers[0].param_groups[0]["base_lr"] * result.lr_factor,
                "grad_norm": result.grad_norm,
                "param_norm": torch.nn.utils.get_total_norm(list(session.model.parameters())).item(),
                "tokens_per_second": round(speed, 1),
                "step_ms": round(1000 * step_seconds, 3),
                "data_wait_ms": round(1000 * wait_seconds, 3),
                "memory_mb": round(peak_memory_mb(session.world.device), 1),
            }
            self.metrics.write(record)
            message = {name: record[name] for name in ("step", "tokens", "loss", "lr", "grad_norm", "tokens_per_second")}
            self._reporter.send("metrics", **message, eta_seconds=round(eta, 1))
        self._progress.update(session.tokens, result.loss, speed, eta)

    def evaluation(self, evaluation: dict[str, Any]) -> None:
        session = self._session
        self.metrics.write({"kind": "evaluation", "step": session.step, "tokens": session.tokens, **evaluation})
        plot.loss_curve(self.metrics.records, self._directory.loss_curve)
        self._reporter.send("evaluation", step=session.step, tokens=session.tokens, **evaluation)
        log.info("step %d: validation loss %.4f, %.4f bits per byte", session.step, evaluation["loss"], evaluation["bits_per_byte"])

    def samples(self) -> None:
        """What the model writes now; the same at the same step of the same run."""
        session, samples, data = self._session, self._session.training.samples, self._session.config.data
        if not samples.prompts:
            return
        tokenizer = load_tokenizer(data.tokenizer)
        for prompt in samples.prompts:
            text = complete(session.model, tokenizer, prompt, data.bot_id, data.eot_id, samples, session.training.seed)
            self.metrics.write_text("sample", text, session.step)
            self._reporter.send("sample", step=session.step, prompt=prompt, text=text)
            log.info("step %d: %s", session.step, text.replace("\n", " / "))

    def checkpoint(self, checkpoint: Path) -> None:
        plot.loss_curve(self.metrics.records, self._directory.loss_curve)
        send_checkpoint(self._reporter, checkpoint, self._session)
        log.info("saved %s", checkpoint)


def send_start(reporter: Reporter, session: Session, resumed: Path | None) -> None:
    model, vocab_size = session.training.model, session.config.data.vocab_size
    facts = {
        "parameters": model.parameters(vocab_size),
        "flops_per_token": model.flops_per_token(vocab_size, session.training.seq_len),
        "device": str(session.world.device),
        "processes": session.world.size,
        "precision": session.precision,
        "attention": session.attention,
        "tokens_total": session.training.max_tokens,
        "epochs": session.epochs(),
        "padding": session.data.padding,
        "resumed_from": str(resumed) if resumed else None,
    }
    reporter.send("start", **facts)
    log.info(", ".join(f"{name} {value}" for name, value in facts.items()))


def send_checkpoint(reporter: Reporter, checkpoint: Path, session: Session) -> None:
    """`data_version` is that of the weights, so that a checkpoint announced twice is recognised."""
    saved = state.read_state(checkpoint)
    evaluation = saved["evaluation"] or {}
    reporter.send(
        "checkpoint",
        step=saved["step"],
        tokens=saved["tokens"],
        path=str(checkpoint),
        data_version=store.data_version(checkpoint),
        loss=saved["loss"],
        validation_loss=evaluation.get("loss"),
        bits_per_byte=evaluation.get("bits_per_byte"),
        parameters=session.training.model.parameters(session.config.data.vocab_size),
    )


def peak_memory_mb(device: torch.device) -> float:
    """The most that this process has held: of the GPU where there is one, else resident memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
