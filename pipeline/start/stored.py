"""What the jobs of a recipe have left in the store, and whether that is enough for a model."""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.recipe.loading import load_recipe
from pipeline.recipe.post_training import SFT
from pipeline.recipe.recipe import Recipe
from pipeline.stages.bpe import VocabularyError
from pipeline.start.folder.look import FoundCorpus, NothingReadableError
from pipeline.start.sizes import Learned
from pipeline.steps import checks
from pipeline.steps.corpus.ingest import Raw, first_reject
from pipeline.steps.model import evaluate
from pipeline.steps.recipe_versions import store_of
from pipeline.steps.tokens.tokenizer import FrozenTokenizer
from pipeline.store import keys
from pipeline.store.engines.local import LocalEngine
from pipeline.store.errors import PipelineError
from pipeline.store.keys import Key
from pipeline.store.manifest import Version, breakdown
from pipeline.store.store import Store
from trainer.system import terminal
from trainer.system.wording import counted

REASONS_SHOWN = 3  # of a stage
MOST_LOST = 0.5  # share of the documents, above which their loss is why a job failed
UNREAD, REJECTED, COPIES = "cannot be read", "are rejected by quality", "are copies of others"
REMEDIES = {
    UNREAD: "correct or remove what cannot be read",
    REJECTED: "name another kind with --for, leave out --languages, or add other text",
    COPIES: "add text that does not repeat itself",
}


@dataclass
class _Left:
    """The documents of all corpora: how many were `found`, and how many of these were `lost`, by what became
    of them and by the reason. Of the rest so many are `learned` and `held_out`, once there are shards.
    Nothing is left of the `emptied` corpora.
    """

    found: int = 0
    lost: dict[str, Counter[str]] = field(default_factory=lambda: {what: Counter() for what in REMEDIES})
    learned: int | None = None
    held_out: int | None = None
    emptied: list[str] = field(default_factory=list)
    unread: bool = False

    @property
    def rest(self) -> int:
        return self.found - sum(reasons.total() for reasons in self.lost.values())

    @property
    def is_too_little(self) -> bool:
        few = self.rest < max(2, (1 - MOST_LOST) * self.found)
        return not self.unread and (few or bool(self.emptied) or 0 in (self.learned, self.held_out))


def too_little(corpora: Iterable[FoundCorpus], recipe: Recipe) -> str | None:
    """What is said of the corpora of a recipe whose job failed before its training: how much was found, what
    rejected it, and what to do. None if enough is left, and so the job failed for another reason.
    """
    left = _count_left(recipe)
    if not left.is_too_little:
        return None
    files, size = (sum(numbers) for numbers in zip(*((one.files, one.bytes) for one in corpora), strict=True))
    lost = {what: reasons for what, reasons in left.lost.items() if reasons}
    parts = []
    for what, reasons in lost.items():
        most = ", ".join(f"{reason} {number:,}" for reason, number in reasons.most_common(REASONS_SHOWN))
        parts.append(f"{reasons.total():,} {what} ({most})")
    parts += [f"none of {name} can be used" for name in left.emptied]
    rest = f"{left.rest:,} to learn and to hold out"
    if left.learned is not None:
        rest = f"{left.learned:,} to learn and {left.held_out:,} held out"
    worst = max(lost, key=lambda what: lost[what].total(), default="")
    return (
        f"of {counted(left.found, 'documents')} in {counted(files, 'files')} ({size:,} bytes), "
        f"{' and '.join(parts) or 'none is rejected'}, which leaves {rest}: {REMEDIES.get(worst, 'add text')}"
    )


def learned(recipe: Recipe, vocab_size: int) -> Learned | None:
    """The text that the data stages have left to learn, in tokens of a vocabulary of so many entries. None
    where there is none.
    """
    store = store_of(recipe, records=False)
    shards = (_last_version(store, keys.token_shards(name)) for name in recipe.corpus_names)
    counts = Counter[str]()
    for version in filter(None, shards):
        counts.update(version.counts)
    if not (tokens := counts["train_tokens"]):
        return None
    usual = Learned(counts["train_text_bytes"]).tokens(vocab_size)
    return Learned(counts["train_text_bytes"], density=usual / tokens)


def supported_entries(recipe: Recipe) -> int | None:
    """How many entries of a vocabulary the text supports, if a job has left no tokenizer because it supports
    too few; else None. Only another training tells, since a tokenizer can be missing for many other reasons,
    such as a full disk.
    """
    store = store_of(recipe, records=False)
    if _last_version(store, keys.DEDUP) is None or _last_version(store, keys.TOKENIZER):
        return None
    (tokenizer,) = FrozenTokenizer.all_of(recipe)
    try:
        with closing(LocalEngine()) as engine:
            tokenizer.make(store, engine)
    except VocabularyError as error:
        return error.entries
    except (PipelineError, OSError):
        pass  # the job has said what it is
    return None


def held_out_score(recipe: Path) -> float | None:
    """Bits per byte of all held-out text, by the model that the job `pretrain` of a recipe has made. None if
    that is gone, or is no longer what the recipe names.
    """
    store = store_of(load_recipe(recipe), records=False)
    with suppress(PipelineError):
        return float(evaluate.read(store.current(keys.EVALUATION))["bits_per_byte"])
    return None


def read_conversations(recipe: Recipe) -> None:
    """Reads the conversations into the store, where the job `sft` finds them. The look at the folder was at a
    sample. Raises NothingReadableError if more of them cannot be learned than the recipe allows.
    """
    tuning = recipe.tuned(SFT)
    store, engine = store_of(tuning), LocalEngine(tuning.engine.workers)
    for stage in Raw.all_of(tuning):
        with terminal.doing(f"reading the conversations {stage.corpus}"):
            try:
                raw = stage.make(store, engine)
            except PipelineError as error:
                raise NothingReadableError(f"{error}, or leave out --chat") from error
        found = checks.little_set_aside(checks.Subject(raw, store, tuning))
        if not found.passed:
            raise NothingReadableError(
                f"the conversations {stage.corpus} cannot be learned: {found.message}. First, "
                f"{first_reject(raw, raw.parts)}: correct or remove such rows, or leave out --chat"
            )


def _last_version(store: Store, key: Key) -> Version | None:
    with suppress(PipelineError):
        return store.current(key)
    return None


def _count_left(recipe: Recipe) -> _Left:
    store, left = store_of(recipe, records=False), _Left()

    def counts(key: Key) -> Mapping[str, int]:
        version = _last_version(store, key)
        return version.counts if version else {}

    for name in recipe.corpus_names:
        raw, quality = counts(keys.raw(name)), counts(keys.quality(name))
        left.unread |= not raw
        left.found += raw.get("documents", 0) + raw.get("set_aside", 0)
        left.lost[UNREAD].update(breakdown(raw, "set_aside"))
        left.lost[REJECTED].update(breakdown(quality, "rejected"))
        if not raw.get("documents") or quality.get("kept") == 0:
            left.emptied.append(name)
        if shards := counts(keys.token_shards(name)):
            left.learned = (left.learned or 0) + shards["train_documents"]
            left.held_out = (left.held_out or 0) + shards["validation_documents"]
    left.lost[COPIES].update(breakdown(counts(keys.DEDUP), "removed"))
    return left
