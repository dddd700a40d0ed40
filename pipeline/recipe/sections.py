"""Short sections of a recipe: corpora, parts, limits of checks, shards, mixture, launch, retention."""

from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from pipeline.sources import SourceConfig
from pipeline.stages.edits import EditParams
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES, QualityParams
from pipeline.store.engines.local import RayAddress, check_ray
from pipeline.store.params import LARGEST_AMOUNT, NAME, Params, form


def _named_profile(value: Any) -> Any:
    """`quality: docs`, or `quality: {profile: docs, min_words: 30}`: a named profile with changes."""
    if isinstance(value, str):
        value = {"profile": value}
    if not isinstance(value, dict) or "profile" not in value:
        return value
    changes = dict(value)
    profile = changes.pop("profile")
    if profile not in PROFILES:
        raise ValueError(f"unknown profile {profile!r}; choose from {', '.join(PROFILES)}")
    return PROFILES[profile].model_dump() | changes


Quality = Annotated[QualityParams, BeforeValidator(_named_profile)]


class Rules(NamedTuple):
    """What holds for the documents of one corpus."""

    edits: EditParams
    scrub: PiiParams
    quality: QualityParams
    dedup: bool  # whether they are compared with other documents


def _own(what: str, section: str, more: str = "") -> Any:
    """A section of a corpus; None where it is not set."""
    return Field(
        None,
        description=f"{what} that differ from those of the recipe's `{section}` for this corpus{more}. When "
        "not set, those of the recipe.",
    )


OWNER = form(
    r"^(team:\S.*|[^@\s]+@[^@\s]+\.[^@\s]+)$",
    "an e-mail address such as `ann@example.org`, or `team:` and a name, such as `team:data`",
)
Owner = Annotated[str, Field(pattern=OWNER, max_length=200)]
Owners = Annotated[tuple[Owner, ...], Field(max_length=20)]


class Corpus(Params):
    """One corpus: where it comes from, how much of the training mixture it makes, and rules of its own."""

    name: str = Field(pattern=NAME)
    """Name of the corpus and of its assets: lower-case letters, digits and `_`, beginning with a letter."""
    source: SourceConfig
    """Where its documents come from, one of the source kinds."""
    weight: float | None = Field(None, gt=0)
    """Weight in the training mixture, relative to those of the other corpora. Set it for every corpus or for
    none; when not set, `mixture` decides.
    """
    quality: Quality | None = _own("Thresholds", "quality", ", or another profile")
    edits: EditParams | None = _own("Settings", "edits")
    scrub: PiiParams | None = _own("Settings", "scrub")
    dedup: bool = True
    """Whether the documents are compared with others. With `false`, all documents that pass the other stages
    stay, and none of them causes a document of another corpus to be removed.
    """
    train: bool = True
    """False for a corpus that is not trained on, but whose documents are removed from the other corpora. List
    this corpus first: dedup then removes its duplicates from the others, and the corpus itself is left out of
    the training.
    """

    license: str | None = Field(
        None,
        pattern=form(
            r"^[a-z0-9][a-z0-9.-]*$", "lower-case letters, digits, `.` and `-`, such as `cc-by-4.0`"
        ),
    )
    """License of its text as the Hugging Face hub names it, such as `cc-by-4.0`, or `other`: for cards and
    reports. When not set, that of a ready-made corpus, else unknown.
    """
    owners: Owners | None = Field(None, exclude=True)  # nothing that is made depends on it
    """Who is responsible for the assets of this corpus, instead of the recipe's `owners`."""
    fresh_hours: float | None = Field(None, ge=1, le=87_600, exclude=True)
    """Hours within which a run is expected to check whether the source has changed. Dagster marks the corpus
    as not fresh if no run did. When not set, no check is expected.
    """

    @model_validator(mode="before")
    @classmethod
    def _conversations_are_no_pages(cls, values: Any) -> Any:
        """Rules made for lines and pages do not hold for conversations, unless the corpus has its own."""
        source = values.get("source") if isinstance(values, dict) else None
        format = source.get("format") if isinstance(source, dict) else getattr(source, "format", None)
        return {"quality": "none", "edits": {}, **values} if format in ("chat", "preferences") else values

    @model_validator(mode="after")
    def _train_fits(self) -> Self:
        if self.edits and self.edits.cut and getattr(self.source, "format", "text") != "text":
            raise ValueError(
                "edits cut lines, and with them messages of a conversation: leave out `edits` of this corpus"
            )
        if self.weight is not None and not self.train:
            raise ValueError("weight has no effect with `train: false`: leave out one of them")
        if not (self.dedup or self.train):
            raise ValueError(
                "`train: false` is for a corpus whose duplicates are removed from the others, and with "
                "`dedup: false` none are: leave out one of them"
            )
        return self


class RawParams(Params):
    """How a corpus is cut into parts."""

    part_bytes: int = Field(128_000_000, ge=1_000, le=10_000_000_000)
    """UTF-8 bytes of text per part, the unit of work of every data stage. A worker holds about one part in
    memory: lower it when memory runs out.
    """


