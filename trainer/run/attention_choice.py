"""The backend of attention of a run. On a GPU it is measured, once, on the run's own shape and documents;
the run's directory keeps the choice.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import torch

from trainer.config import RunConfig
from trainer.data.loader import TrainingData
from trainer.model.attention import Backend, candidates, flash
from trainer.model.precision import AUTOCAST, Precision
from trainer.parallel.world import World
from trainer.run.attention_timing import Clock, Layer, median_seconds, timings
from trainer.run.batch import Batch
from trainer.run.run_directory import RunDirectory
from trainer.system.errors import TrainerError, first_line

TOKENS = 16_384  # enough to fill a GPU

log = logging.getLogger("trainer")


@dataclass(frozen=True)
class Choice:
    """`backend` was the fastest on `gpu`: `milliseconds` of a forward and backward pass of one `layer`, by
    backend. `kernels` is where those of flash came from; None if it did not run.
    """

    backend: Backend
    gpu: str
    layer: str
    milliseconds: dict[Backend, float]
    kernels: str | None

    def to_json(self) -> str:
        """What `recorded` reads."""
        return json.dumps(asdict(self), indent=1) + "\n"


@dataclass(frozen=True)
class RunAttention:
    """What a run attends with. `most_documents`: how many of them a window has at most, where flash keeps
    them apart. `choice` is None where nothing was to choose.
    """

    backend: Backend
    most_documents: int | None = None
    choice: Choice | None = None


def attention_of(
    config: RunConfig, precision: Precision, world: World, data: TrainingData, clock: Clock = median_seconds
) -> RunAttention:
    """The backend that `training.attention` stands for here, on all processes that of the main one, and ready
    for use. Raises TrainerError if there is none. A collective.
    """
    training, dtype = config.training, AUTOCAST.get(precision, torch.float32)
    # Decided by build_session: no longer `auto`.
    bot_id = config.data.bot_id if training.document_masking else None
    possible = candidates(
        training.attention,
        world.device,
        dtype,
        training.seq_len,
        bot_id is not None,
        training.model.attention_sinks,
    )
    most = data.most_documents() if bot_id is not None and "flash" in possible else None

    def settled_here() -> Choice:
        # What `micro_batch_size: auto` stands for is found out with the model, so after this.
        tokens = TOKENS if training.micro_batch_size == "auto" else training.micro_batch_tokens
        rows = max(1, tokens // training.curriculum.stage(0).seq_len)
        windows = torch.from_numpy(data.batch(0, 0, world.data_size)[:rows]).to(world.device)
        layer = Layer.of(training, dtype, Batch.of(windows, bot_id), most)
        return settled(RunDirectory(config.run_dir).attention, possible, layer, clock)

    choice = cast(Choice, world.from_main(settled_here)) if len(possible) > 1 else None
    found = RunAttention(choice.backend if choice else possible[0], most, choice)
    if found.backend == "flash":
        kernels = flash.activate(world.device, training.model.head_dim)
        if world.is_main:
            log.info("attention flash runs with the kernels of %s", kernels)
            if choice is not None and kernels != choice.kernels:
                log.warning("it was measured with those of %s", choice.kernels)
    return found


def settled(path: Path, possible: Sequence[Backend], layer: Layer, clock: Clock) -> Choice:
    """The choice that a run recorded at `path`, if its backend is still one of the `possible`; else a new one
    by measuring them, which the caller records. Raises TrainerError if none can run.
    """
    gpu, before = _name(layer.device), recorded(path)
    if before is not None and before.backend in possible:
        if before.gpu != gpu:
            log.warning(
                "attention %s, which was the fastest on %s, is kept on %s. Delete %s to measure anew",
                before.backend,
                before.gpu,
                gpu,
                path,
            )
        return before
    if before is not None:
        log.warning("attention %s, which was the fastest, cannot be used any more", before.backend)
    found = timings(possible, layer, clock)
    if not found.milliseconds:
        raise TrainerError(
            f"attention cannot be computed on {gpu} ({layer}): {found}; set training.attention: math"
        )
    backend = min(found.milliseconds, key=found.milliseconds.__getitem__)
    log.info("attention on %s, one layer forward and backward (%s): %s", gpu, layer, found)
    return Choice(backend, gpu, str(layer), found.milliseconds, found.kernels)


def recorded(path: Path) -> Choice | None:
    """The choice of a run, if it made one. Raises TrainerError if the file is damaged."""
    try:
        return Choice(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise TrainerError(
            f"{path}: damaged ({first_line(error)}). Delete it, and attention is measured anew"
        ) from error


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
