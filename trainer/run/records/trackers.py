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
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from trainer.config import RunConfig, config_hash
from trainer.system.durable import read_json, write_atomically
from trainer.system.errors import TrainerError, first_line
from trainer.system.launch import MLFLOW_PLACE
from trainer.system.run_history import flat

CLOSING_SECONDS = 60.0  # at the end of a run, for sending what waits
MLFLOW_TAG = "groundwork.run"
LONGEST_KEY = 250  # characters, in MLflow

log = logging.getLogger("trainer")


Log = Callable[[dict[str, float], int], object]  # takes the numbers of a step
Finish = Callable[[bool], object]  # takes whether the run reached its last step
Tracker = tuple[Log, Finish]


def _wandb(project: str, name: str, run_dir: Path, run_id: str, settings: dict[str, Any]) -> Tracker:
    import wandb

    # Neither the command line, nor the host, nor the git remote, nor the console leaves the machine.
    private = wandb.Settings(
        console="off", disable_code=True, disable_git=True, silent=True, x_disable_meta=True
    )
    run = wandb.init(
        project=project, id=run_id, name=name, config=settings, dir=run_dir, resume="allow", settings=private
    )
    # Steps after the checkpoint that a run resumes from are there already.
    return (
        lambda numbers, step: run.log(numbers, step=step) if step >= run.step else None,
        lambda complete: run.finish(exit_code=0 if complete else 1),
    )


def _trackio(project: str, name: str, run_dir: Path, run_id: str, settings: dict[str, Any]) -> Tracker:
    import trackio

    # By its name trackio finds it again.
    named = {"project": project, "name": f"{name}-{run_id}", "config": settings}
    # In a context of its own, or trackio would finish the run a second time when Python exits.
    run = copy_context().run(trackio.init, **named, resume="allow", embed=False)
    return lambda numbers, step: run.log(numbers, step=step), lambda complete: run.finish()


def _mlflow(project: str, name: str, run_dir: Path, run_id: str, settings: dict[str, Any]) -> Tracker:
    if not os.environ.get("MLFLOW_TRACKING_URI"):
        raise TrainerError(MLFLOW_PLACE)
    # MLflow's own default waits four minutes for a server that does not answer.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    client = MlflowClient()
    experiment = client.get_experiment_by_name(project)
    place = experiment.experiment_id if experiment else client.create_experiment(project)
    if known := client.search_runs([place], f"tags.`{MLFLOW_TAG}` = '{run_id}'", max_results=1):
        run = known[0].info.run_id
        client.update_run(run, status="RUNNING")
    else:
        run = client.create_run(place, run_name=name, tags={MLFLOW_TAG: run_id}).info.run_id
        named = {_as_mlflow_names(key): value for key, value in flat(settings).items()}
        params = [Param(key, value) for key, value in named.items()]
        for start in range(0, len(params), 100):  # as many as a request may have
            client.log_batch(run, params=params[start : start + 100])

    def send(numbers: dict[str, float], step: int) -> None:
        now = int(1000 * time.time())
        client.log_batch(run, metrics=[Metric(name, value, now, step) for name, value in numbers.items()])

    return send, lambda complete: client.set_terminated(run, "FINISHED" if complete else "KILLED")


def _as_mlflow_names(key: str) -> str:
    """A setting's key, in which corpora and stages are called what a person likes, as MLflow allows it."""
    return re.sub(r"[^\w.: -]", "_", key)[:LONGEST_KEY]


# How each is opened, and the environment variable that names its project.
TRACKERS = {
    "mlflow": (_mlflow, "MLFLOW_EXPERIMENT_NAME"),
    "trackio": (_trackio, "TRACKIO_PROJECT"),
    "wandb": (_wandb, "WANDB_PROJECT"),
}


class Trackers:
    """The trackers of a run. Sends from a thread of its own: training waits for no tracker, and goes on
    without one that fails.

    A run's id is drawn when it starts and kept in the file `record`, so that a resumed run continues the same
    curves. Raises TrainerError when a tracker cannot be opened; a resumed run goes on without it.
    """

    def __init__(self, config: RunConfig, identity: Mapping[str, Any], record: Path, resumed: bool) -> None:
        self._opened: dict[str, Tracker] = {}
        known = _known_id(record)
        run_id = known or uuid.uuid4().hex[:8]
        # The identity, its hash, and the operational settings.
        training = config.training.model_dump(mode="json") | identity["training"]
        settings = {**identity, "training": training, "identity": config_hash(dict(identity))}
        for kind in config.training.sinks:
            open_tracker, variable = TRACKERS[kind]
            project = os.environ.get(variable) or config.project or "groundwork"
            name = config.name or config.run_dir.name
            try:
                with redirect_stdout(io.StringIO()):
                    self._opened[kind] = open_tracker(project, name, config.run_dir, run_id, settings)
            except Exception as error:  # each tracker raises its own
                problem = f"training.sinks: {kind} cannot be opened: {_reason(error)}"
                if not resumed:
                    raise TrainerError(problem) from None
                log.warning("%s; training continues without it", problem)
        if self._opened and not known:
            write_atomically(record, json.dumps({"id": run_id}) + "\n")
        self._waiting: SimpleQueue[Callable[[Tracker], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._send, name="trackers", daemon=True)
        self._thread.start()

    def log(self, numbers: dict[str, float], step: int) -> None:
        self._waiting.put(lambda tracker: tracker[0](numbers, step))

    def close(self, complete: bool) -> None:
        """Sends what waits. `complete`: whether the run reached its last step."""
        self._waiting.put(lambda tracker: tracker[1](complete))
        self._waiting.put(None)
        with redirect_stdout(io.StringIO()):
            self._thread.join(CLOSING_SECONDS)
        if self._thread.is_alive():
            names = " and ".join(self._opened)
            log.warning("%s did not take all metrics within %.0f s", names, CLOSING_SECONDS)

    def _send(self) -> None:
        while (send := self._waiting.get()) is not None:
            for kind, tracker in list(self._opened.items()):
                try:
                    send(tracker)
                except Exception as error:  # each tracker raises its own
                    del self._opened[kind]
                    log.warning("no more metrics are sent to %s: %s", kind, _reason(error))


def _known_id(record: Path) -> str | None:
    """The id that the file holds, if there is one."""
    try:
        return str(read_json(record)["id"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning(f"{record}: cannot be read ({error!r}): trackers begin new curves of this run")
        return None


def _reason(error: Exception) -> str:
    """The first line of an error, without the password of an address in it."""
    return re.sub(r"//[^/@\s]+@", "//", first_line(error))
