"""A run goes on from the newest state that another run has computed and that it would reach itself.

The checkpoint of that state becomes the run's own: its large files are linked, and its position, metrics and
lineage are written as if the run had computed it. From then on the run needs nothing of the other one.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

from trainer.checkpoint import publish, state
from trainer.checkpoint.publish import CheckpointError
from trainer.config import ParallelConfig, RunConfig
from trainer.parallel.world import join
from trainer.run.resolve import resolve
from trainer.run.session import Session
from trainer.run.state_chain import StateChain, held_out
from trainer.system.durable import link_or_copy, write_atomically
from trainer.system.machine import differences
from trainer.system.run_directory import RunDirectory
from trainer.system.run_history import OPTIMIZER_FILES, RunHistory, histories

OWN = ("state.json", "lineage.json")  # files that are written anew for the run that goes on

log = logging.getLogger("trainer")


@dataclass(frozen=True)
class SharedState:
    """A checkpoint of another run, with the content of its state.json."""

    run: RunHistory
    checkpoint: Path
    saved: dict[str, Any]

    @property
    def step(self) -> int:
        return self.saved["step"]

    def __str__(self) -> str:
        return f"{self.run.name} at step {self.step:,}"


def go_on_from_newest(session: Session, directory: RunDirectory, own: Path | None) -> Path | None:
    """Adopts the newest state that another run has computed and that this run would reach itself: makes it a
    checkpoint of this run, and returns that. Returns `own`, the checkpoint that the run would resume from, if
    no other run has come further or training.shared_states is `none`. For the main process alone.
    """
    wanted = session.training.shared_states
    if session.config.runs is None or wanted == "none":
        return own
    reached = state.read_state(own) if own else {"step": 0, "metrics_bytes": 0}
    if own and reached.get("state") != session.chain.at(reached["step"]):
        return own  # settings changed on the way
    told: set[str] = set()
    for shared in _newest_first(session.config, session.chain, reached["step"]):
        otherwise = _computed_otherwise(session, shared)
        if otherwise and wanted == "exact":
            bits = f"was computed differently ({otherwise}), so the last bits of the weights would differ"
            _tell_once(told, shared, f"{bits}; `training.shared_states: rounded` accepts that")
            continue
        try:
            # Read once: the other run may drop its optimizer at any moment.
            files = publish.manifest(shared.checkpoint)
            if not any(fnmatch(name, OPTIMIZER_FILES) for name in files):
                _tell_once(told, shared, "holds the model only (training.checkpoint.optimizer)")
                continue
            adopted = _adopted(session, directory, shared, files, reached)
        except (CheckpointError, OSError) as error:  # damaged, or removed at this moment
            log.warning("not continuing from %s: %s", shared, error)
            continue
        if otherwise:
            log.warning("%s was computed differently: %s", shared, otherwise)
        trained = f"{shared.saved['tokens']:,} tokens are trained already"
        log.info(f"continuing from {shared} of {session.training.steps}: {trained}")
        return adopted
    return own


def _tell_once(told: set[str], shared: SharedState, reason: str) -> None:
    """Logs a reason for the newest state that it concerns, and not again for older ones."""
    if reason not in told:
        told.add(reason)
        log.info("not continuing from %s %s", shared, reason)


def sharing(config: RunConfig) -> list[SharedState]:
    """The states of other runs that a run with this configuration would reach on this machine, those of the
    most steps first. Not all of their files need be on this machine. Raises TrainerError.
    """
    return _newest_first(config, StateChain(resolve(config, join(ParallelConfig()))))


def _newest_first(config: RunConfig, chain: StateChain, after: int = 0) -> list[SharedState]:
    """The states on disk that the run would reach `after` a step and before its last one, those of the most
    steps first. Where several runs hold one state, the run that computed it comes before those that went on
    from it.
    """
    found = []
    for run in histories(config.runs) if config.runs else ():
        if run.path.resolve() != config.run_dir.resolve():
            found += [(step, run, path) for step, path in run.checkpoints().items()]
    shared = []
    for step, run, checkpoint in sorted(found, key=lambda one: one[0]):
        with suppress(CheckpointError):  # removed, or damaged
            if after < step < config.training.steps:
                one = SharedState(run, checkpoint, state.read_state(checkpoint))
                if one.saved.get("state") == chain.at(step):
                    shared.append(one)
    return sorted(shared, key=lambda one: (-one.step, len(one.saved["trunks"]), one.run.name))


def _computed_otherwise(session: Session, shared: SharedState) -> str:
    """Why the last bits of a shared state may not be those that this run would compute; empty if they are."""
    then, now = shared.saved["rounding"], session.rounding
    if then is None:
        return "on more than one machine, or with settings that changed in between"
    return "; ".join(differences(then, now))


def _adopted(
    session: Session,
    directory: RunDirectory,
    shared: SharedState,
    files: Mapping[str, dict[str, int | str]],
    reached: Mapping[str, Any],
) -> Path:
    """Publishes the state, of which `files` is the manifest, as a checkpoint of the run, which has `reached`
    a state itself. Raises CheckpointError if a file is damaged, and OSError if it was removed.
    """
    same_text = shared.saved["held_out"] == held_out(session.plan)
    own = directory.metrics.read_bytes()[: reached["metrics_bytes"]] if reached["step"] else b""
    metrics = own + _between(reached["step"], shared, with_evaluations=same_text)
    # Before the checkpoint: a run that is killed in between resumes from its own, and cuts off the rest.
    write_atomically(directory.metrics, metrics)
    progress = {
        **{name: value for name, value in shared.saved.items() if name not in state.IDENTITY},
        "corpus_tokens": session.plan.data.corpus_tokens(shared.step),
        "evaluation": shared.saved["evaluation"] if same_text else None,
        "metrics_bytes": len(metrics),
        "trunks": [
            *shared.saved["trunks"],
            {"run": shared.run.name, "step": shared.step, "tokens": shared.saved["tokens"]},
        ],
    }
    adopted = directory.checkpoint(shared.step)
    taken = {name: entry for name, entry in files.items() if name not in OWN}
    publish.publish(adopted, partial(_fill, shared.checkpoint, taken, session, progress), taken)
    return adopted


def _fill(
    checkpoint: Path, taken: Iterable[str], session: Session, progress: dict[str, Any], own: Path
) -> None:
    """Fills the directory of a checkpoint with links to files of another, and with files of its own."""
    for name in taken:
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(checkpoint / name, own / name)
    state.Facts(session.config, session.plan.identity, progress).write(own)


def _between(after: int, shared: SharedState, with_evaluations: bool) -> bytes:
    """The other run's metrics from step `after` up to the state. Its validations are among them only if both
    runs validate on the same text.
    """
    records = RunHistory(shared.run.path, shared.step).records
    kept = (one for one in records if with_evaluations or one["kind"] != "evaluation")
    return "".join(json.dumps(one) + "\n" for one in kept if one["step"] > after).encode()
