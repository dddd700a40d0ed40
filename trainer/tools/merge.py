"""Merges checkpoints: a run's directory with one checkpoint, whose weights are the mean of others."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.checkpoint import publish
from trainer.checkpoint.publish import CheckpointError
from trainer.checkpoint.state import read_state, write_json
from trainer.config import RunConfig, run_config_of
from trainer.hf.mean import write_mean
from trainer.run.evaluation.validation import evaluate_checkpoint
from trainer.run.records.loss_curve import draw_losses
from trainer.system.durable import atomic_directory, read_json, room_in
from trainer.system.errors import TrainerError
from trainer.system.run_directory import RunDirectory
from trainer.system.run_history import MERGED, RunHistory, checkpoint_sha256, reported
from trainer.system.wording import counted

UNSHARED = {"state": None}  # no training reaches a mean
REFERENCE = "reference"  # of preferences, against which they are measured
SMALLEST = 1e-9  # of the numbers of `--weights`, whose shares are computed in fp32


@dataclass(frozen=True)
class Parent:
    """A checkpoint that is merged, and its `share` of the mean."""

    checkpoint: Path
    share: float
    config: RunConfig
    lineage: dict[str, Any]
    state: dict[str, Any]

    @classmethod
    def read(cls, checkpoint: Path, share: float) -> "Parent":
        """Raises TrainerError for a checkpoint that is damaged."""
        try:
            publish.verify(checkpoint, ("hf/", "lineage.json", "state.json"))
            lineage = read_json(checkpoint / "lineage.json")
            state = read_state(checkpoint)
        except CheckpointError as error:
            raise TrainerError(f"{error}: it cannot be merged; name another checkpoint") from error
        return cls(checkpoint, share, run_config_of(checkpoint), lineage, state)

    @property
    def run(self) -> Path:
        return RunDirectory.of(self.checkpoint).path

    def recorded(self, main: "Parent") -> dict[str, Any]:
        """What the mean records of this checkpoint. Its lineage is left out where it is that of the mean."""
        name = RunHistory(self.run, publish.step_of(self.checkpoint)).name
        facts = {"checkpoint": name, "sha256": checkpoint_sha256(self.checkpoint), "share": self.share}
        own = {} if self.run == main.run and MERGED not in self.lineage else {"lineage": self.lineage}
        return {**facts, "tokens": self.state["tokens"], **own}


def merge(
    checkpoints: Sequence[Path], weights: Sequence[float] | None, output: Path, name: str
) -> dict[str, Any]:
    """Writes the directory of a run called `name` to `output`: the mean of the weights of `checkpoints`, as
    one checkpoint, evaluated on the held-out text of the one that was trained for the most tokens.
    Configuration, metrics, lineage and tokenizer are that one's, too. Each checkpoint counts alike, or by its
    entry in `weights`.

    Returns what a training reports of its last checkpoint. Raises TrainerError for checkpoints that cannot be
    merged, and for a full disk; then nothing is written.
    """
    parents = _read(checkpoints, weights)
    main = max(parents, key=lambda parent: parent.state["tokens"])  # the first of several
    of_main = {name: value for name, value in main.lineage.items() if name != MERGED}
    merged = {MERGED: [parent.recorded(main) for parent in parents]}
    lineage = main.config.lineage | merged
    config = main.config.model_copy(update={"run_dir": output, "name": name, "lineage": lineage})
    step = main.state["step"]
    with room_in(output), atomic_directory(output) as place:
        directory = RunDirectory(place)
        directory.config.write_text(config.as_yaml)
        if (main.run / REFERENCE).is_dir():
            shutil.copytree(main.run / REFERENCE, place / REFERENCE)

        def write(checkpoint: Path) -> None:
            models = [parent.checkpoint / "hf" for parent in parents]
            write_mean(models, weights, like=main.checkpoint / "hf", destination=checkpoint / "hf")
            write_json(checkpoint / "lineage.json", of_main | merged)
            state = main.state | UNSHARED
            write_json(checkpoint / "state.json", state)  # which an evaluation of preferences reads
            held_out = any(corpus.validation for corpus in config.data.corpora)
            evaluation = evaluate_checkpoint(checkpoint, config) if held_out else None
            write_json(checkpoint / "state.json", state | {"evaluation": evaluation})
            _write_metrics(directory, main, evaluation)

        publish.publish(directory.checkpoint(step), write)
    saved = RunDirectory(output).checkpoint(step)
    return reported(saved, read_state(saved), publish.manifest(saved))


def _read(checkpoints: Sequence[Path], weights: Sequence[float] | None) -> list[Parent]:
    """Raises TrainerError for checkpoints that cannot be merged."""
    if len(checkpoints) < 2:
        raise TrainerError("a mean needs at least two checkpoints: name more, or raise --last")
    if weights is not None and len(weights) != len(checkpoints):
        raise TrainerError(
            f"--weights has {counted(len(weights), 'numbers')} for {len(checkpoints)} checkpoints: give one "
            "for each"
        )
    for weight in weights or ():
        if not weight > 0:
            raise TrainerError(f"--weights {weight:g}: must be above 0; leave a checkpoint out instead")
        if not SMALLEST <= weight <= 1 / SMALLEST:
            raise TrainerError(
                f"--weights {weight:g}: only the ratios count: give numbers from {SMALLEST:g} to "
                f"{1 / SMALLEST:g}"
            )
    total = len(checkpoints) if weights is None else sum(weights)
    found = [
        Parent.read(path.resolve(), weight / total)
        for path, weight in zip(checkpoints, weights or [1.0] * len(checkpoints), strict=True)
    ]
    first = found[0]
    for one in found[1:]:
        ours, theirs = (parent.config.training.objective for parent in (first, one))
        if ours != theirs:
            raise TrainerError(
                f"{one.checkpoint} was trained with objective {theirs} and {first.checkpoint} with {ours}: a "
                "tuned model is merged with models that were tuned alike, not with its base"
            )
    return found


def _write_metrics(directory: RunDirectory, main: Parent, evaluation: dict[str, Any] | None) -> None:
    """The metrics of the training up to the merged checkpoint, with the evaluation of the mean at its end."""
    step, tokens = main.state["step"], main.state["tokens"]
    records = [
        one for one in RunHistory(main.run, step).records if one["step"] < step or one["kind"] != "evaluation"
    ]
    if evaluation is not None:
        records.append({"kind": "evaluation", "step": step, "tokens": tokens, **evaluation})
    directory.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    draw_losses(RunHistory(directory.path))
