"""What a stage is: one class in one file, whose fields are all the settings that decide what it makes.

`Scrubbed.of(recipe, "wiki")` lists what the corpus has of this class in a recipe.
`Scrubbed("wiki", documents, params)` is the same stage written out. Assets, lineage, variants, `gc` and the
sensors are loops over the classes in `pipeline/steps/stages.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from pipeline.recipe.recipe import Recipe
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.keys import Key
from pipeline.store.manifest import Version
from pipeline.store.parts import BatchStep, derive, part_tasks
from pipeline.store.store import Store
from pipeline.store.work import Work


@dataclass(frozen=True)
class Page:
    """What the UI shows of a stage that is an asset: `{corpus}` and `{source}`, the kind of its source, may
    stand in any text.

    `numbers` are counts of a version by their label. `breakdowns` are tables of the counts that begin with a
    prefix. `job` is the first job that makes the stage.
    """

    description: str
    kinds: tuple[str, ...] = ("numba", "parquet")
    group: str = "{corpus}"
    job: str = "corpus"
    numbers: Mapping[str, str] = field(default_factory=dict)
    breakdowns: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def naming(self, names: Mapping[str, str]) -> Self:
        """The page with these names in its texts."""
        return replace(
            self,
            description=self.description.format(**names),
            kinds=tuple(kind.format(**names) for kind in self.kinds),
            group=self.group.format(**names),
        )


class Stage(ABC):
    """A product that follows from a recipe. Equal stages make equal versions of the same inputs."""

    name: ClassVar[str]  # of the stage in its keys
    made_within: ClassVar[Key | None] = None  # the asset in whose step it is made, if it is no asset itself

    @classmethod
    @abstractmethod
    def all_of(cls, recipe: Recipe) -> Iterable[Self]:
        """The stages of this class that a recipe has."""

    @property
    def key(self) -> Key:
        """The key of its versions in the store."""
        return Key(self.name)

    @property
    def inputs(self) -> Sequence[Key]:
        """The keys whose versions it is made from: their data versions are the inputs of its work."""
        return ()

    @property
    def deciding(self) -> Any:
        """All settings that decide what it makes: where they are equal, variants share it."""
        return self

    @abstractmethod
    def work(self, store: Store) -> Version | Work:
        """The work that makes it or, if none can be computed, its version. Raises StoreError."""


@dataclass(frozen=True)
class RecipeStage(Stage):
    """A stage that every recipe has once, and that all of the recipe may decide."""

    recipe: Recipe

    @classmethod
    def all_of(cls, recipe: Recipe) -> Iterable[Self]:
        return [cls(recipe)]


class DataStage(Stage):
    """A stage between the sources and the token shards."""

    version: ClassVar[str]  # of its code, for the UI; that of a version is in its work
    page: ClassVar[Page | None] = None

    @abstractmethod
    def make(self, store: Store, engine: Engine) -> Version:
        """Makes the version, or finds it."""

    @property
    def names(self) -> dict[str, str]:
        """What the texts of its page may name."""
        return {}

    @property
    def scheduled_after(self) -> Sequence[Key]:
        """Assets that Dagster makes first although this stage reads none of them: in another variant of the
        recipe it may. They are no inputs and leave its fingerprint alone.
        """
        return ()


@dataclass(frozen=True)
class CorpusStage(DataStage):
    """A stage of one corpus."""

    corpus: str

    @classmethod
    def all_of(cls, recipe: Recipe) -> Iterable[Self]:
        return (stage for corpus in recipe.corpus_names for stage in cls.of(recipe, corpus))

    @classmethod
    def of(cls, recipe: Recipe, corpus: str) -> Sequence[Self]:
        """What a corpus has of this class: by default one stage without settings."""
        return [cls(corpus)]

    @property
    def key(self) -> Key:
        return Key(self.name, self.corpus)

    @property
    def names(self) -> dict[str, str]:
        return {"corpus": self.corpus}


class BatchStage(CorpusStage):
    """A stage that makes tables from each document alone, batch by batch: by default from scrubbed text."""

    @property
    def documents(self) -> Key:
        """The key of the documents."""
        return keys.scrubbed(self.corpus)

    @property
    def inputs(self) -> Sequence[Key]:
        return [self.documents]

    @abstractmethod
    def step(self, store: Store) -> BatchStep:
        """What is done with each batch."""

    def work(self, store: Store) -> Work:
        inputs = store.data_versions([self.documents])
        return Work(self.key, self.code_version, self.settings(store), inputs)

    @property
    def code_version(self) -> str:
        """The version of the code that decides the tables, in the fingerprint."""
        return self.version

    def settings(self, store: Store) -> Any:
        """What decides the tables, in the fingerprint."""
        return {}

    def make(self, store: Store, engine: Engine) -> Version:
        work, documents = self.work(store), store.current(self.documents)
        tasks = part_tasks(work, [(documents, "documents")])
        return derive(store, engine, work, tasks, self.step(store).write_part)
