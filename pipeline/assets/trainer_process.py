"""Starts the trainer, follows its messages, and records its checkpoints as they are saved."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import dagster as dg

from pipeline.assets import checkpoints
from pipeline.assets.asset import StoppedError
from pipeline.assets.operations import alerts
from pipeline.assets.pipes_reader import TrainerMessages
from pipeline.assets.progress import SHOWN_BY_THE_BAR, Bar, Progress, rows_command
from pipeline.assets.used_recipe import UsedRecipe
from pipeline.steps.training import plan
from pipeline.steps.training.effort import Stopwatch
from pipeline.steps.training.launcher import Launcher
from pipeline.steps.training.process_group import ErrorOutput, RetriableError, TrainerKilledError
from pipeline.store.errors import PipelineError
from trainer.system import launch, terminal
from trainer.system.errors import USER_ERROR
from trainer.system.run_history import bits_shown
from trainer.system.wording import begins

# Each resumes from the newest checkpoint. Dagster's retry policy would restart runs that a person stopped.
ATTEMPTS = 3
ASK_SECONDS = 5.0  # between queries to Dagster's database, and before a failed one is repeated
PATIENCE_SECONDS = 600.0  # how long the trainer's last messages wait for a database that does not respond
SHOWN_LINES = 20
SPIKE_ALERT_SECONDS = 3600.0  # a run that becomes unstable has many spikes


class TrainerProcess:
    """Runs the trainer through Dagster Pipes, and turns its messages into log lines and checkpoint entries as
    they arrive. Training continues while the database is unavailable, and messages wait for it.
    """

    def __init__(
        self, context: dg.AssetExecutionContext, run: plan.PlannedRun, launcher: Launcher, used: UsedRecipe
    ):
        self.context = context
        self.run = run
        self.launcher = launcher
        self.used = used
        self.last_checkpoint: Mapping[str, Any] = {}
        self._samples: list[Mapping[str, Any]] = []  # written since the last checkpoint
        self._reasons: list[str] = []  # errors that the trainer reported in this attempt
        self._handled = 0  # how many messages of this attempt
        self._messages: Callable[[], Sequence[Mapping[str, Any]]] = tuple  # all of this attempt
        self._stopwatch = Stopwatch(run.config.run_dir)
        self._progress = Progress(context, run, used)
        self._bar = Bar(run.config.training)
        self._spike_alert_at = 0.0
        self._wanted = True
        self._ask_at = self._catch_up_at = 0.0

    def train(self, check_claim: Callable[[], None]) -> float:
        """Trains to the last step, in up to ATTEMPTS attempts. Returns the seconds that training has taken,
        earlier runs of the job included. Stops when `check_claim` raises.

        Raises PipelineError or RetriableError with the reason when training does not get there, and
        StoppedError with the step that was saved when somebody stops it.
        """
        self._check_claim = check_claim
        try:
            with self._bar:
                self._try()
        except (PipelineError, StoppedError) as error:
            self._progress.end(str(error).splitlines()[0])
            raise
        self._progress.end()
        return self._stopwatch.seconds

    def _try(self) -> None:
        for left in reversed(range(ATTEMPTS)):
            try:
                self._attempt()
                break
            except RetriableError as error:
                if not left or not self._is_wanted():
                    raise
                self.context.log.warning(f"restarting the trainer: {error}")
            except dg.DagsterExecutionInterruptedError:
                self._follow(self._messages())  # the last checkpoint was reported while the session closed
                raise StoppedError(self._stopped()) from None
            finally:
                self._stopwatch.save()

    def _attempt(self) -> None:
        config = self.run.write_config()
        self._bar.is_now("starting the trainer")
        self._reasons, self._handled = [], 0
        # In the run directory, where a trainer on another machine can write too.
        reader = TrainerMessages(config.with_name("messages.jsonl"))
        with closing(ErrorOutput()) as output:
            with dg.open_pipes_session(self.context, dg.PipesEnvContextInjector(), reader) as session:
                self._messages = session.get_custom_messages

                def poll() -> bool:
                    output.show()
                    self._check_claim()
                    return self._follow(session.get_custom_messages())

                try:
                    status = self.launcher.run(config, session.get_bootstrap_env_vars(), poll, output.file)
                except TrainerKilledError as error:
                    raise TrainerKilledError(f"{error}{self._reason(output.ended(0)[1])}") from None
            self._finish(session.get_custom_messages())
            if status != 0:
                status, lines = output.ended(status)
                failure = PipelineError if status == USER_ERROR else RetriableError
                raise failure(f"the trainer {launch.ended(status)}{self._reason(lines)}")
        if self.last_checkpoint.get("tokens") != self.run.config.training.max_tokens:
            raise PipelineError(
                "the trainer ended before the last step: run the job again to resume from the newest "
                "checkpoint"
            )

    def _stopped(self) -> str:
        """The sentence for a person who stopped the run: the step that is saved, and how to resume."""
        saved = self.last_checkpoint
        if not saved:
            return "stopped before a step was saved: run the job again to start from the beginning"
        tokens = f"{saved['tokens']:,} of {self.run.config.training.max_tokens:,} tokens"
        return f"saved at step {saved['step']} ({tokens}): run the job again to resume"

    def _reason(self, lines: Sequence[str]) -> str:
        """The errors that the trainer reported or, if it reported none, its last lines."""
        if self._reasons:
            return f". {' '.join(self._reasons)}"
        return "\n".join([". Its last lines:", *lines[-SHOWN_LINES:]]) if lines else ""

    def _follow(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Handles new messages. Returns False once the run was terminated."""
        now = time.monotonic()
        if now >= self._catch_up_at:
            try:
                self._catch_up(messages)
            except Exception as error:  # each kind of database raises its own
                _report("the trainer's messages cannot be recorded now, they will be later", error)
                self._catch_up_at = now + ASK_SECONDS
        if now >= self._ask_at:
            self._wanted, self._ask_at = self._is_wanted(), now + ASK_SECONDS
            self._stopwatch.save()
        return self._wanted

    def _finish(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Handles the last messages, and waits for the database if necessary."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._catch_up(messages)
            except Exception as error:
                if time.monotonic() > deadline:
                    raise
                _report("the trainer's last messages cannot be recorded, trying again", error)
                time.sleep(ASK_SECONDS)

    def _catch_up(self, messages: Sequence[Mapping[str, Any]]) -> None:
        for message in messages[self._handled :]:
            self._handle(message)
            # before the log line, so that a failure to log does not record the checkpoint again
            self._handled += 1
            extra = terminal.IN_LINE if message["kind"] in SHOWN_BY_THE_BAR else None
            self.context.log.info(_line(message, self.run.config.training.max_tokens), extra=extra)

    def _is_wanted(self) -> bool:
        """False once the run was force-terminated in the UI. True while the database does not respond."""
        try:
            state = self.context.instance.get_run_by_id(self.context.run.run_id)
        except Exception as error:
            _report("cannot look up whether this run was terminated, so training continues", error)
            return True
        return state is not None and not state.is_finished

    def _handle(self, message: Mapping[str, Any]) -> None:
        kind, step = message["kind"], message.get("step")
        if kind == "start" and message.get("trunks"):
            checkpoints.note_branch(self.context, self.run, message, self.used)
        elif kind == "checkpoint":
            samples = [sample for sample in self._samples if sample["step"] == step]
            checkpoints.record(self.context, self.run, message, samples, self.used)
            self.last_checkpoint = message
            # Samples of later steps can arrive first: a checkpoint is written while training continues.
            self._samples = [sample for sample in self._samples if sample["step"] > message["step"]]
        elif kind == "sample":
            self._samples.append(message)
        elif kind == "metrics" and message["spike"]:
            self._alert_of_spike(message)
        # Each error once, however often torchrun restarts.
        elif kind == "error" and message["message"] not in self._reasons:
            self._reasons.append(message["message"])
        self._progress.take(message)
        self._bar.show(message)

    def _alert_of_spike(self, message: Mapping[str, Any]) -> None:
        """Logs each spike, and sends one alert in SPIKE_ALERT_SECONDS."""
        facts = f"loss {message['loss']:.3f}, gradient norm {message['grad_norm']:.3f}"
        step, name = message["step"], self.run.config.name
        rows = rows_command(self.run, step, self.used)
        text = f"training {name}: loss spike at step {step}: {facts}; {rows} lists its rows"
        self.context.log.warning(text)
        now = time.monotonic()
        if now >= self._spike_alert_at:
            self._spike_alert_at = now + SPIKE_ALERT_SECONDS
            alerts.send(text, self.context.log, self.context.instance)


def _report(problem: str, error: Exception) -> None:
    """Prints to standard error, because Dagster's log is in the same database."""
    print(f"{problem}: {type(error).__name__}: {error}", file=sys.stderr)


def _line(message: Mapping[str, Any], max_tokens: int) -> str:
    """A message of the trainer as a line of the log."""
    tokens = f"{message['tokens']:,} of {max_tokens:,} tokens" if "tokens" in message else ""
    match message["kind"]:
        case "start":
            return begins(message)
        case "metrics":
            speed = f"{message['tokens_per_second']:,.0f} tokens/s"
            left = f"{message['eta_seconds'] / 60:.1f} min left"
            return f"{tokens}: loss {message['loss']:.3f}, {speed}, {left}"
        case "evaluation":
            scores = f"perplexity {message['perplexity']:,.1f}, {bits_shown(message['bits_per_byte'])}"
            return f"{tokens}: validation loss {message['loss']:.4f}, {scores}"
        case "checkpoint":
            return f"{tokens}: checkpoint {message['path']}"
        case "sample":
            return f"sample: {message['text']!r}"
        case "doing":
            return str(message["what"])
    facts = [
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in message.items()
        if name != "kind" and not isinstance(value, dict | list)
    ]
    return f"{message['kind']}: {', '.join(facts)}"
