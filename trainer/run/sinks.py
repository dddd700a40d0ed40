"""Sends a run's metrics to the trackers that training.sinks names. In the main process only.

Where they are sent is set by each tracker's own environment variables, such as WANDB_MODE, WANDB_API_KEY and
MLFLOW_TRACKING_URI. What is sent: the numbers of metrics.jsonl, and the settings that decide the weights,
without paths, lineage or anything from the environment.
"""

import io
import json
import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from contextvars import copy_context
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from trainer.config import RunConfig, TrainingConfig, config_hash
from trainer.system.durable import write_atomically
from trainer.system.errors import TrainerError, first_line

PROJECT = "groundwork"  # when neither the run nor the environment names one
CLOSING_SECONDS = 60.0  # at the end of a run, for sending what waits
MLFLOW_TAG = "groundwork.run"

log = logging.getLogger("trainer")


@dataclass(frozen=True)
class TrackedRun:
    """A run as trackers know it. `id` is drawn when the run starts and stays in its directory, so that a
    resumed run continues the same curves.
    """

    id: str
    name: str
    project: str | None
    settings: dict[str, Any]
    directory: Path


class Sink(Protocol):
    def log(self, numbers: Mapping[str, float], step: int) -> None: ...

    def close(self, complete: bool) -> None: ...


class Wandb:
    def __init__(self, run: TrackedRun) -> None:
        import wandb

        # Neither the command line, nor the host, nor the git remote, nor the console leaves the machine.
        private = wandb.Settings(
            console="off", disable_code=True, disable_git=True, silent=True, x_disable_meta=True
        )
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or run.project or PROJECT,
            id=run.id,
            name=run.name,
            config=run.settings,
            dir=run.directory,
            resume="allow",
            settings=private,
        )

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        # Steps after the checkpoint that a run resumes from are there already.
        if step >= self._run.step:
            self._run.log(dict(numbers), step=step)

    def close(self, complete: bool) -> None:
        self._run.finish(exit_code=0 if complete else 1)


class Trackio:
    def __init__(self, run: TrackedRun) -> None:
        import trackio

        with redirect_stdout(io.StringIO()):
            # In a context of its own, or trackio would finish the run a second time when Python exits.
            self._run = copy_context().run(
                trackio.init,
                project=os.environ.get("TRACKIO_PROJECT") or run.project or PROJECT,
                name=f"{run.name}-{run.id}",  # by which trackio finds it again
                config=run.settings,
                resume="allow",
                embed=False,
            )

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self, complete: bool) -> None:
        with redirect_stdout(io.StringIO()):
            self._run.finish()


class Mlflow:
    def __init__(self, run: TrackedRun) -> None:
        if not os.environ.get("MLFLOW_TRACKING_URI"):
            raise TrainerError(
                "set the environment variable MLFLOW_TRACKING_URI to the server or the database, for example "
                "http://127.0.0.1:5000 or sqlite:////data/mlflow.db"
            )
        # MLflow's own default waits four minutes for a server that does not answer.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._metric, self._client = Metric, MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or run.project or PROJECT
        found = self._client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self._client.create_experiment(name)
        known = self._client.search_runs([experiment], f"tags.`{MLFLOW_TAG}` = '{run.id}'", max_results=1)
        if known:
            self._id = known[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return
        tags = {MLFLOW_TAG: run.id}
        self._id = self._client.create_run(experiment, run_name=run.name, tags=tags).info.run_id
        params = [Param(key, str(value)) for key, value in _flat(run.settings).items()]
        for start in range(0, len(params), 100):  # as many as a request may have
            self._client.log_batch(self._id, params=params[start : start + 100])

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        now = int(1000 * time.time())
        metrics = [self._metric(name, value, now, step) for name, value in numbers.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self, complete: bool) -> None:
        self._client.set_terminated(self._id, status="FINISHED" if complete else "KILLED")


SINKS: dict[str, Callable[[TrackedRun], Sink]] = {"mlflow": Mlflow, "trackio": Trackio, "wandb": Wandb}


class Sinks:
    """Sends from a thread of its own: training waits for no tracker, and goes on without one that fails."""

    def __init__(self, opened: Mapping[str, Sink]) -> None:
        self._sinks = dict(opened)
        self._waiting: SimpleQueue[Callable[[Sink], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._send, name="sinks", daemon=True)
        self._thread.start()

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self._waiting.put(lambda sink: sink.log(numbers, step))

    def close(self, complete: bool) -> None:
        """Sends what waits. `complete`: whether the run reached its last step."""
        self._waiting.put(lambda sink: sink.close(complete))
        self._waiting.put(None)
        self._thread.join(CLOSING_SECONDS)
        if self._thread.is_alive():
            names = " and ".join(self._sinks)
            log.warning("%s did not take all metrics within %.0f s", names, CLOSING_SECONDS)

    def _send(self) -> None:
        while (send := self._waiting.get()) is not None:
            for kind, sink in list(self._sinks.items()):
                try:
                    send(sink)
                except Exception as error:  # each tracker raises its own
                    del self._sinks[kind]
                    log.warning("no more metrics are sent to %s: %s", kind, _reason(error))


def check(training: TrainingConfig) -> None:
    """Raises TrainerError when a sink's package is not installed."""
    for kind in training.sinks:
        if find_spec(kind) is None:
            raise TrainerError(
                f"training.sinks: the package {kind} is not installed; install it with "
                f"`pip install 'groundwork[{kind}]'`, or leave {kind} out of training.sinks"
            )


def open_sinks(config: RunConfig, identity: Mapping[str, Any], record: Path, resumed: bool) -> Sinks:
    """Opens the sinks of a run, whose id is in the file `record`. Raises TrainerError when one cannot be
    opened; a resumed run goes on without it.
    """
    opened: dict[str, Sink] = {}
    if config.training.sinks:
        run = TrackedRun(
            _id(record), config.run_dir.name, config.project, _settings(config, identity), config.run_dir
        )
        for kind in config.training.sinks:
            try:
                opened[kind] = SINKS[kind](run)
            except Exception as error:  # each tracker raises its own
                problem = f"training.sinks: {kind} cannot be opened: {_reason(error)}"
                if not resumed:
                    raise TrainerError(problem) from None
                log.warning("%s; training goes on without it", problem)
    return Sinks(opened)


def _id(record: Path) -> str:
    if not record.exists():
        write_atomically(record, json.dumps({"id": uuid.uuid4().hex[:8]}) + "\n")
    found: str = json.loads(record.read_text(encoding="utf-8"))["id"]
    return found


def _settings(config: RunConfig, identity: Mapping[str, Any]) -> dict[str, Any]:
    """What is shown of a run: its identity, the identity's hash, and the operational settings."""
    training = config.training.model_dump(mode="json") | identity["training"]
    return {**identity, "training": training, "identity": config_hash(dict(identity))}


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted path."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _reason(error: Exception) -> str:
    """The first line of an error, without the password of an address in it."""
    return re.sub(r"//[^/@\s]+@", "//", first_line(error))
