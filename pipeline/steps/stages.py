"""The stages of the data, from the sources to the token shards, and the graph that they form.

The version that follows from a recipe, the assets and their pages, the partitions of variants, the record in
a checkpoint's lineage and the sources that need work are read from these classes.
"""

from collections.abc import Iterator

from pipeline.recipe.recipe import Recipe
from pipeline.steps.corpus.decontamination import Contamination, EvaluationNgrams
from pipeline.steps.corpus.edit import Edited
from pipeline.steps.corpus.evaluation_texts import EvaluationWindows
from pipeline.steps.corpus.filters import Filtered
from pipeline.steps.corpus.ingest import Raw
from pipeline.steps.corpus.quality import Languages, Quality, Signals
from pipeline.steps.corpus.quality_model import QualityModel
from pipeline.steps.corpus.repeated_units import RepeatedUnits, UnitCounts
from pipeline.steps.corpus.scrub import Scrubbed
from pipeline.steps.corpus.transform import Transformed
from pipeline.steps.dedup.dedup import Dedup
from pipeline.steps.dedup.signatures import Signatures
from pipeline.steps.stage import CorpusStage, DataStage
from pipeline.steps.tokens.shards import TokenShards
from pipeline.steps.tokens.token_index import TokenIndex
from pipeline.steps.tokens.tokenizer import FrozenTokenizer
from pipeline.store import keys
from pipeline.store.keys import Key

# Up to the token shards, in the order in which they are made: what the lineage of a checkpoint records.
DATA_STAGES: tuple[type[DataStage], ...] = (
    Raw,
    Transformed,
    UnitCounts,
    RepeatedUnits,
    Edited,
    Scrubbed,
    QualityModel,
    Signals,
    Languages,
    Filtered,
    Quality,
    EvaluationNgrams,
    Contamination,
    Signatures,
    Dedup,
    FrozenTokenizer,
    TokenShards,
)


def all_stages() -> tuple[type[DataStage], ...]:
    """The stages of the data, and the two stages from which no data is made."""
    return (EvaluationWindows, *DATA_STAGES, TokenIndex)


def of_data(recipe: Recipe) -> dict[Key, DataStage]:
    """The stages of the data that a recipe has, by key, in their order."""
    return {stage.key: stage for kind in DATA_STAGES for stage in kind.all_of(recipe)}


def of_corpus(recipe: Recipe, corpus: str) -> dict[Key, DataStage]:
    """The stages of the data of one corpus. Finding those of all corpora takes as long as there are corpora,
    and a run asks for every corpus.
    """
    kinds = (kind for kind in DATA_STAGES if issubclass(kind, CorpusStage))
    return {stage.key: stage for kind in kinds for stage in kind.of(recipe, corpus)}


def of_recipe(recipe: Recipe) -> dict[Key, DataStage]:
    """All stages of a recipe by key, and evaluation texts and sets as sources deliver them (no assets)."""
    found = {stage.key: stage for kind in all_stages() for stage in kind.all_of(recipe)}
    texts = (windows.raw for windows in EvaluationWindows.all_of(recipe))
    sets = (raw for ngrams in EvaluationNgrams.all_of(recipe) for raw in ngrams.raws)
    return found | {raw.key: raw for raw in (*texts, *sets)}


def kind_of(key: Key) -> type[DataStage] | None:
    """The class of the stage of a key; None for a key that no recipe decides."""
    return next((kind for kind in all_stages() if kind.name == key.stage), None)


def is_asset(key: Key) -> bool:
    """Whether a key is one of an asset; it is not if it is made with the asset of another one."""
    return asset_of(key) == key


def asset_of(key: Key) -> Key:
    """The key of the asset that makes `key`: mostly itself."""
    kind = kind_of(key)
    return kind.made_within.of(key.corpus) if kind and kind.made_within else key


def assets_before(stages: dict[Key, DataStage], key: Key) -> Iterator[Key]:
    """The keys of the assets that Dagster makes before a stage: for one that is no asset, those before it."""
    stage = stages.get(key)
    for before in [*stage.inputs, *stage.scheduled_after] if stage else []:
        yield from [before] if is_asset(before) else assets_before(stages, before)


def final_assets(recipe: Recipe) -> list[Key]:
    """The assets that are in the lineage of a checkpoint and that no stage of the data reads."""
    stages = of_data(recipe)
    read = {other for key in stages if is_asset(key) for other in assets_before(stages, key)}
    return [key for key in stages if is_asset(key) and key not in read]


def made_of_one_corpus(recipe: Recipe, corpus: str) -> list[Key]:
    """The source of a corpus and the assets that nothing else is needed for."""
    stages, found = of_corpus(recipe, corpus), [keys.source(corpus)]
    for key in stages:
        if is_asset(key) and set(assets_before(stages, key)) <= set(found):
            found.append(key)
    return found
