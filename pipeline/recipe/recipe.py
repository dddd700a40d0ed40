"""The recipe: one YAML file that describes an experiment from corpora to model."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, ValidationError, field_validator, model_validator

from pipeline.plugins.settings import OWN_SCORE, TransformParams, check_names
from pipeline.plugins.transforms import Transform, of_corpus
from pipeline.recipe.evaluation import (
    Decontamination,
    EvaluationParams,
    repeated_name,
    with_benchmarks_as_sets,
)
from pipeline.recipe.overrides import leaves, with_own_rules
from pipeline.recipe.post_training import DPO, SFT, PostTraining, SftParams, Tuning, training_settings
from pipeline.recipe.problems import explained
from pipeline.recipe.sections import (
    CheckLimits,
    Corpus,
    DedupGuard,
    LaunchParams,
    MixtureParams,
    Quality,
    RawParams,
    RetentionParams,
    Rules,
    ShardParams,
)
from pipeline.sources.hub.catalogue import short_form
from pipeline.sources.source import SourceError
from pipeline.stages.bpe import TokenizerChoice, TokenizerParams
from pipeline.stages.dedup import DedupParams
from pipeline.stages.edits import EditParams
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES
from pipeline.stages.quality_model import QualityModelParams
from pipeline.store import seeds, variant_names
from pipeline.store.cleanup.runs import Limits
from pipeline.store.engines.local import EngineParams
from pipeline.store.errors import PipelineError
from pipeline.store.params import Params
from trainer.config import TrainingConfig, unused

RECIPES = Path(__file__).parents[1] / "recipes"


class RecipeError(PipelineError):
    """The recipe is invalid; the message says where, and what to change."""


STORE_ADDRESS = r"^s3://[a-z0-9][a-z0-9.-]+(/[^/#?]+)*/?$"
BASE = seeds.BASE
# The sections that hold for what comes after the pretraining, too.
KEPT = {"name", "raw", "scrub", "decontamination", "dedup", "dedup_guard", "checks", "shards", "evaluation"}
KEPT |= {"store", "engine", "launch", "retention"}
VariantName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


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
        description="Functions of your own that rewrite texts before they are scrubbed, in this order: "
        "docs/your-own-code.md.",
    )
    edits: EditParams = Field(
        EditParams(),
        exclude_if=lambda edits: not edits.cut,  # as in recipes written before there were any
        description="Lines that are cut out of the texts, and kept beside them.",
    )
    scrub: PiiParams = Field(PiiParams(), description="Which personal data and secrets are replaced.")
    quality: Quality = Field(
        PROFILES["default"],
        description="Thresholds of the quality rules. A profile can be named alone, `quality: docs`, or "
        "with changes, `quality: {profile: docs, min_words: 30}`; thresholds without a profile "
        "change `default`.",
    )
    quality_model: QualityModelParams | None = Field(
        None, exclude_if=lambda model: model is None, description="A classifier: docs/own-text.md."
    )
    decontamination: Decontamination | None = Field(
        None,
        description="Evaluation sets to search for in the training text; `benchmarks` stands for those of "
        "`evaluation`, benchmarks and texts: `decontamination: benchmarks`. When not set, none is.",
    )
    dedup: DedupParams = Field(DedupParams(), description="What counts as a duplicate.")
    dedup_guard: DedupGuard = Field(DedupGuard(), description="How much deduplication may remove.")
    checks: CheckLimits = Field(CheckLimits(), description="What the asset checks allow.")
    tokenizer: TokenizerChoice = Field(
        TokenizerParams(), description="A tokenizer to train, or with `from` an existing one."
    )
    shards: ShardParams = Field(ShardParams(), description="How documents become token files.")
    token_index: bool = Field(
        False,
        exclude_if=lambda index: not index,
        description="Whether `pretrain` also makes the index in which `python -m pipeline trace` looks for "
        "text: 4 bytes a token. Without it, the first `trace` does: docs/trace.md.",
    )
    mixture: MixtureParams = Field(
        MixtureParams(), description="How corpora without weights are mixed, and how often they repeat."
    )
    training: TrainingConfig = Field(description="The model and how it is trained.")
    evaluation: EvaluationParams = Field(
        EvaluationParams(),
        description="What a trained model is measured by, besides the loss on held-out text.",
    )
    store: str | None = Field(
        None,
        pattern=STORE_ADDRESS,
        exclude=True,  # it changes nothing that is made
        description="The address of a bucket that holds everything that is made, such as "
        "`s3://bucket/groundwork`: docs/bucket.md. GROUNDWORK_STORE takes precedence. When neither is set, "
        "a directory in Dagster's home.",
    )
    engine: EngineParams = Field(EngineParams(), description="How many processes prepare the data.")
    launch: LaunchParams = Field(LaunchParams(), description="How the trainer is started.")
    retention: RetentionParams = Field(
        RetentionParams(), description="How many training runs and checkpoints stay on disk."
    )
    variants: dict[VariantName, dict[str, Any]] = Field(
        {},
        exclude=True,  # the content of each variant is that of its own recipe
        description="Experiments beside this recipe: a name, and the settings that differ, nested as in a "
        "recipe; corpora by name, `corpora: {books: {weight: 2}}`. With several values for settings, "
        "`lr: {each: [1e-3, 3e-3]}`, a name stands for a variant with each combination. Each variant is a "
        "partition of the assets that depend on what it changes, and shares all others: docs/variants.md.",
    )
    post_training: PostTraining = Field(
        PostTraining(),
        exclude_if=lambda stages: not stages.sections,
        description="Stages after the pretraining: instruction tuning, `sft`, and preference tuning, `dpo`: "
        "docs/chat.md.",
    )
    seeds: int = Field(
        1,
        ge=1,
        exclude=True,  # each seed is a variant
        description="Runs of the recipe and of each variant that differ in `training.seed` alone, `seed` and "
        "those after it; a variant may set its own number. A section of `post_training` that sets a seed "
        "counts on from that one. Runs share everything before training, and `python -m pipeline decide` "
        "needs three of them: docs/decide.md.",
    )
    # private, because neither the path of a recipe nor the name of a variant is part of its content
    _file: Path = PrivateAttr(default_factory=Path)
    _variant: str = PrivateAttr("")
    # the recipe whose model this one goes on with, and the section of it that this one is
    _base: "Recipe | None" = PrivateAttr(None)
    _section: str = PrivateAttr("")
    _tuning: Tuning | None = PrivateAttr(None)

    _benchmarks_as_sets = model_validator(mode="before")(with_benchmarks_as_sets)
    _own_rules = model_validator(mode="before")(with_own_rules)

    @field_validator("corpora", mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        """`- tinystories:1000`: a ready-made corpus or a data set on the Hub, and how many documents."""
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

    @model_validator(mode="after")
    def _names_are_unique(self) -> "Recipe":
        if repeated := repeated_name(self.corpus_names):
            raise ValueError(f"two corpora are named {repeated!r}: rename one of them")
        return self

    @model_validator(mode="after")
    def _named_corpora_are_known(self) -> "Recipe":
        check_names(self.transforms, set())
        for name in self.mixture.search.target or () if self.mixture.search else ():
            if name in self.excluded:
                raise ValueError(f"mixture.search.target: corpus {name!r} has `train: false`: leave it out")
        named: dict[str, Iterable[str] | None] = {
            f"transform {entry.name!r}": entry.corpora for entry in self.transforms
        }
        if self.mixture.search:
            named["mixture.search.target"] = self.mixture.search.target
        for side, names in self.quality_model or ():
            named[f"quality_model.{side}"] = names
        for place, names in named.items():
            if unknown := [name for name in names or () if name not in self.corpus_names]:
                known = ", ".join(self.corpus_names)
                raise ValueError(f"{place}: unknown corpus {unknown[0]!r}; choose from {known}")
        return self

    @model_validator(mode="after")
    def _has_the_model_that_filters_read(self) -> "Recipe":
        filters = (entry for name in self.corpus_names for entry in self.rules(name).quality.filters)
        reads = next((entry.name for entry in filters if entry.python == OWN_SCORE), None)
        if reads and not self.quality_model:
            raise ValueError(
                f"filter {reads!r} reads the recipe's `quality_model`, which is missing: add `quality_model: "
                "{positive: [...], negative: [...]}`, or name the file of a classifier in `fasttext`"
            )
        return self

    @model_validator(mode="after")
    def _excluded_corpora_come_first(self) -> "Recipe":
        order = [corpus.train for corpus in self.corpora]
        if not any(order):
            raise ValueError(
                "corpora: none is trained on, since each has `train: false`: leave it out of one"
            )
        if order != sorted(order):
            name = self.corpora[order.index(False, order.index(True))].name
            raise ValueError(
                f"corpus {name!r} has `train: false` and removes nothing from the corpora before it, whose "
                "documents stay of duplicates: list it first"
            )
        return self

    @model_validator(mode="after")
    def _weights_are_comparable(self) -> "Recipe":
        unweighted = [name for name, weight in self.weights.items() if weight is None]
        if unweighted and len(unweighted) < len(self.weights):
            raise ValueError(
                f"corpus {unweighted[0]!r} has no weight, but others do: set one for every corpus or for none"
            )
        if not unweighted and self.mixture.temperature != 1:
            raise ValueError(
                "mixture.temperature is for corpora without weights, but every corpus has one: leave out the "
                "temperature or the weights"
            )
        return self

    @model_validator(mode="after")
    def _stages_read_what_is_there(self) -> "Recipe":
        self.training.check_corpora(list(self.weights))
        unused.check(self.training)
        weighed = [stage.name for stage in self.training.stages if stage.weights]
        given = [number for number, corpus in enumerate(self.corpora) if corpus.weight is not None]
        if given and weighed and len(weighed) == len(self.training.stages):
            raise ValueError(
                f"corpora.{given[0]}.weight has no effect, since every stage has `weights` of its own: leave "
                "out one or the other"
            )
        if weighed and self.mixture.max_epochs is not None:
            raise ValueError(
                f"mixture.max_epochs limits shares, but stage {weighed[0]!r} sets its own in `weights`: "
                "leave out one of them"
            )
        return self

    @model_validator(mode="after")
    def _post_training_fits(self) -> "Recipe":
        for section in self.post_training.sections:
            if section in self.all_variants:
                raise ValueError(
                    f"variants.{section}: this name is taken by `post_training`: rename the variant"
                )
            self.tuned(section)
        return self

    @field_validator("variants")
    @classmethod
    def _base_is_the_recipe_itself(cls, variants: dict[str, Any]) -> dict[str, Any]:
        if BASE in variants:
            raise ValueError(f"{BASE!r} names the recipe as it is written: rename the variant")
        seeds.all_variants(variants)
        return variants

    @property
    def all_variants(self) -> dict[str, dict[str, Any]]:
        """The settings of each variant by name, also of those that grids and seeds stand for."""
        sections = self.post_training.model_dump()
        first = {seeds.TRAINING: self.training.seed, **seeds.of_sections(sections)}
        return seeds.all_variants(self.variants, self.seeds, first)

    def tuned(self, section: str, tokens: int | None = None) -> "Recipe":
        """The recipe of a section of `post_training`: its corpora, its training, over `tokens` where they are
        known, and what else is said in this one. Raises ValueError.
        """
        tuning = self.post_training.sections[section]
        base = self.tuned(SFT) if section == DPO and self.post_training.sft else self
        settings: Any = training_settings(section, tuning, self.training.model_dump(mode="json"), tokens)
        appended: Any = "appended" if isinstance(self.tokenizer, TokenizerParams) else True
        known = self.tokenizer.chat or appended  # a model that was pretrained without gets tokens of its own
        try:
            tuned = Recipe(
                **{name: getattr(self, name) for name in KEPT},
                corpora=tuning.corpora,
                quality=PROFILES["none"],
                tokenizer=self.tokenizer.model_copy(update={"chat": known}),
                training=settings,
            )
        except ValidationError as error:
            raise ValueError(f"post_training.{section}: {explained(error)}") from None
        tuned._file, tuned._base, tuned._section, tuned._tuning = self._file, base, section, tuning
        tuned._variant = variant_names.tuned(self.variant, section)
        return tuned

    def trained_for(self, tokens: int) -> "Recipe":
        """This recipe of a section, with a training over `tokens`, up to whole steps."""
        return self.pretraining.tuned(self.section, tokens)

    @property
    def pretraining(self) -> "Recipe":
        """The recipe of whose `post_training` this is a section; itself if it is none."""
        return self._base.pretraining if self._base else self

    @property
    def base(self) -> "Recipe | None":
        """The recipe whose model this one goes on with, if it is a section of `post_training`."""
        return self._base

    @property
    def section(self) -> str:
        """The section of `post_training` that this recipe is; empty if it is none."""
        return self._section

    @property
    def tuning(self) -> Tuning | None:
        """The section of `post_training` that this recipe is, if it is one."""
        return self._tuning

    @property
    def rehearsal(self) -> float:
        """The share of the training that is text of the base's training, 0 to 1."""
        return self._tuning.rehearsal if isinstance(self._tuning, SftParams) else 0.0

    @property
    def shard_params(self) -> ShardParams:
        """How documents become token files: whole conversations, where answers are learnt."""
        if self.training.objective == "pretrain":
            return self.shards
        return self.shards.model_copy(update={"longest": self.training.seq_len + 1})

    @property
    def weights(self) -> dict[str, float | None]:
        """Of the corpora that are trained on."""
        return {corpus.name: corpus.weight for corpus in self.corpora if corpus.train}

    @property
    def excluded(self) -> list[str]:
        """The corpora that are not trained on."""
        return [corpus.name for corpus in self.corpora if not corpus.train]

    @property
    def corpus_names(self) -> list[str]:
        return [corpus.name for corpus in self.corpora]

    def rules(self, corpus: str) -> Rules:
        """What holds for a corpus: its own settings, else those of the recipe."""
        own = self.corpus(corpus)
        quality, scrub = own.quality or self.quality, own.scrub or self.scrub
        return Rules(own.edits or self.edits, scrub, quality, own.dedup)

    @property
    def filter_names(self) -> list[str]:
        """The names of the filters of all corpora."""
        rules = map(self.rules, self.corpus_names)
        return list(dict.fromkeys(entry.name for one in rules for entry in one.quality.filters))

    @property
    def scrubs(self) -> list[PiiParams]:
        """The different ways in which texts are scrubbed, first that of the recipe."""
        found = [self.scrub]
        found += (own for corpus in self.corpora if (own := corpus.scrub) and own not in found)
        return found

    @property
    def apart(self) -> list[str]:
        """The corpora whose documents dedup compares with nothing."""
        return [corpus.name for corpus in self.corpora if not corpus.dedup]

    def is_edited(self, corpus: str) -> bool:
        """Whether lines are cut out of the texts of a corpus."""
        return self.rules(corpus).edits.cut

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

    @property
    def removes_contaminated(self) -> bool:
        """Whether documents that quote an evaluation set are removed."""
        return self.decontamination is not None and self.decontamination.action == "remove"

    def corpus(self, name: str) -> Corpus:
        return next(corpus for corpus in self.corpora if corpus.name == name)

    @property
    def base_weights(self) -> list[Path]:
        """The weights on this machine that training starts from, if any."""
        pretrained = self.training.pretrained
        return [self.path(pretrained.path)] if pretrained and pretrained.path else []

    @property
    def limits(self) -> Limits:
        """Which of its training runs and checkpoints stay."""
        kept = self.retention
        return Limits(kept.runs, kept.checkpoints, self.name, tuple(self.base_weights))

    def path(self, named: Path) -> Path:
        """A path in the recipe as a path on this machine."""
        return self._file.parent / named.expanduser()

    @property
    def file(self) -> str:
        """The absolute path of the recipe, or the name of a shipped one."""
        return self._file.stem if self._file.parent == RECIPES else str(self._file)

    @property
    def variant(self) -> str:
        """The name of the variant that this is, `hot/sft` for a section of one, `sft` for one of the recipe;
        empty for the recipe as it is written.
        """
        return self._variant

    def changes(self, written: "Recipe") -> dict[str, Any]:
        """The settings that differ from those of `written`, by dotted name."""
        ours, theirs = (dict(leaves(recipe.model_dump(mode="json"))) for recipe in (self, written))
        return {name: ours.get(name) for name in ours | theirs if ours.get(name) != theirs.get(name)}
