"""Compares what the source of a corpus holds now with what its token shards were made from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from pipeline.recipe.recipe import Recipe
from pipeline.sources.source import OfflineError
from pipeline.steps.corpus.ingest import Raw
from pipeline.steps.stages import made_of_one_corpus, of_corpus
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.keys import Key
from pipeline.store.manifest import Version
from pipeline.store.store import Store


class State(Enum):
    """The state of a corpus."""

    NEW = auto()  # this recipe never took it to token shards
    UP_TO_DATE = auto()
    # its source has changed, or a run that should have followed a change did not come to its end
    OUTDATED = auto()
    UNKNOWN = auto()  # its source cannot be looked at now


@dataclass(frozen=True)
class ObservedSource:
    """What a look at the source of a corpus showed. `version` is the version of the source now; of a source
    that cannot be looked at, the reason. The recipe uses the token shards made of the corpus since
    `in_use_since`. A run need not make the assets in `ready`, as the store has them already.
    """

    corpus: str
    version: str
    state: State
    in_use_since: int = 0
    ready: Sequence[Key] = ()


def observe(store: Store, recipe: Recipe, corpus: str) -> ObservedSource:
    """Looks at the source, not its documents. Offline it counts as unchanged. Raises SourceError."""
    (raw,) = Raw.of(recipe, corpus)
    last = raw.work(store)
    made_from = last.manifest["inputs"]["source"] if isinstance(last, Version) else None
    try:
        version = raw.observe(store)
    except OfflineError:
        if made_from is None:
            raise
        version = made_from
    shards = keys.token_shards(corpus)
    if made_from is None or store.last_used(shards) is None:
        return ObservedSource(corpus, version, State.NEW)
    unchanged = version == made_from
    state = State.UP_TO_DATE if unchanged and _followed(store, recipe, corpus) else State.OUTDATED
    ready = _ready(store, recipe, corpus) if unchanged else ()
    return ObservedSource(corpus, version, state, store.in_use_since(shards), ready)


def observe_all(store: Store, recipe: Recipe) -> list[ObservedSource]:
    """Observes all corpora. One whose source cannot be looked at does not hide the others."""
    found = []
    for corpus in recipe.corpus_names:
        try:
            found.append(observe(store, recipe, corpus))
        except PipelineError as error:
            ready = _ready(store, recipe, corpus)
            found.append(ObservedSource(corpus, str(error), State.UNKNOWN, ready=ready))
    return found


def _ready(store: Store, recipe: Recipe, corpus: str) -> Sequence[Key]:
    """The source of a corpus and all assets made of it alone, if the store has them as last read."""
    source, *stages = made_of_one_corpus(recipe, corpus)
    try:
        for key in stages:
            store.current(key)
    except PipelineError:
        return ()
    return source, *stages


def _followed(store: Store, recipe: Recipe, corpus: str) -> bool:
    """Whether the versions that the recipe used last, up to the token shards, were made from each other. A
    change of the recipe alone starts nothing.
    """
    # What also changes with the evaluation sets is left out: each run observes them itself.
    stages = [
        key for key, stage in of_corpus(recipe, corpus).items() if keys.EVALUATION_NGRAMS not in stage.inputs
    ]
    versions = {key: version for key in (*stages, keys.DEDUP) if (version := store.last_used(key))}
    now = {key: version.data_version for key, version in versions.items()}
    decisions = versions[keys.DEDUP].parts if keys.DEDUP in versions else []
    now |= {Key(keys.DEDUP, name=part.name): part.data_version for part in decisions}
    return all(
        now.get(key) == data_version
        for version in versions.values()
        for key, data_version in _inputs(version)
        if key in now or key.is_decided_part
    )


def _inputs(version: Version) -> Iterator[tuple[Key, str]]:
    """The keys that a version was made from, with their data versions. The inputs of token shards name parts
    of dedup without the corpus, which is added here.
    """
    for name, data_version in version.manifest["inputs"].items():
        key = Key.from_path(name)
        if key.is_decided_part:
            key = Key(keys.DEDUP, name=keys.DecidedPart(version.key.corpus, key.name).name)
        yield key, data_version
