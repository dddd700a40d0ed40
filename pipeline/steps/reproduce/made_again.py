"""What a checkpoint that is made again must be like, and whether it is."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.steps.lineage.checkpoints import Checkpoint
from pipeline.store.errors import PipelineError
from pipeline.store.fingerprint import file_sha256
from trainer.config import TrainingConfig
from trainer.system.durable import read_json
from trainer.system.run_history import NAMES_SHOWN, differing, flat

COMPARED = ("hf/model.safetensors", "optimizer.safetensors")
SUMS, LOSSES, SETTINGS = "SHA256SUMS", "LOSSES.json", "SETTINGS.json"
# The largest difference of losses in nats that rounding may make. It is a guess for other processors: on one
# and two threads of one, 204,800 tokens of the default recipe ended 5e-7 apart.
TOLERANCE = 0.05


def write_expected(checkpoint: Checkpoint, directory: Path) -> None:
    """Writes the hashes, the losses and the settings of a checkpoint to a directory, for `compare`."""
    files = read_json(checkpoint.path / "manifest.json")["files"]
    sums = [f"{files[name]['sha256']}  {name}\n" for name in COMPARED if name in files]
    (directory / SUMS).write_text("".join(sums), encoding="utf-8")
    for name, content in ((LOSSES, _losses(checkpoint.path)), (SETTINGS, _settings(checkpoint.lineage))):
        (directory / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def compare(out: Path, again: Path) -> str:
    """Whether a checkpoint that was made `again` is the one of which `out` holds the hashes: by the bytes, or
    else by its losses. Raises PipelineError when it is not.
    """
    try:
        sums = dict(line.split()[::-1] for line in (out / SUMS).read_text(encoding="utf-8").splitlines())
        then, now = read_json(out / LOSSES), _losses(again)
        same = [file_sha256(again / name) == sha256 for name, sha256 in sums.items()]
        made = _settings(read_json(again / "lineage.json"))
        wanted = read_json(out / SETTINGS) if (out / SETTINGS).exists() else made
    except (OSError, ValueError, KeyError) as error:
        raise PipelineError(
            f"cannot compare {again} with what {out} holds: {error}: name the directory that `reproduce` "
            "made and a checkpoint"
        ) from error
    if same and all(same):
        return f"the same bytes: {', '.join(sums)}"
    if names := differing([wanted, made]):
        settings = ", ".join(
            f"{name} {wanted.get(name)} then, {made.get(name)} now" for name in names[:NAMES_SHOWN]
        )
        raise PipelineError(f"another training: {settings}")
    both = [name for name in then if name in now]
    losses = ", ".join(f"{name} {then[name]:.4f} then, {now[name]:.4f} now" for name in both)
    if then.keys() == now.keys() and all(abs(then[name] - now[name]) <= TOLERANCE for name in both):
        return f"the same up to rounding, not to the byte: {losses}"
    raise PipelineError(f"another model: {losses or 'it has no losses to compare'}")


def _settings(lineage: Mapping[str, Any]) -> dict[str, str]:
    """What decides a checkpoint, besides its data and the machine, and is the same when it is made again."""
    decisive = TrainingConfig.model_validate(lineage["training"]["config"]).decisive
    own = {name: value for name, value in decisive.items() if name not in ("pretrained", "averaging")}
    return flat({"tokens": lineage["training"]["tokens"], "training": own})


def _losses(checkpoint: Path) -> dict[str, float]:
    """The losses in nats per token: of the last step and, where it was evaluated, of the held-out text."""
    state = read_json(checkpoint / "state.json")
    losses = {"loss": state["loss"], "held-out loss": (state["evaluation"] or {}).get("loss")}
    return {name: loss for name, loss in losses.items() if loss is not None}
