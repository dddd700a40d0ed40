"""Settings that nothing reads, because a setting that they belong to is off."""

from typing import Any

from trainer.config.training import TrainingConfig

# The kinds that use a setting; others ignore it.
OF_OPTIMIZERS = {
    "betas": ("adamw", "muon", "lion", "sophia", "adamw_8bit"),
    "eps": ("adamw", "muon", "adamw_8bit"),
    "muon_lr": ("muon",),
    "sophia_rho": ("sophia",),
    "python": ("python",),
    "version": ("python",),
    "params": ("python",),
}
OF_SCHEDULES = {"decay": ("wsd",), "decay_fraction": ("wsd",), "min_lr_ratio": ("cosine", "linear", "wsd")}


def check(training: TrainingConfig) -> None:
    """Raises ValueError for a setting that differs from its default although nothing reads it, and for text
    of which nothing is learned.
    """
    _check_kind("optimizer", training.optimizer, OF_OPTIMIZERS)
    _check_kind("schedule", training.schedule, OF_SCHEDULES)
    for number, stage in enumerate(training.stages):
        if stage.schedule:
            _check_kind(f"stages.{number}.schedule", stage.schedule, OF_SCHEDULES)
    for part in training.curriculum.stages:
        done = part.first_token + part.tokens - part.schedule_begin
        if part.steps == 1 and not part.schedule.share_of_peak(done, part.schedule_tokens):
            place = f"stages: {part.name!r}" if part.name else "max_tokens"
            raise ValueError(
                f"training.{place} is one step, the last of its schedule, whose learning rate is 0, so "
                "nothing would be learned: train on more tokens, or set schedule.min_lr_ratio"
            )
    if training.pretrained:
        _check("init", training, "init", "training from scratch, without pretrained")
    if training.objective == "pretrain":
        _check("learn", training, "learn", "objective sft and dpo")
    if training.objective == "dpo":
        _check("z_loss", training, "z_loss", "objective pretrain and sft")
    else:
        _check("dpo", training, "dpo", "objective dpo")
    if training.parallel.dp_shard == 1:
        name = "reshard_after_forward"
        _check(f"parallel.{name}", training.parallel, name, "parallel.dp_shard above 1")


def _check_kind(place: str, section: Any, kinds_of: dict[str, tuple[str, ...]]) -> None:
    for name, kinds in kinds_of.items():
        if section.kind not in kinds:
            _check(f"{place}.{name}", section, name, f"kind {' or '.join(kinds)} and not to {section.kind}")


def _check(place: str, section: Any, name: str, belongs_to: str) -> None:
    default = (
        type(section).model_fields[name].get_default(call_default_factory=True, validated_data=dict(section))
    )
    if getattr(section, name) != default:
        raise ValueError(
            f"training.{place} has no effect here, it belongs to {belongs_to}: leave it out, or change what "
            "it belongs to"
        )
