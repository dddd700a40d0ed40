"""The recipe: one YAML file that describes an experiment from corpora to model."""

import os
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, PrivateAttr, ValidationError, field_validator, model_validator

from pipeline.plugins.filters import Filter
from pipeline.plugins.loading import PluginError, make_importable
from pipeline.plugins.settings import TransformParams, check_names
from pipeline.plugins.transforms import Transform, of_corpus
from pipeline.recipe.check_limits import CheckLimits, DedupGuard
from pipeline.recipe.decontamination import Decontamination
from pipeline.recipe.launch import LaunchParams
from pipeline.recipe.mixture import MixtureParams
from pipeline.recipe.shards import ShardParams
from pipeline.sources import SourceConfig
from pipeline.sources.errors import SourceError
from pipeline.sources.hub.catalogue import short_form
from pipeline.sources.listing import Paths
from pipeline.sources.python_code import PythonConfig
from pipeline.stages.dedup import DedupParams
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES, QualityParams
from pipeline.stages.tokenizer import KINDS, ExistingTokenizer, TokenizerChoice, TokenizerParams
from pipeline.store import keys
from pipeline.store.engine import EngineParams
from pipeline.store.errors import PipelineError
from pipeline.store.params import Params
from trainer.config import TrainingConfig

RECIPES = Path(__file__).parents[1] / "recipes"
RECIPE_VARIABLE = "GROUNDWORK_RECIPE"
# sections that a name alone can stand for, and the key that takes it
PRESETS = {"quality": "profile", "model": "size"}


# how YAML writes what is not of the right type, by Pydantic's name of the error
WRITTEN_AS = {
    "tuple_type": "a list, `[...]`",
    "list_type": "a list, `[...]`",
    "dict_type": "a mapping, `{key: value}`",
    "model_type": "a mapping, `{key: value}`",
    "model_attributes_type": "a mapping, `{key: value}`",
}


class RecipeError(PipelineError):
    """The recipe cannot be used; the message says where and what to change."""


class Corpus(Params):
    """One corpus: where it comes from, and how much of the training mixture it makes."""

    name: str = Field(
        pattern=r"^[a-z][a-z0-9_]*$",
        description="Name of the corpus and of its assets: lower-case letters, digits and `_`, beginning "
        "with a letter.",
    )
    source: SourceConfig = Field(description="Where its documents come from, one of the source kinds.")
    weight: float | None = Field(
        None,
        gt=0,
        description="Weight in the training mixture, relative to those of the other corpora. Set it for "
        "every corpus or for none; when not set, `mixture` decides.",
    )


class RawParams(Params):
    """How a corpus is cut into parts."""

    part_bytes: int = Field(
        128_000_000,
        ge=1_000,
        description="UTF-8 bytes of text per part, the unit of work of every data stage. A worker holds "
        "about one part in memory: lower it when memory runs out.",
    )


