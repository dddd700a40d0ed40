"""A recipe as a code location uses it, and what Dagster calls the things that are made of it."""

from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from pipeline.recipe.loading import RECIPE_VARIABLE, recipe_path
from pipeline.store.keys import Key
from trainer.system.wording import shell_word

RECIPE_TAG = "groundwork/recipe"  # of the runs of a recipe that shares its code location
CHECKPOINT = Key("checkpoint")
# Partitions: every step that was ever saved, those on disk, and those that are evaluated or still on disk
SAVED, ON_DISK, EVALUATED = "checkpoints", "checkpoints_on_disk", "checkpoint_evaluations"


@dataclass(frozen=True)
class UsedRecipe:
    """The recipe of `file`, which shares a code location with other code, or that of GROUNDWORK_RECIPE. The
    `prefix` begins every name in Dagster, so that a code location has room for several recipes.
    """

    file: Path | None = None
    prefix: str = ""
    pool: str = "gpu"  # in which trainings and evaluations wait for each other: dagster.yaml

    @property
    def path(self) -> Path:
        return self.file or recipe_path()

    def name(self, name: str) -> str:
        """The name of a job, sensor, group, op, resource or set of partitions."""
        return f"{self.prefix}_{name}" if self.prefix else name

    def asset(self, key: str, section: str = "") -> dg.AssetKey:
        """Dagster's key of what the store keeps under `key`, in a section of `post_training`."""
        return dg.AssetKey([*filter(None, (self.prefix, section)), *key.split("/")])

    def key(self, asset: dg.AssetKey, section: str = "") -> Key:
        """The key in the store of an asset; one of no stage for the asset of another recipe or section."""
        before = [*filter(None, (self.prefix, section))]
        ours = asset.path[: len(before)] == before
        return Key.from_path("/".join(asset.path[len(before) :] if ours else asset.path))

    @property
    def workshop(self) -> str:
        """The key of the resource."""
        return self.name("workshop")

    def partitions(self, name: str) -> dg.DynamicPartitionsDefinition:
        """SAVED, ON_DISK or EVALUATED."""
        return dg.DynamicPartitionsDefinition(name=self.name(name))

    @property
    def tags(self) -> dict[str, str]:
        """The tags of the jobs and runs of this recipe."""
        # `a.yaml` without a prefix, since another recipe may have the prefix `a`
        return {RECIPE_TAG: self.prefix or self.file.name} if self.file else {}

    def owns(self, run: dg.DagsterRun) -> bool:
        """False for the run of another recipe, or of other code in the same project."""
        return self.tags.items() <= run.tags.items()

    def meant(self, text: str) -> str:
        """A text whose commands mean this recipe, wherever they are typed."""
        if not self.file:
            return text
        own = f"{RECIPE_VARIABLE}={shell_word(self.file)} python -m pipeline"
        return text.replace("python -m pipeline", own).replace(
            "dagster job execute", "dagster job execute -m pipeline.definitions"
        )


OWN = UsedRecipe()
