"""Why each setting was chosen, in one line, and what the user should expect."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline.sources.formats.transcripts import is_transcript
from pipeline.stages.edits import EditRule
from pipeline.start.choose import Chosen, Reading, Wishes
from pipeline.start.folder.look import FoundCorpus
from pipeline.start.horizon import DECAY
from pipeline.start.sizes import LITTLE_TEXT, MOST_EPOCHS, SIZES, Length, ranked
from pipeline.store.params import MESSAGE
from trainer.system.wording import counted

NO_LANGUAGE, MOST = "zxx", 0.5
CUT_AS = {
    EditRule.GUTENBERG: "books stand between a head and a license of Project Gutenberg",
    EditRule.FRONT_MATTER: "pages begin with settings in YAML or TOML",
    EditRule.MESSAGE_TIMES: "each message begins with a date and a time, which would be learned",
}


@dataclass(frozen=True)
class Choice:
    """A setting, which `about` names in words, with its value and the reason for it."""

    about: str
    value: str
    reason: str


def choices(chosen: Chosen) -> Iterator[Choice]:
    """All choices, in the order of the recipe."""
    length, budget = chosen.length, chosen.budget
    for reading in chosen.corpora:
        yield from _of_corpus(reading, chosen.wishes)
    yield Choice("duplicates", "Jaccard 0.8", "near copies teach nothing new and are memorized")
    yield Choice("vocabulary", f"{length.vocab_size:,} entries", "rarer words would not be seen often enough")
    yield Choice("model", f"{length.parameters / 1e6:,.1f} M parameters", _why_size(chosen))
    minutes = (
        f"{budget.training / 60:,.1f} of {chosen.wishes.seconds / 60:,.1f} minutes are left for training"
    )
    expected = f"{minutes}, at {chosen.tokens_per_second:,.0f} tokens/s, {chosen.speed_source}"
    yield Choice("tokens", f"{chosen.horizon.tokens:,}", chosen.changed or expected)
    yield Choice("epochs", f"{length.epochs:.2f}", _why_epochs(length))
    if length.dropout:
        why = "text that is read so often would be learned by heart without it"
        yield Choice("dropout", f"{length.dropout:g}", why)
    if length.weight_decay:
        why = "it shrinks the weights, so that less is learned by heart"
        yield Choice("weight decay", f"{length.weight_decay:g}", why)
    if length.rates != 1:
        why = "text that is read so often is learned slowly"
        yield Choice("learning rates", f"{length.rates:g} of usual", why)
    if chosen.gpus:
        yield _of_gpus(chosen)
    yield Choice("batch", f"{length.global_batch_tokens:,} tokens", "the largest that leaves enough steps")
    why = f"constant, then a linear decay over the last {DECAY:.0%}: until then the length can be changed"
    yield Choice("schedule", "wsd", why)
    why = "enough to measure the loss on text that is not learned, in little time"
    yield Choice("held out", f"{chosen.validation_fraction:.2%} of the documents", why)
    yield Choice("checkpoints", "four", "a killed run loses a quarter of the training at most")
    if chosen.conversations:
        yield _of_tuning(chosen)


def notes(chosen: Chosen) -> Iterator[str]:
    """What the user should expect."""
    folder, wishes, budget = chosen.folder, chosen.wishes, chosen.budget
    yield from chosen.left_out
    if folder.sampled < folder.files - len(folder.unread):
        yield f"This is a sample: {folder.sampled:,} of {folder.files:,} files were looked at."
    for one in (reading.corpus for reading in chosen.corpora):
        if one.kind.name != "code" and one.kind.languages.get(NO_LANGUAGE, 0.0) > MOST:
            yield f"Most of {one.name} is in no language, as numbers and encoded files are."
    if budget.share < 1:
        yield f"There is more text than the time allows: only the first {budget.share:.1%} of it is read."
    needed = budget.training + budget.around + budget.tuning
    if needed > 1.05 * wishes.seconds:
        yield f"The time is short: with its preparations, this takes about {needed / 60:,.1f} minutes."
    if chosen.length.unique < LITTLE_TEXT:
        mb = chosen.length.text_bytes / 1e6
        yield f"There is little text, {mb:,.1f} MB: expect a model that imitates its style and knows little."
    has_chats = any(corpus.shape.format == "chat" for corpus in folder.corpora)
    if wishes.chat and not has_chats:
        none = "the folder holds no conversations, so the model is not taught to answer"
        yield f"--chat: {_why_as_text(folder.corpora) or none}."
    if has_chats and wishes.chat and not chosen.conversations:
        is_single = sum(corpus.documents for corpus in folder.corpora if corpus.shape.format == "chat") < 2
        long = "the conversations are too long for a small model"
        why = "a single conversation cannot be both learned and held out" if is_single else long
        yield f"--chat: {why}, so the model is not taught to answer."
    if has_chats and not wishes.chat:
        yield "The conversations are not learned: --chat teaches the model to answer after the training."
    if pairs := sum(corpus.documents for corpus in folder.corpora if corpus.shape.format == "preferences"):
        why = (
            "the time is planned for text and conversations alone"
            if chosen.conversations
            else "which of two answers is better is learned after answering, from conversations"
        )
        yield (
            f"The preferences, about {counted(pairs, 'pairs')}, are not learned, since {why}: name them in a "
            "section `dpo` of the recipe, and run the job `align` (docs/chat.md)."
        )


def _of_tuning(chosen: Chosen) -> Choice:
    tuning = chosen.tuning
    passes = f"{tuning.epochs:,.3g} passes over the conversations"
    value = f"{tuning.tokens / tuning.batch:,.0f} steps of {tuning.batch:,} tokens"
    return Choice(
        "tuning", value, f"{passes}, as many as fit into the time; after fewer steps, answers do not end"
    )


def _of_corpus(reading: Reading, wishes: Wishes) -> Iterator[Choice]:
    corpus = reading.corpus
    yield _of_quality(reading, wishes)
    if corpus.edits:
        why = ", and ".join(CUT_AS[rule] for rule in corpus.edits)
        yield Choice(f"cut from {corpus.name}", ", ".join(corpus.edits), f"{why}; `restore` prints it")


def _of_quality(reading: Reading, wishes: Wishes) -> Choice:
    value = reading.quality + (", by language" if reading.by_language else "")
    reason = "as --for says" if wishes.profile else reading.corpus.kind.reason
    if reading.by_language:
        languages = list(reading.corpus.kind.languages.items())[:3]
        reason += "; " + ", ".join(f"{name} {share:.0%}" for name, share in languages)
    return Choice(f"quality of {reading.corpus.name}", value, reason)


def _why_size(chosen: Chosen) -> str:
    length, size = chosen.length, chosen.length.size
    shape = size.words
    if chosen.tried:
        best = "the best on the held-out text" if size in chosen.tried else "which the time allows to try"
        return f"{shape}, {best}; bits per byte so far: {ranked(chosen.tried)}"
    if size == SIZES[0]:
        return f"{shape}, the smallest, since there is little text or time"
    if length.is_for_repeats:
        return f"{shape}: there is time for several passes, in which a smaller model would learn less"
    return f"{shape}, the largest that sees {size.tokens_a_parameter} tokens for each parameter of its blocks"


def _of_gpus(chosen: Chosen) -> Choice:
    if chosen.processes > 1:
        why = "each computes an equal share of every batch"
    else:
        why = "a batch is too small to be shared out" if chosen.gpus > 1 else "the only one of this machine"
    return Choice("GPUs", f"{chosen.processes} of {chosen.gpus}", why)


def _why_epochs(length: Length) -> str:
    if length.limit == "time":
        return "the time ends the training; up to 4 passes over a text are nearly as good as new text"
    if length.epochs < MOST_EPOCHS - 1:
        return "with more passes, so little text would be memorized (Muennighoff et al. 2023)"
    return f"after {MOST_EPOCHS:.0f} passes nothing is gained (Muennighoff et al. 2023)"


def _why_as_text(corpora: Sequence[FoundCorpus]) -> str:
    """Why conversations in plain text are learned as text; empty if there are none."""
    why = "conversations in files of text are learned as text"
    texts = [corpus.kind.documents.column("text").to_pylist() for corpus in corpora if corpus.shape.plain]
    known = [all(text.startswith(MESSAGE) for text in those) for those in texts]
    if any(known):
        alone = sum(known) == len(corpora)
        return f"{why}: add other texts, to learn first" if alone else f"{why}, since they are long"
    written = any(sum(map(is_transcript, those)) * 2 > len(those) for those in texts)
    return f'{why}: write each file as a row `{{"text": ...}}`' if written else ""
