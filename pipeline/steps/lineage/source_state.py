"""Compares what the source of a corpus holds now with what its token shards were made from."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from pipeline.recipe.corpora import Corpus
from pipeline.recipe.recipe import Recipe
from pipeline.sources.errors import OfflineError
from pipeline.steps.corpus import ingest
from pipeline.steps.stages import DATA_STAGES, made
from pipeline.store import keys
from pipeline.store.errors import PipelineError
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
class Observed:
    """The version of a source now (of one that cannot be looked at: why), since when the recipe uses the
    token shards made of it, and whether a run can continue from the quality verdicts in the store.
    """

    corpus: str
    version: str
    state: State
    in_use_since: int = 0
    is_judged: bool = False


def observe(store: Store, recipe: Recipe, corpus: Corpus) -> Observed:
    """Looks at the source without reading its documents. Offline, a corpus that was read counts as unchanged.
    Raises SourceError.
    """
    raw = ingest.last_read(store, corpus.name, corpus.source, recipe.raw.part_bytes)
    made_from = raw.manifest["inputs"]["source"] if isinstance(raw, Version) else None
    try:
        version = ingest.observe(store, corpus.name, corpus.source)
    except OfflineError:
        if made_from is None:
            raise
        version = made_from
    shards = keys.token_shards(corpus.name)
    if made_from is None or store.last_used(shards) is None:
        return Observed(corpus.name, version, State.NEW)
    unchanged = version == made_from
    state = State.UP_TO_DATE if unchanged and _followed(store, recipe, corpus.name) else State.OUTDATED
    judged = unchanged and _is_judged(store, corpus.name)
    return Observed(corpus.name, version, state, store.in_use_since(shards), judged)


def observe_all(store: Store, recipe: Recipe) -> list[Observed]:
    """All corpora; one that cannot be looked at hides no other."""
    found = []
    for corpus in recipe.corpora:
        try:
            found.append(observe(store, recipe, corpus))
        except PipelineError as error:
            judged = _is_judged(store, corpus.name)
            found.append(Observed(corpus.name, str(error), State.UNKNOWN, is_judged=judged))
    return found


def _is_judged(store: Store, corpus: str) -> bool:
    """Whether the store has verdicts by this recipe on what was last read."""
    try:
        store.current(keys.quality(corpus))
    except PipelineError:
        return False
    return True


def _followed(store: Store, recipe: Recipe, corpus: str) -> bool:
    """Whether the versions that the recipe used last, up to the token shards, were made from each other. A
    change of the recipe alone starts nothing.
    """
    # Contamination also changes with the evaluation sets, which each run observes itself.
    stages = [key for key in made(recipe, DATA_STAGES, corpus) if key != keys.contamination(corpus)]
    read = [*stages, keys.DEDUP]
    versions = {key: version for key in read if (version := store.last_used(key))}
    now = {key: version.data_version for key, version in versions.items()}
    decisions = versions[keys.DEDUP].parts if keys.DEDUP in versions else []
    now |= {keys.dedup_part(part.name): part.data_version for part in decisions}
    return all(
        now.get(name) == data_version
        for version in versions.values()
        for name, data_version in _made_from(version)
        if name in now or keys.is_dedup_part(name)
    )


def _made_from(version: Version) -> Iterator[tuple[str, str]]:
    """The keys that a version was made from, with their data versions. The inputs of token shards name parts
    of dedup without the corpus, which is added here.
    """
    for name, data_version in version.manifest["inputs"].items():
        if keys.is_dedup_part(name):
            corpus, part = keys.corpus_of_shards(version.key), name.partition("/")[2]
            yield keys.dedup_part(keys.decisions(corpus, part)), data_version
        else:
            yield name, data_version