class CheckLimits(Params):
    """What the asset checks allow before a run is stopped or marked. Changes no result."""

    max_set_aside_share: float = Field(0.2, ge=0, le=1)
    """Share (0 to 1) of a corpus that may be set aside because it cannot be read. A file, or a part of one,
    counts with its bytes.
    """
    max_rejected_share: float = Field(0.95, gt=0, le=1)
    """Share (0 to 1) of a corpus's documents that the quality rules may reject."""


class DedupGuard(Params):
    """What deduplication may remove before the run stops for a person to look at it."""

    max_lost_share: float = Field(0.8, gt=0, le=1)
    """Share (0 to 1) of a corpus's documents that deduplication may remove."""
    max_cluster_size: int = Field(10_000, ge=1, le=LARGEST_AMOUNT)
    """Most documents that one kept document may stand for, itself included. A larger cluster is often
    boilerplate, not duplicates.
    """


class ShardParams(Params):
    """Which documents are held out for validation, and how large a token file gets."""

    validation_fraction: float = Field(0.02, gt=0, lt=0.5)
    """Share (0 to 1) of each corpus's documents that is held out for validation, chosen by a hash of the id.
    """
    shard_tokens: int = Field(100_000_000, ge=1, le=LARGEST_AMOUNT)
    """Tokens per shard at most; a longer document gets a shard of its own."""
    longest: int | None = Field(None, ge=4)
    """Most tokens of a conversation: a longer one is cut after the last answer that fits. Leave it out, since
    it follows from `training`. When not set, documents are texts.
    """


class SearchParams(Params):
    """A search for a mixture: small runs over random mixtures, and a law fitted to them. The job
    `search_mixture` runs it; nothing else depends on it.
    """

    runs: int = Field(24, ge=5)
    """How many small runs to train. The first has the shares of the recipe, the others have random shares
    around these.
    """
    target: dict[str, float] | None = None
    """The corpora whose held-out loss the search minimizes, each with its weight. When not set, all corpora
    with equal weights.
    """
    training: dict[str, Any] = Field({})
    """Settings of `training` that the small runs have instead of the recipe's: fewer tokens, a smaller model.
    With `threads`, as many runs are trained at once as there are cores for.
    """


class MixtureParams(Params):
    """How much of the training each corpus makes when the corpora have no weights of their own."""

    temperature: float = Field(1.0, ge=1)
    """A corpus of n tokens gets a weight of n^(1/temperature) (Conneau and Lample 2019). At 1 the weight is
    the size; higher values raise small corpora.
    """
    max_epochs: float | None = Field(None, gt=0)
    """Most epochs (passes over its text) for which a corpus may be read; the tokens that are left over come
    from the other corpora. Needs enough text for `training.max_tokens`. When not set, no limit.
    """
    search: SearchParams | None = None
    """Small runs that look for a better mixture: docs/variants.md. When not set, there is no search."""


class RetentionParams(Params):
    """How many training runs and checkpoints of this recipe stay on disk. Applied when a model was exported;
    `python -m pipeline gc` shows what would go.
    """

    runs: int | None = Field(None, ge=1)
    """Newest training runs that are kept, with their evaluations and exports. The configuration of a removed
    run stays for `lineage`. When not set, all are kept.
    """
    checkpoints: int | None = Field(None, ge=1)
    """Newest checkpoints that are kept of each exported run, besides those of `checkpoint.keep_every_tokens`.
    When not set, as many as training kept.
    """


class LaunchParams(Params):
    """How the trainer is started. What its processes share is set by `training.parallel`."""

    kind: Literal["subprocess", "torchrun", "command", "ray"] = "subprocess"
    """`subprocess` starts one process, `torchrun` starts `nproc_per_node` processes on this machine, `ray`
    starts as many on each of `nodes` nodes of a Ray cluster, and `command` runs a command of your own, for
    example `srun`.
    """
    nproc_per_node: int = Field(1, ge=1, le=1024)
    """Processes on a machine for kinds `torchrun` and `ray`: with GPUs, one for each GPU."""
    nodes: int = Field(1, ge=1, le=100_000)
    """For kind `ray`: nodes of the cluster to train on. They need the store and this environment under the
    same paths: docs/cluster.md.
    """
    address: RayAddress = "auto"
    command: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """For kind `command`: a program and its arguments, which end in torchrun and its options, or in python.
    The pipeline appends `-m trainer CONFIG`. No shell reads it.
    """
    usd_per_hour: float | None = Field(None, gt=0)
    """Price in USD of an hour of training, on all machines together. When it is set, the UI, `summary` and
    the model card say what the training cost.
    """

    @model_validator(mode="after")
    def _kind_has_what_it_needs(self) -> Self:
        if self.kind == "command" and not self.command:
            raise ValueError("kind: command needs a command, for example [srun, --nodes=2, torchrun, ...]")
        if self.command and self.kind != "command":
            raise ValueError("command is for kind: command; set the kind, or leave out command")
        if self.nproc_per_node > 1 and self.kind == "command":
            raise ValueError(
                f"nproc_per_node {self.nproc_per_node} has no effect with kind: command; give torchrun "
                "--nproc-per-node in the command"
            )
        if self.nproc_per_node > 1 and self.kind == "subprocess":
            raise ValueError(f"nproc_per_node {self.nproc_per_node} needs kind: torchrun")
        check_ray(self, self.kind, "nodes", "address")
        return self
