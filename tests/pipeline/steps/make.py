"""Makes single stages by their settings, without a recipe."""

from collections.abc import Collection, Sequence

from pipeline.plugins.settings import TransformParams
from pipeline.plugins.transforms import of_corpus
from pipeline.recipe.recipe import Recipe
from pipeline.recipe.sections import ShardParams
from pipeline.sources import SourceConfig
from pipeline.stages.bpe import TokenizerChoice
from pipeline.stages.dedup import DedupParams
from pipeline.stages.edits import EditParams
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES, QualityParams
from pipeline.steps.corpus.edit import Edited
from pipeline.steps.corpus.ingest import Raw
from pipeline.steps.corpus.quality import Quality
from pipeline.steps.corpus.scrub import Scrubbed
from pipeline.steps.corpus.transform import Transformed
from pipeline.steps.dedup.dedup import Dedup
from pipeline.steps.dedup.signatures import Signatures
from pipeline.steps.stages import is_asset, of_data
from pipeline.steps.tokens.shards import TokenShards
from pipeline.steps.tokens.tokenizer import FrozenTokenizer
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.manifest import Version
from pipeline.store.store import Store


def data(store: Store, engine: Engine, recipe: Recipe) -> None:
    """All assets of the data of a recipe, up to its token shards."""
    for key, stage in of_data(recipe).items():
        if is_asset(key):
            stage.make(store, engine)


def up_to_dedup(store: Store, engine: Engine, recipe: Recipe) -> None:
    for key, stage in of_data(recipe).items():
        if key == keys.TOKENIZER:
            return
        if is_asset(key):
            stage.make(store, engine)


def collect(store: Store, engine: Engine, corpus: str, source: SourceConfig, part_bytes: int) -> Version:
    return Raw(corpus, source, part_bytes).make(store, engine)


def up_to_quality(store: Store, engine: Engine, corpus: str, source: SourceConfig, part_bytes: int) -> None:
    """Reads, scrubs and judges a corpus, by the profile `docs`."""
    collect(store, engine, corpus, source, part_bytes)
    scrub(store, engine, corpus)
    judge(store, engine, corpus, PROFILES["docs"])


def transform(store: Store, engine: Engine, corpus: str, entries: Sequence[TransformParams]) -> Version:
    return Transformed(corpus, tuple(of_corpus(entries, corpus))).make(store, engine)


def edit(store: Store, engine: Engine, corpus: str, params: EditParams, read: str) -> Version:
    return Edited(corpus, read, params).make(store, engine)


def scrub(
    store: Store, engine: Engine, corpus: str, params: PiiParams | None = None, read: str | None = None
) -> Version:
    return Scrubbed(corpus, read or keys.raw(corpus), params or PiiParams()).make(store, engine)


def judge(store: Store, engine: Engine, corpus: str, params: QualityParams) -> Version:
    return Quality(corpus, params).make(store, engine)


def deduplicate(
    store: Store,
    engine: Engine,
    corpora: Sequence[str],
    params: DedupParams,
    decontaminated: bool = False,
    apart: Collection[str] = (),
    excluded: Sequence[str] = (),
) -> Version:
    signed = [Signatures(name, params, decontaminated, name not in apart) for name in corpora]
    return Dedup(params, signed, excluded).make(store, engine)


def tokenizer(
    store: Store,
    engine: Engine,
    recipe: str,
    corpora: Sequence[str],
    params: TokenizerChoice,
    validation_fraction: float,
    retrain: bool = False,
) -> Version:
    return FrozenTokenizer(recipe, corpora, params, validation_fraction).make(store, engine, retrain)


def tokenize(store: Store, engine: Engine, corpus: str, params: ShardParams) -> Version:
    return TokenShards(corpus, params).make(store, engine)
