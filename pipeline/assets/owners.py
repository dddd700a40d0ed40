"""Who answers for each asset, and how old the text of a corpus may become, as a recipe says."""

from collections.abc import Sequence
from datetime import timedelta

import dagster as dg

from pipeline.assets.used_recipe import UsedRecipe
from pipeline.assets.variants import Asset
from pipeline.recipe.recipe import Recipe
from pipeline.store import keys


def with_owners(
    assets: Sequence[Asset | dg.AssetSpec], recipe: Recipe, used: UsedRecipe
) -> list[Asset | dg.AssetSpec]:
    """The assets of a recipe and of its sections, with owners, and `raw` with a freshness policy. Dagster's
    observable sources have neither.
    """
    sections = recipe.post_training.sections
    corpora = {"": recipe.corpora} | {name: tuning.corpora for name, tuning in sections.items()}
    if not (
        recipe.owners or any(one.owners or one.fresh_hours for named in corpora.values() for one in named)
    ):
        return list(assets)

    def described(spec: dg.AssetSpec) -> dg.AssetSpec:
        of_corpora = (
            (key, corpus)
            for section, named in corpora.items()
            for corpus in named
            if (key := used.key(spec.key, section)).corpus == corpus.name
        )
        found = next(of_corpora, None)
        if found is None:
            return spec.replace_attributes(owners=recipe.owners)
        key, corpus = found
        owned = spec.replace_attributes(owners=corpus.owners or recipe.owners)
        if not (corpus.fresh_hours and key == keys.raw(corpus.name)):
            return owned
        policy = dg.FreshnessPolicy.time_window(timedelta(hours=corpus.fresh_hours))
        return owned.replace_attributes(freshness_policy=policy)

    sources = [asset for asset in assets if isinstance(asset, dg.SourceAsset)]
    others = [asset for asset in assets if not isinstance(asset, dg.SourceAsset)]
    return [*sources, *dg.map_asset_specs(described, others)]
