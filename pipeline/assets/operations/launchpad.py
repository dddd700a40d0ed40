"""The most frequently changed settings of a recipe as fields of the Launchpad, with the recipe's names."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import dagster as dg
from pydantic import BaseModel, Field, create_model

from pipeline.recipe.overrides import changed, leaves
from pipeline.recipe.sections import ShardParams
from pipeline.stages.dedup import DedupParams
from trainer.config import TrainingConfig
from trainer.config.base import descriptions

Fields = TypeVar("Fields", bound=dg.Config)


def shows(section: type[BaseModel], *paths: str) -> Callable[[type[Fields]], type[Fields]]:
    """Gives a config class settings of a section of the recipe, each with its type, its description and the
    default None. `optimizer.lr` is the setting `lr` inside the section `optimizer`.
    """

    def with_fields(config: type[Fields]) -> type[Fields]:
        fields: dict[str, Any] = {}
        for path in paths:
            name, _, inside = path.partition(".")
            setting = section.model_fields[name]
            kind: Any = setting.annotation
            about = descriptions(section).get(name)
            if not inside:
                fields[name] = (kind | None, Field(None, description=about))
            elif name not in fields:
                inner = [one.partition(".")[2] for one in paths if one.startswith(f"{name}.")]
                config_inside = shows(kind, *inner)(dg.Config)
                fields[name] = (config_inside, Field(config_inside(), description=about))
        return create_model(config.__name__, __base__=config, __module__=config.__module__, **fields)

    return with_fields


@shows(
    TrainingConfig,
    "max_tokens",
    "seq_len",
    "global_batch_tokens",
    "seed",
    "model.n_layers",
    "model.d_model",
    "model.n_heads",
    "model.n_kv_heads",
    "model.d_ff",
    "optimizer.lr",
    "optimizer.muon_lr",
    "optimizer.weight_decay",
    "checkpoint.every_tokens",
    "checkpoint.keep_last",
    "evaluation.every_tokens",
)
class TrainingKnobs(dg.Config):
    """Settings of `training`."""


@shows(DedupParams, "threshold")
class DedupKnobs(dg.Config):
    """Settings of `dedup`."""


@shows(ShardParams, "validation_fraction")
class ShardKnobs(dg.Config):
    """Settings of `shards`."""


def differences(given: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, str]:
    """The settings in `given` that differ from those in `usual`, by path, such as `training.optimizer.lr`."""
    settings = leaves(changed(given, usual))
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in settings}


def values(knobs: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The value in `settings` of each knob that has one."""
    chosen = {}
    for name, field in knobs.model_fields.items():
        value = settings.get(name)
        if isinstance(value, dict):
            value = values(field.annotation, value) or None
        if value is not None:
            chosen[name] = value
    return chosen