class Recipe(Params):
    """Everything that decides what a run makes."""

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9_-]*$",
        description="Name of the experiment: lower-case letters, digits, `_` and `-`.",
    )
    corpora: tuple[Corpus, ...] = Field(
        min_length=1,
        description="The corpora, each with a name and a source. Short forms are ready-made corpora and "
        "data sets of the hub, `- owner/name`; `- tinystories:1000` takes the first 1,000 documents. Of "
        "duplicates in two corpora, the document of the corpus listed first is kept.",
    )
    raw: RawParams = Field(RawParams(), description="How a corpus is cut into parts.")
    transforms: tuple[TransformParams, ...] = Field(
        (),
        exclude_if=lambda transforms: not transforms,
        description="Functions of your own that rewrite texts before they are scrubbed, in this order: "
        "docs/your-own-code.md.",
    )
    scrub: PiiParams = Field(PiiParams(), description="Which personal data and secrets are replaced.")
    quality: QualityParams = Field(
        PROFILES["default"],
        description="Thresholds of the quality rules. A profile can be named alone, `quality: docs`, or "
        "with changes, `quality: {profile: docs, min_words: 30}`; thresholds without a profile "
        "change `default`.",
    )
    decontamination: Decontamination | None = Field(
        None, description="Evaluation sets to search for in the training text. When not set, none is."
    )
    dedup: DedupParams = Field(DedupParams(), description="What counts as a duplicate.")
    dedup_guard: DedupGuard = Field(DedupGuard(), description="How much deduplication may remove.")
    checks: CheckLimits = Field(CheckLimits(), description="What the asset checks allow.")
    tokenizer: TokenizerChoice = Field(
        TokenizerParams(), description="A tokenizer to train, or with `from` an existing one."
    )
    shards: ShardParams = Field(ShardParams(), description="How documents become token files.")
    mixture: MixtureParams = Field(
        MixtureParams(), description="How corpora without weights are mixed, and how often they repeat."
    )
    training: TrainingConfig = Field(description="The model and how it is trained.")
    engine: EngineParams = Field(EngineParams(), description="How many processes prepare the data.")
    launch: LaunchParams = Field(LaunchParams(), description="How the trainer is started.")
    # private: where a recipe lies is no part of what it says
    _directory: Path = PrivateAttr(default_factory=Path)

    @field_validator("corpora", mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        """`- tinystories:1000`: a ready-made corpus, or a data set of the hub, and how many documents of
        it.
        """
        if not isinstance(value, list | tuple):
            return value
        try:
            return [
                dict(zip(("name", "source"), short_form(corpus), strict=True))
                if isinstance(corpus, str)
                else corpus
                for corpus in value
            ]
        except SourceError as error:
            raise ValueError(str(error)) from None

    @field_validator("quality", mode="before")
    @classmethod
    def _named_profile(cls, value: Any) -> Any:
        """`quality: docs`, or `quality: {profile: docs, min_words: 30}`: a named profile and what differs
        from it.
        """
        if isinstance(value, str):
            value = {"profile": value}
        if not isinstance(value, dict) or "profile" not in value:
            return value
        changes = dict(value)
        profile = changes.pop("profile")
        if profile not in PROFILES:
            raise ValueError(f"there is no profile {profile!r}; there are {', '.join(PROFILES)}")
        return PROFILES[profile].model_dump() | changes

    @model_validator(mode="after")
    def _names_are_unique(self) -> "Recipe":
        names = [corpus.name for corpus in self.corpora]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two corpora are named {twice[0]!r}; every corpus needs a name of its own")
        return self

    @model_validator(mode="after")
    def _transforms_have_names_and_corpora(self) -> "Recipe":
        check_names(self.transforms, set())
        for entry in self.transforms:
            unknown = [name for name in entry.corpora or () if name not in self.corpus_names]
            if unknown:
                raise ValueError(
                    f"transform {entry.name!r}: there is no corpus {unknown[0]!r}; there are "
                    f"{', '.join(self.corpus_names)}"
                )
        return self

    @model_validator(mode="after")
    def _weights_are_comparable(self) -> "Recipe":
        unweighted = [corpus.name for corpus in self.corpora if corpus.weight is None]
        if unweighted and len(unweighted) < len(self.corpora):
            raise ValueError(
                f"corpus {unweighted[0]!r} has no weight though others have: set a weight for every corpus, "
                "or for none"
            )
        if not unweighted and self.mixture.temperature != 1:
            raise ValueError(
                "mixture.temperature weighs corpora that have no weight, but all have one: leave out either"
            )
        return self

    @model_validator(mode="after")
    def _stages_read_what_is_there(self) -> "Recipe":
        self.training.check_corpora(self.corpus_names)
        weighed = [stage.name for stage in self.training.stages if stage.weights]
        if weighed and self.mixture.max_epochs is not None:
            raise ValueError(
                f"mixture.max_epochs limits shares, but stage {weighed[0]!r} sets its own in `weights`: "
                "leave out either"
            )
        return self

    @property
    def weights(self) -> dict[str, float | None]:
        return {corpus.name: corpus.weight for corpus in self.corpora}

    @property
    def corpus_names(self) -> list[str]:
        return [corpus.name for corpus in self.corpora]

    def is_transformed(self, corpus: str) -> bool:
        """Whether transforms rewrite the texts of a corpus."""
        return bool(of_corpus(self.transforms, corpus))

    @property
    def transform_chains(self) -> list[list[Transform]]:
        """The different chains of transforms that corpora pass, in the order of the corpora."""
        chains: list[list[Transform]] = []
        for name in self.corpus_names:
            chain = of_corpus(self.transforms, name)
            if chain and chain not in chains:
                chains.append(chain)
        return chains

    def made_before_dedup(self, corpus: str) -> list[str]:
        """The keys of what this recipe makes of a corpus for dedup, in order."""
        optional = {"transformed": self.is_transformed(corpus), "languages": bool(self.quality.languages)}
        filters = [entry.name for entry in self.quality.filters]
        return keys.before_dedup(corpus, [name for name, wanted in optional.items() if wanted], filters)

    @property
    def removes_contaminated(self) -> bool:
        """Whether documents that quote an evaluation set go."""
        return self.decontamination is not None and self.decontamination.action == "remove"

    def corpus(self, name: str) -> Corpus:
        return next(corpus for corpus in self.corpora if corpus.name == name)

    def path(self, named: Path) -> Path:
        """A path that the recipe names, as it is on this machine."""
        return self._directory / named.expanduser()


def recipe_path(named: str | None = None) -> Path:
    """The recipe called `named` (a path, or the name of one that ships), else the one in GROUNDWORK_RECIPE,
    else the default one.
    """
    named = named or os.environ.get(RECIPE_VARIABLE) or "default"
    shipped = RECIPES / f"{named}.yaml"
    return shipped if shipped.exists() else Path(named)


def load_recipe(path: Path, overrides: dict[str, Any] | None = None) -> Recipe:
    """Reads and checks a recipe, with `overrides` laid over it (sections merge, everything else is replaced).
    Raises RecipeError.
    """
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        shipped = ", ".join(sorted(found.stem for found in RECIPES.glob("*.yaml")))
        raise RecipeError(
            f"{path}: no such recipe. {RECIPE_VARIABLE} takes the path of a YAML file, or one of: {shipped}"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        place = (
            f"line {error.problem_mark.line + 1}: "
            if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark
            else ""
        )
        problem = error.problem if isinstance(error, yaml.MarkedYAMLError) else " ".join(str(error).split())
        raise RecipeError(f"{path}: not valid YAML: {place}{problem}") from error
    if not isinstance(settings, dict):
        raise RecipeError(f"{path}: a recipe is a mapping with at least `name`, `corpora` and `training`")
    try:
        recipe = Recipe.model_validate(merged(settings, overrides or {}))
    except ValidationError as error:
        raise RecipeError(f"{path}: {_explained(error)}") from None
    _check_own_code(recipe, path)
    return _anchored(recipe, path.parent.absolute())


def _check_own_code(recipe: Recipe, path: Path) -> None:
    """Imports the user's code that a recipe names, from beside the recipe or wherever Python finds it."""
    corpora = {f"corpora.{number}.source": corpus.source for number, corpus in enumerate(recipe.corpora)}
    sets = recipe.decontamination.sets if recipe.decontamination else ()
    corpora |= {f"decontamination.sets.{number}.source": one.source for number, one in enumerate(sets)}
    named: dict[str, Any] = {
        **{where: source for where, source in corpora.items() if isinstance(source, PythonConfig)},
        **{f"transforms.{number}": Transform(entry) for number, entry in enumerate(recipe.transforms)},
        **{f"quality.filters.{n}": Filter(entry) for n, entry in enumerate(recipe.quality.filters)},
    }
    if named:
        make_importable(path.parent.absolute())
    for where, code in named.items():
        try:
            code.check()
        except PluginError as error:
            raise RecipeError(f"{path}: {where}: {error}") from None


def _anchored(recipe: Recipe, directory: Path) -> Recipe:
    """Relative paths are relative to the recipe, wherever the command is typed."""
    corpora = tuple(
        corpus.model_copy(update={"source": corpus.source.anchored(directory)})
        if isinstance(corpus.source, Paths)
        else corpus
        for corpus in recipe.corpora
    )
    tokenizer = (
        recipe.tokenizer.anchored(directory)
        if isinstance(recipe.tokenizer, ExistingTokenizer)
        else recipe.tokenizer
    )
    decontamination = recipe.decontamination and recipe.decontamination.anchored(directory)
    anchored = recipe.model_copy(
        update={"corpora": corpora, "tokenizer": tokenizer, "decontamination": decontamination}
    )
    anchored._directory = directory
    return anchored


def merged(settings: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """`overrides` laid over `settings`: sections merge, everything else is replaced. A named preset is a
    section.
    """
    result = dict(settings)
    for key, value in overrides.items():
        section = result.get(key)
        if key in PRESETS and isinstance(section, str):
            section = {PRESETS[key]: section}
        result[key] = (
            merged(section, value) if isinstance(section, dict) and isinstance(value, dict) else value
        )
    return result


def _explained(error: ValidationError) -> str:
    problems = error.errors()
    # A list with one bad item is also reported as too short.
    causes = [
        one
        for one in problems
        if not any(
            len(other["loc"]) > len(one["loc"]) == _shared(one["loc"], other["loc"]) for other in problems
        )
    ]
    return "; ".join(
        _explain_one(
            problem["loc"], problem["type"], problem["msg"], problem.get("ctx", {}), problem["input"]
        )
        for problem in causes
    )


def _shared(left: Sequence[int | str], right: Sequence[int | str]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False))))


def _explain_one(
    location: Iterable[int | str], kind: str, message: str, context: dict[str, Any], given: Any
) -> str:
    where = ".".join(str(step) for step in location if step not in KINDS) or "the recipe"
    if kind == "missing":
        return f"{where} is missing"
    if kind == "union_tag_invalid":
        return (
            f"{where}.kind {context['tag']!r} is not a kind of corpus; there are {context['expected_tags']}"
        )
    if kind == "string_type" and isinstance(given, int | float):
        return f"{where}: {given} is not a text: write it in quotes, '{given}'"
    if kind in WRITTEN_AS:
        instead = "a mapping" if isinstance(given, dict) else f"{given!r:.60}"
        return f"{where}: write {WRITTEN_AS[kind]}, not {instead}"
    return f"{where}: {message.removeprefix('Value error, ')}"
