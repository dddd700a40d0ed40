"""What the YAML file of a recipe says, checked, and what follows from it alone."""

import zoneinfo
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from pipeline.plugins.settings import OWN_SCORE, TransformParams, check_names
from pipeline.plugins.transforms import Transform, of_corpus
from pipeline.recipe.evaluation import (
    Decontamination,
    EvaluationParams,
    repeated_name,
    with_benchmarks_as_sets,
)
from pipeline.recipe.overrides import long_form, with_own_rules
from pipeline.recipe.post_training import PostTraining
from pipeline.recipe.sections import (
    CheckLimits,
    Corpus,
    DedupGuard,
    LaunchParams,
    MixtureParams,
    Owners,
    Quality,
    RawParams,
    RetentionParams,
    Rules,
    ShardParams,
)
from pipeline.sources.source import SourceError
from pipeline.stages.bpe import TokenizerChoice, TokenizerParams
from pipeline.stages.dedup import DedupParams
from pipeline.stages.edits import EditParams
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES
from pipeline.stages.quality_model import QualityModelParams
from pipeline.store import variant_names, variant_seeds
from pipeline.store.engines.local import EngineParams
from pipeline.store.params import NAME, Params, form
from trainer.config import TrainingConfig, unused
from trainer.system.errors import did_you_mean

STORE_ADDRESS = form(
    r"^(s3|gs|az)://[a-z0-9][a-z0-9.-]+(/[^/#?]+)*/?$",
    "`s3://`, `gs://` or `az://` and a bucket, with a folder if you like, such as `s3://bucket/groundwork`",
)
ANSWERS = {"sft": "chat", "dpo": "preferences"}  # the format that an objective learns from
VariantName = Annotated[str, Field(pattern=NAME)]


