"""The variants of a recipe as partitions of the assets that differ between them."""

from collections.abc import Mapping, Sequence

import dagster as dg

from pipeline.assets.operations.runs import PARTITION_TAG
from pipeline.assets.used_recipe import UsedRecipe
from pipeline.recipe.recipe import Recipe
from pipeline.recipe.variants import in_section
from pipeline.steps.recipe_versions import differing
from pipeline.store.variant_names import BASE

Asset = dg.AssetsDefinition | dg.SourceAsset


class VariantPartitions:
    """Gives a partition for each variant to the first stage that differs between the variants, and to all
    stages that follow it. In a `section` of `post_training` these are stages of the section. Without
    variants, no asset has partitions.
    """

    def __init__(self, recipes: Mapping[str, Recipe], used: UsedRecipe, section: str = ""):
        self._partitions = dg.StaticPartitionsDefinition(list(recipes))
        self._stages, self._section = differing(in_section(recipes, section)), section
        self._used = used

    def partitioned(self, assets: Sequence[Asset]) -> list[Asset]:
        """The assets of a job, or some of them, with their partitions."""
        stages = {kind.name for kind in self._stages}
        return [
            asset.map_asset_specs(lambda spec: spec.replace_attributes(partitions_def=self._partitions))
            if isinstance(asset, dg.AssetsDefinition)
            and self._used.key(asset.key, self._section).stage in stages
            else asset
            for asset in assets
        ]

    def beside_the_model(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        """An external asset with an entry for each variant, as every model has one."""
        return spec.replace_attributes(partitions_def=self._partitions) if self._stages else spec


def tags(assets: Sequence[Asset]) -> dict[str, str]:
    """The tags of a job of these assets. If the job has no partitions, they say that its runs are of the
    recipe itself.
    """
    return {PARTITION_TAG: BASE} if any(asset.partitions_def for asset in assets) else {}
