"""The recipe as one experiment: the settings of its file, and which variant and which section is meant."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import PrivateAttr, ValidationError, model_validator

from pipeline.recipe.overrides import leaves
from pipeline.recipe.post_training import DPO, SFT, SftParams, Tuning, training_settings
from pipeline.recipe.problems import explained
from pipeline.recipe.yaml_model import RecipeSettings
from pipeline.stages.bpe import TokenizerParams
from pipeline.stages.quality import PROFILES
from pipeline.store import variant_names
from pipeline.store.cleanup.old_runs import Limits
from pipeline.store.errors import PipelineError
from trainer.system.paths import at_home

RECIPES = Path(__file__).parents[1] / "recipes"
# The sections that hold for what comes after the pretraining, too.
KEPT = {"name", "raw", "scrub", "decontamination", "dedup", "dedup_guard", "checks", "evaluation"}
KEPT |= {"store", "engine", "launch", "retention"}


class RecipeError(PipelineError):
    """The recipe is invalid; the message says where, and what to change."""


class Origin(NamedTuple):
    """Where a recipe is from. Neither its path nor the name of its variant is part of its content."""

    file: Path = Path()
    variant: str = ""
    # the recipe whose model this one goes on with, and the section of it that this one is
    base: "Recipe | None" = None
    section: str = ""
    tuning: Tuning | None = None


class Recipe(RecipeSettings):
    """Everything that decides what a run makes."""

    # the `context` of validation
    _origin: Origin = PrivateAttr(default_factory=Origin)

    def model_post_init(self, context: Origin | None, /) -> None:
        if context:
            self._origin = context

    @model_validator(mode="after")
    def _post_training_fits(self) -> "Recipe":
        for section in self.post_training.sections:
            if section in self.all_variants:
                raise ValueError(
                    f"variants.{section}: this name is taken by `post_training`: rename the variant"
                )
            self.tuned(section)
        return self

    def tuned(self, section: str, tokens: int | None = None) -> "Recipe":
        """The recipe of a section of `post_training`: its corpora, its training, over `tokens` where they are
        known, and what else is said in this one. Raises ValueError.
        """
        tuning = self.post_training.sections[section]
        base = self.tuned(SFT) if section == DPO and self.post_training.sft else self
        settings: Any = training_settings(section, tuning, self.training.model_dump(mode="json"), tokens)
        appended: Any = "appended" if isinstance(self.tokenizer, TokenizerParams) else True
        known = self.tokenizer.chat or appended  # a model that was pretrained without gets tokens of its own
        tuned = {name: getattr(self, name) for name in KEPT} | {
            "corpora": tuning.corpora,
            "quality": PROFILES["none"],
            "shards": self.shards.model_copy(update=tuning.held_out),
            "tokenizer": self.tokenizer.model_copy(update={"chat": known}),
            "training": settings,
        }
        variant = variant_names.tuned(self.variant, section)
        origin = Origin(self._origin.file, variant, base, section, tuning)
        try:
            return Recipe.model_validate(tuned, context=origin)
        except ValidationError as error:
            raise ValueError(f"post_training.{section}: {explained(error)}") from None

    def trained_for(self, tokens: int) -> "Recipe":
        """This recipe of a section, with a training over `tokens`, up to whole steps."""
        return self.pretraining.tuned(self.section, tokens)

    @property
    def pretraining(self) -> "Recipe":
        """The recipe of whose `post_training` this is a section; itself if it is none."""
        return self.base.pretraining if self.base else self

    @property
    def base(self) -> "Recipe | None":
        """The recipe whose model this one goes on with, if it is a section of `post_training`."""
        return self._origin.base

    @property
    def section(self) -> str:
        """The section of `post_training` that this recipe is; empty if it is none."""
        return self._origin.section

    @property
    def tuning(self) -> Tuning | None:
        """The section of `post_training` that this recipe is, if it is one."""
        return self._origin.tuning

    @property
    def rehearsal(self) -> float:
        """The share of the training that is text of the base's training, 0 to 1."""
        return self.tuning.rehearsal if isinstance(self.tuning, SftParams) else 0.0

    @property
    def base_weights(self) -> list[Path]:
        """The weights on this machine that training starts from, if any."""
        pretrained = self.training.pretrained
        return [self.path(pretrained.path)] if pretrained and pretrained.path else []

    @property
    def limits(self) -> Limits:
        """Which of its training runs and checkpoints stay."""
        kept = self.retention
        return Limits(kept.runs, kept.checkpoints, self.name, tuple(self.base_weights))

    def path(self, named: Path) -> Path:
        """A path in the recipe as a path on this machine."""
        return self._origin.file.parent / at_home(named)

    @property
    def file(self) -> str:
        """The absolute path of the recipe, or the name of a shipped one."""
        file = self._origin.file
        return file.stem if file.parent == RECIPES else str(file)

    @property
    def variant(self) -> str:
        """The name of the variant that this is, `hot/sft` for a section of one, `sft` for one of the recipe;
        empty for the recipe as it is written.
        """
        return self._origin.variant

    def changes(self, written: "Recipe") -> dict[str, Any]:
        """The settings that differ from those of `written`, by dotted name."""
        ours, theirs = (dict(leaves(recipe.model_dump(mode="json"))) for recipe in (self, written))
        return {name: ours.get(name) for name in ours | theirs if ours.get(name) != theirs.get(name)}


def named_like(called: str) -> str:
    """A name for a recipe that is made from something that is called so."""
    return re.sub(r"[^a-z0-9_-]+", "-", called.lower()).strip("-_") or "mine"
