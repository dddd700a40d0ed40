"""Settings that belong to others, and decide nothing without them."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, get_args

from trainer.config.optimizer import OptimizerKind
from trainer.config.training import TrainingConfig

# The kinds that use a setting; others ignore it.
OF_OPTIMIZERS = {
    "betas": tuple(kind for kind in get_args(OptimizerKind) if kind != "adafactor"),
    "eps": ("adamw", "adamw_8bit", "muon"),
    "muon_lr": ("muon",),
    "sophia_rho": ("sophia",),
}
OF_SCHEDULES = {
    **dict.fromkeys(("decay", "decay_fraction"), ("wsd",)),
    "min_lr_ratio": ("cosine", "linear", "wsd"),
}

Place = tuple[str | int, ...]


def check(training: TrainingConfig) -> None:
    """Raises ValueError for a setting that differs from its default and that nothing reads."""
    for place, belongs_to in _unused(training.model_dump(mode="json")):
        section: Any = training
        for part in place[:-1]:
            section = section[part] if isinstance(part, int) else getattr(section, part)
        name = str(place[-1])
        value, field = getattr(section, name), type(section).model_fields[name]
        if value != field.get_default(call_default_factory=True, validated_data=dict(section)):
            raise ValueError(
                f"training.{'.'.join(map(str, place))} has no effect here, it belongs to {belongs_to}: leave "
                "it out, or change what it belongs to"
            )


def without_unused(training: Mapping[str, Any]) -> dict[str, Any]:
    """A dump of the training settings in which those that nothing reads are None."""
    reduced = deepcopy(dict(training))
    for place, _ in list(_unused(training)):
        section: Any = reduced
        for part in place[:-1]:
            section = section[part]
        section[place[-1]] = None
    return reduced


def _unused(training: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """The place of each setting that nothing reads, and what it belongs to."""
    yield from _of_other_kinds(("optimizer",), training["optimizer"]["kind"], OF_OPTIMIZERS)
    yield from _of_other_kinds(("schedule",), training["schedule"]["kind"], OF_SCHEDULES)
    for number, stage in enumerate(training.get("stages", ())):
        if stage["schedule"]:
            place = ("stages", number, "schedule")
            yield from _of_other_kinds(place, stage["schedule"]["kind"], OF_SCHEDULES)
    if training.get("pretrained"):
        yield ("init",), "training from scratch, without pretrained"
    if "parallel" in training and training["parallel"]["dp_shard"] == 1:
        yield ("parallel", "reshard_after_forward"), "parallel.dp_shard above 1"


def _of_other_kinds(
    place: Place, kind: str, kinds_of: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[Place, str]]:
    for name, kinds in kinds_of.items():
        if kind not in kinds:
            yield (*place, name), f"kind {' or '.join(kinds)} and not to {kind}"
