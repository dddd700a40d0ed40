"""Compares what the source of a corpus holds now with what its token shards were made from."""

from dataclasses import dataclass
from enum import Enum, auto

from pipeline.recipe.recipe import Corpus, Recipe
from pipeline.sources.errors import OfflineError
from pipeline.steps.corpus import ingest
from pipeline.store import consistency, keys
from pipeline.store.errors import PipelineError
from pipeline.store.versions import Store


class State(Enum):
    """The state of a corpus."""

    NEW = auto()  # never taken to token shards
    UP_TO_DATE = auto()
    # its source has changed, or a run that should have followed a change did not come to its end
    OUTDATED = auto()
    UNKNOWN = auto()  # its source cannot be looked at now


@dataclass(frozen=True)
class Observed:
    """The version of a source now (of one that cannot be looked at: why) and since when the token shards made
    of it are in use.
    """

    corpus: str
    version: str
    state: State
    in_use_since: int = 0


def observe(store: Store, corpus: Corpus) -> Observed:
    """Looks at the source without reading its documents. Offline, a corpus that was read counts as unchanged.
    Raises SourceError.
    """
    read, shards = keys.raw(corpus.name), keys.token_shards(corpus.name)
    made_from = store.current(read).manifest["inputs"]["source"] if store.has(read) else None
    try:
        version = ingest.observe(store, corpus.name, corpus.source)
    except OfflineError:
        if made_from is None:
            raise
        version = made_from
    if made_from is None or not store.has(shards):
        return Observed(corpus.name, version, State.NEW)
    state = State.UP_TO_DATE if version == made_from and _followed(store, corpus.name) else State.OUTDATED
    return Observed(corpus.name, version, state, store.in_use_since(shards))


def observe_all(store: Store, recipe: Recipe) -> list[Observed]:
    """All corpora; one that cannot be looked at hides no other."""
    found = []
    for corpus in recipe.corpora:
        try:
            found.append(observe(store, corpus))
        except PipelineError as error:
            found.append(Observed(corpus.name, str(error), State.UNKNOWN))
    return found


def _followed(store: Store, corpus: str) -> bool:
    """Whether everything up to the token shards was made from the raw documents in use."""
    made = [*keys.before_dedup(corpus), keys.DEDUP, keys.token_shards(corpus)]
    try:
        versions = {key: store.current(key) for key in made}
        inputs = {key for version in versions.values() for key in version.manifest["inputs"]}
        optional = {key for key in inputs if keys.is_of_corpus(key, corpus)} - versions.keys()
        consistency.check(versions | {key: store.current(key) for key in optional})
    except PipelineError:
        return False
    return True
