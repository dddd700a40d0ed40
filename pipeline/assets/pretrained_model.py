"""Launches the trainer, follows it, and records its checkpoints while it works."""

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import dagster as dg

from pipeline.assets import checkpoints, checks
from pipeline.assets.outcome import explained, materialized
from pipeline.assets.resources import Workshop
from pipeline.flows import train as train_flow
from pipeline.flows.launching import Launcher
from pipeline.flows.subprocesses import TrainerKilledError
from pipeline.recipe import Recipe
from pipeline.reports import funnel, training
from pipeline.reports.images import as_text, inline, inline_png
from pipeline.store import Version

GPU_POOL = "gpu"  # one at a time: dagster.yaml
# Each goes on from the newest checkpoint. Dagster's own retry policy would also start a run again that a person stops.
ATTEMPTS = 3


def pretrained_model_asset(recipe: Recipe) -> dg.AssetsDefinition:
    """The finished run. An interrupted one goes on from its newest whole checkpoint."""

    @dg.asset(
        key=train_flow.KEY,
        deps=["tokenizer", *(dg.AssetKey(["token_shards", name]) for name in recipe.corpus_names)],
        group_name="model",
        kinds={"pytorch"},
        code_version=train_flow.VERSION,
        check_specs=checks.specs(dg.AssetKey(train_flow.KEY), checks.PRETRAINED),
        pool=GPU_POOL,
        description="A Llama-style decoder, pretrained on the token shards by `python -m trainer` in a process of its own.",
    )
    @explained
    def _asset(context: dg.AssetExecutionContext, workshop: Workshop) -> dg.MaterializeResult:
        run = train_flow.plan(workshop.store, workshop.recipe)
        version = train_flow.finished(workshop.store, run)
        if version is None:
            follower = _Follower(context, run, workshop.recipe.launch.launcher(run.config.training.threads))
            started = time.monotonic()
            follower.train()
            version = train_flow.finish(workshop.store, run, follower.last_checkpoint, time.monotonic() - started)
        result = train_flow.result(workshop.store, version)
        facts = {"step": result["step"], "tokens": result["tokens"], **checkpoints.scores(result)}
        facts["mixture"] = _mixture(workshop)
        loss_curve = inline_png(run.config.run_dir / "loss.png", "loss curve")
        facts |= {"checkpoint": dg.MetadataValue.path(result["checkpoint"]), "loss curve": loss_curve, **_pictures(run, version)}
        return materialized(version, facts, checks.results(workshop, version, checks.PRETRAINED))

    return _asset


def _pictures(run: train_flow.Run, version: Version) -> dict[str, dg.MarkdownMetadataValue]:
    def draw() -> dict[str, str]:
        curves = training.draw(training.records(run.config.run_dir / "metrics.jsonl"))
        return {"curves": as_text(curves), "from source to tokens": as_text(funnel.draw(funnel.of_lineage(run.config.lineage)))}

    return {title: inline(png, title) for title, png in version.report("training", "training-2", draw).items()}


def _mixture(workshop: Workshop) -> dg.TableMetadataValue:
    rows = train_flow.contributions(workshop.store, workshop.recipe)
    types = {"corpus": "string", "documents": "int", "tokens": "int", "share": "float", "epochs": "float"}
    schema = dg.TableSchema([dg.TableColumn(name, kind) for name, kind in types.items()])
    return dg.MetadataValue.table([dg.TableRecord(asdict(row)) for row in rows], schema)


class _Follower:
    """Runs the trainer through Dagster Pipes and turns its messages into log lines and checkpoint entries, as they come."""

    def __init__(self, context: dg.AssetExecutionContext, run: train_flow.Run, launcher: Launcher):
        self.context = context
        self.run = run
        self.launcher = launcher
        self.last_checkpoint: Mapping[str, Any] = {}
        self.samples: list[Mapping[str, Any]] = []  # written since the last checkpoint
        self.last_lines: deque[str] = deque(maxlen=5)

    def train(self) -> None:
        """Returns when training is done, started again where something killed it. Raises TrainingError with the reason when it is not."""
        for left in reversed(range(ATTEMPTS)):
            try:
                self._attempt()
                break
            except TrainerKilledError as error:
                if not left or not self._is_wanted():
                    raise
                self.context.log.warning(f"{error}: started again")

    def _attempt(self) -> None:
        config = self.run.write_config()
        # Where a trainer on another machine can write.
        reader = dg.PipesFileMessageReader(str(config.with_name("messages.jsonl")))
        with dg.open_pipes_session(self.context, dg.PipesEnvContextInjector(), reader) as session:
            handled = 0

            def poll() -> bool:
                nonlocal handled
                messages = session.get_custom_messages()
                for message in messages[handled:]:
                    self._handle(message)
                handled = len(messages)
                return self._is_wanted()

            status = self.launcher.run(config, session.get_bootstrap_env_vars(), poll)
        for message in session.get_custom_messages()[handled:]:
            self._handle(message)
        if status != 0:
            raise train_flow.TrainingError(f"the trainer ended with exit status {status}. {' '.join(self.last_lines)}")
        if self.last_checkpoint.get("tokens") != self.run.config.training.max_tokens:
            raise train_flow.TrainingError("the trainer ended before the last step: run the job again to go on from the newest checkpoint")

    def _is_wanted(self) -> bool:
        """A run that was force-terminated in the UI must not train on."""
        state = self.context.instance.get_run_by_id(self.context.run.run_id)
        return state is not None and not state.is_finished

    def _handle(self, message: Mapping[str, Any]) -> None:
        kind = message["kind"]
        if kind == "checkpoint":
            checkpoints.record(self.context, self.run, message, [sample for sample in self.samples if sample["step"] == message["step"]])
            self.last_checkpoint, self.samples = message, []
        elif kind == "sample":
            self.samples.append(message)
        elif kind == "error" and message["message"] not in self.last_lines:  # once, however often torchrun tries
            self.last_lines.append(message["message"])
        self.context.log.info(_line(message, self.run.config.training.max_tokens))


def _line(message: Mapping[str, Any], max_tokens: int) -> str:
    """A message of the trainer as one line for people."""
    tokens = f"{message['tokens']:,} of {max_tokens:,} tokens" if "tokens" in message else ""
    match message["kind"]:
        case "metrics":
            left = f"{message['eta_seconds'] / 60:.1f} min left"
            return f"{tokens}: loss {message['loss']:.3f}, {message['tokens_per_second']:,.0f} tokens/s, {left}"
        case "evaluation":
            return f"{tokens}: validation loss {message['loss']:.4f}, {message['bits_per_byte']:.4f} bits per byte"
        case "checkpoint":
            return f"{tokens}: checkpoint {message['path']}"
        case "sample":
            return f"sample: {message['text']!r}"
    shown = {name: value for name, value in message.items() if name != "kind" and not isinstance(value, dict | list)}
    return f"{message['kind']}: " + ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in shown.items()
    )