class RecipeSettings(Params):
    """The settings of a recipe. Which file and variant they are of, `Recipe` knows."""

    name: str = Field(
        pattern=form(
            r"^[a-z0-9][a-z0-9_-]*$",
            "lower-case letters, digits, `_` and `-`, beginning with a letter or digit, such as `my-books`",
        )
    )
    """Name of the experiment: lower-case letters, digits, `_` and `-`."""
    owners: Owners = Field((), exclude=True)  # nothing that is made depends on them
    """Who is responsible for the assets, for Dagster's catalog: e-mail addresses, or `team:data`."""
    timezone: str = Field("UTC", exclude=True)  # nor on when it was made
    """The time zone of the schedules, such as `Europe/Berlin`: they start at their hour there, in summer and
    in winter.
    """
    corpora: tuple[Corpus, ...] = Field(min_length=1)
    """The corpora, each with a name and a source. Short forms are ready-made corpora and data sets of the
    hub, `- owner/name`; `- tinystories:1000` takes the first 1,000 documents. Of duplicates in two corpora,
    the document of the corpus listed first is kept.
    """
    raw: RawParams = RawParams()
    transforms: tuple[TransformParams, ...] = ()
    """Functions of your own that rewrite texts before they are scrubbed, in this order:
    docs/your-own-code.md.
    """
    edits: EditParams = EditParams()
    """Lines that are cut out of the texts, and kept beside them."""
    scrub: PiiParams = PiiParams()
    """Which personal data and secrets are replaced."""
    quality: Quality = PROFILES["default"]
    """Thresholds of the quality rules. A profile can be named alone, `quality: docs`, or with changes,
    `quality: {profile: docs, min_words: 30}`; thresholds without a profile change `default`.
    """
    quality_model: QualityModelParams | None = None
    """A classifier: docs/own-text.md."""
    decontamination: Decontamination | None = None
    """Evaluation sets to search for in the training text. `decontamination: benchmarks` stands for the
    benchmarks and texts of `evaluation`. When not set, nothing is searched for.
    """
    dedup: DedupParams = DedupParams()
    """What counts as a duplicate."""
    dedup_guard: DedupGuard = DedupGuard()
    """How much deduplication may remove."""
    checks: CheckLimits = CheckLimits()
    """What the asset checks allow."""
    tokenizer: TokenizerChoice = TokenizerParams()
    """A tokenizer to train, or with `from` an existing one."""
    shards: ShardParams = ShardParams()
    """How documents become token files."""
    token_index: bool = False
    """Whether `pretrain` also makes the index in which `python -m pipeline trace` looks for text: 4 bytes a
    token. Without it, the first `trace` does: docs/trace.md.
    """
    mixture: MixtureParams = MixtureParams()
    """How corpora without weights are mixed, and how often they repeat."""
    training: TrainingConfig
    """The model and how it is trained."""
    evaluation: EvaluationParams = EvaluationParams()
    store: str | None = Field(None, pattern=STORE_ADDRESS, exclude=True)  # it changes nothing that is made
    """The address of a bucket that holds everything that is made, such as `s3://bucket/groundwork`:
    docs/bucket.md. GROUNDWORK_STORE takes precedence. When neither is set, a directory in Dagster's home.
    """
    engine: EngineParams = EngineParams()
    """How many processes prepare the data."""
    launch: LaunchParams = LaunchParams()
    """How the trainer is started."""
    retention: RetentionParams = RetentionParams()
    """How many training runs and checkpoints stay on disk."""
    # The content of each variant is that of its own recipe.
    variants: dict[VariantName, dict[str, Any]] = Field({}, exclude=True)
    """Experiments beside this recipe: a name, and the settings that differ, nested as in a recipe; corpora by
    name, `corpora: {books: {weight: 2}}`. With several values for settings, `lr: {each: [1e-3, 3e-3]}`, a
    name stands for a variant with each combination. Each variant is a partition of the assets that depend on
    what it changes, and shares all others: docs/variants.md.
    """
    post_training: PostTraining = PostTraining()
    """Stages after the pretraining: instruction tuning, `sft`, and preference tuning, `dpo`: docs/chat.md."""
    seeds: int = Field(1, ge=1, le=variant_seeds.MOST_SEEDS, exclude=True)  # each seed is a variant
    """Runs of the recipe and of each variant that differ only in `training.seed`. The seeds are `seed` and
    the numbers after it; a variant may set its own number of seeds. A section of `post_training` that sets a
    seed counts up from that seed. Runs share everything before training, and `python -m pipeline decide`
    needs three of them: docs/decide.md.
    """

    _benchmarks_as_sets = model_validator(mode="before")(with_benchmarks_as_sets)
    _own_rules = model_validator(mode="before")(with_own_rules)

    @field_validator("timezone")
    @classmethod
    def _timezone_is_known(cls, named: str) -> str:
        try:
            zoneinfo.ZoneInfo(named)
        except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):  # Europe alone is a directory
            near = did_you_mean(named, zoneinfo.available_timezones(), "see `timedatectl list-timezones`")
            raise ValueError(
                f"must be the name of a time zone, such as `Europe/Berlin`, not {named!r}: {near}"
            ) from None
        return named

    @field_validator("corpora", mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        """`- tinystories:1000`: a ready-made corpus or a data set on the hub, and how many documents."""
        if not isinstance(value, list | tuple):
            return value
        try:
            return [long_form(corpus) for corpus in value]
        except SourceError as error:
            raise ValueError(str(error)) from None

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        if repeated := repeated_name(self.corpus_names):
            raise ValueError(f"two corpora are named {repeated!r}: rename one of them")
        return self

    @model_validator(mode="after")
    def _named_corpora_are_known(self) -> Self:
        check_names(self.transforms, set())
        target = (self.mixture.search and self.mixture.search.target) or ()
        if name := next((name for name in target if name in self.excluded), None):
            raise ValueError(f"mixture.search.target: corpus {name!r} has `train: false`: leave it out")
        named: list[tuple[str, Iterable[str]]] = [("mixture.search.target", target)]
        named += [(f"transform {entry.name!r}", entry.corpora or ()) for entry in self.transforms]
        named += [(f"quality_model.{side}", names) for side, names in self.quality_model or ()]
        for place, name in ((place, name) for place, names in named for name in names):
            if name not in self.corpus_names:
                known = ", ".join(self.corpus_names)
                raise ValueError(f"{place}: unknown corpus {name!r}; choose from {known}")
        return self

    @model_validator(mode="after")
    def _has_the_model_that_filters_read(self) -> Self:
        filters = (entry for name in self.corpus_names for entry in self.rules(name).quality.filters)
        reads = next((entry.name for entry in filters if entry.python == OWN_SCORE), None)
        if reads and not self.quality_model:
            raise ValueError(
                f"filter {reads!r} reads the recipe's `quality_model`, which is missing: add `quality_model: "
                "{positive: [...], negative: [...]}`, or name the file of a classifier in `fasttext`"
            )
        return self

    @model_validator(mode="after")
    def _excluded_corpora_come_first(self) -> Self:
        order = [corpus.train for corpus in self.corpora]
        if not any(order):
            raise ValueError(
                "corpora: none is trained on, since each has `train: false`: remove this from one"
            )
        if order != sorted(order):
            name = self.corpora[order.index(False, order.index(True))].name
            raise ValueError(
                f"corpus {name!r} has `train: false` and removes nothing from the corpora before it, since "
                "of duplicates the document of the corpus that is listed first stays: list it first"
            )
        return self

    @model_validator(mode="after")
    def _formats_fit_the_objective(self) -> Self:
        meant = ANSWERS.get(self.training.objective)
        for number, corpus in enumerate(self.corpora):
            found = getattr(corpus.source, "format", meant)
            if meant and found not in (meant, "text"):  # a text may hold the marks of messages already
                raise ValueError(
                    f"corpora.{number}.source.format: is {found}, and {self.training.objective} learns from "
                    f"{meant}: name the format that the rows have, or leave the corpus out"
                )
        return self

    @model_validator(mode="after")
    def _weights_are_comparable(self) -> Self:
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
    def _stages_read_what_is_there(self) -> Self:
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

    @field_validator("variants")
    @classmethod
    def _base_is_the_recipe_itself(cls, variants: dict[str, Any]) -> dict[str, Any]:
        if variant_names.BASE in variants:
            raise ValueError(f"{variant_names.BASE!r} names the recipe as it is written: rename the variant")
        variant_seeds.all_variants(variants)
        return variants

    @property
    def all_variants(self) -> dict[str, dict[str, Any]]:
        """The settings of each variant by name, also of those that grids and seeds stand for."""
        first = variant_seeds.seeds_in(self.model_dump(include={"training": {"seed"}, "post_training": True}))
        return variant_seeds.all_variants(self.variants, self.seeds, first)

    @property
    def shard_params(self) -> ShardParams:
        """How documents become token files: whole conversations, where answers are learned."""
        if self.training.objective == "pretrain":
            return self.shards
        return self.shards.model_copy(update={"longest": self.training.seq_len + 1})

    @property
    def weights(self) -> dict[str, float | None]:
        """The weights of the corpora that are trained on."""
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
        return list(dict.fromkeys(entry.name for rule in rules for entry in rule.quality.filters))

    @property
    def scrubs(self) -> list[PiiParams]:
        """The different ways in which texts are scrubbed, first that of the recipe."""
        found = [self.scrub]
        found += (own for corpus in self.corpora if (own := corpus.scrub) and own not in found)
        return found

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
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> Mapping[str, Corpus]:
        return {corpus.name: corpus for corpus in self.corpora}

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copy = super().model_copy(update=update, deep=deep)
        copy.__dict__.pop("_by_name", None)  # the copy may have other corpora
        return copy
