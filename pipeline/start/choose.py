"""Every choice of a recipe for a folder and a deadline, each with its reason in one line."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.stages.language import known
from pipeline.start.look import Folder, Found, NothingReadableError
from pipeline.start.sizes import BYTES_A_TOKEN, FULL_EPOCHS, MOST_EPOCHS, SIZES, USUAL, Length, longest
from pipeline.start.speed import Speed

# What takes time around the training, measured on two cores: Dagster and its stages start, and after the
# training the model is evaluated and exported, eight times as long as the program that measures the speed. A
# busy machine is slower with both. And the bytes of text that the data stages take in each second.
PROGRAMS_AROUND, DATA_BYTES_A_SECOND = 8.0, 4e6
LEAST_TRAINING = 0.2  # share of the time, however short it is
MOST_DATA = 0.3  # share of the time that the data stages may take before only a part of the text is read
LEAST_IN_LANGUAGES, LEAST_BYTES = 0.02, 2_000  # of a corpus that would not be empty in the end
PIECES = 200  # of plain text, at least, so that some of them can be held out
SMALLEST_PIECE, LARGEST_PIECE = 2_048, 65_536
# The held-out text: its share of all at most, and how large it is beside the training, since scoring it takes
# time, too.
HELD_OUT_DOCUMENTS, MOST_HELD_OUT, HELD_OUT_TOKENS = 16, 0.04, 0.04
CHAT_SHARE, MOST_TUNING_EPOCHS = 0.15, 3.0  # of the time; passes over the conversations


@dataclass(frozen=True)
class Wishes:
    """What the user asked for. `profile` and `languages`: in place of what the sample shows."""

    seconds: float
    languages: tuple[str, ...] = ()
    profile: str | None = None
    chat: bool = False


@dataclass(frozen=True)
class Choice:
    """`about`: the setting in words."""

    about: str
    value: str
    reason: str


@dataclass(frozen=True)
class Reading:
    """How one corpus is read and judged. None stands for what is left as it is."""

    found: Found
    quality: str
    by_language: bool
    max_documents: int | None
    piece_bytes: int | None


@dataclass(frozen=True)
class Chosen:
    """Everything that the recipe says. `tuning_epochs`: passes over the `conversations`.
    `validation_fraction`: of the documents.
    """

    folder: Folder
    wishes: Wishes
    corpora: tuple[Reading, ...]
    conversations: tuple[Reading, ...]
    tuning_epochs: float
    length: Length
    validation_fraction: float
    part_bytes: int
    prompts: tuple[str, str]
    choices: tuple[Choice, ...]
    notes: tuple[str, ...]


def choose(folder: Folder, wishes: Wishes, speed: Speed, spent: float = 0.0) -> Chosen:
    """`spent`: seconds that are gone already. Raises NothingReadableError for a folder that has nothing to
    pretrain on.
    """
    texts = [one for one in folder.corpora if one.is_text]
    chats = [one for one in folder.corpora if one.shape.format == "chat"]
    if not texts:
        kinds = " and ".join(sorted({one.shape.format for one in folder.corpora}))
        raise NothingReadableError(
            f"{folder.path}: has only rows of {kinds}, and a model learns to answer after it has read text: "
            "add a folder of texts"
        )
    texts, left_out = _used(texts, wishes)
    if not texts:
        raise NothingReadableError(
            f"{folder.path}: none of its text is in {', '.join(wishes.languages)}, so no model can be made"
        )
    began = time.monotonic()
    speed.look()
    in_all = sum(one.text_bytes for one in texts)
    most = MOST_DATA * wishes.seconds * DATA_BYTES_A_SECOND
    share = min(1.0, most / max(in_all, 1))
    text_bytes = round(in_all * share)
    kept = sum(one.text_bytes * (1 - _lost(one, wishes)) for one in texts) / max(in_all, 1)
    spent += time.monotonic() - began
    around = spent + PROGRAMS_AROUND * speed.program_seconds + text_bytes / DATA_BYTES_A_SECOND
    tuning = CHAT_SHARE * wishes.seconds if wishes.chat and chats else 0.0
    seconds = max(LEAST_TRAINING * wishes.seconds, wishes.seconds - around - tuning)
    length = longest(round(text_bytes * kept), seconds, speed.of)
    known_speed = speed.look(length.size, length.vocab_size) or length.size == SIZES[USUAL]
    length = longest(round(text_bytes * kept), seconds, speed.of)
    corpora = tuple(_reading(one, share, wishes) for one in texts)
    documents = sum(_documents(one) for one in corpora)
    held_out = min(MOST_HELD_OUT * text_bytes, HELD_OUT_TOKENS * length.tokens * BYTES_A_TOKEN)
    fraction = min(0.2, max(held_out / max(text_bytes, 1), HELD_OUT_DOCUMENTS / max(documents, 1)))
    tuned = tuple(_reading(one, 1.0, wishes) for one in chats) if wishes.chat else ()
    said = max(1.0, sum(one.text_bytes for one in chats) / BYTES_A_TOKEN)
    tuning_epochs = min(MOST_TUNING_EPOCHS, tuning * speed.of(length.size, length.vocab_size) / said)
    tokens_a_second = speed.of(length.size, length.vocab_size)
    how = "measured on this machine" if known_speed else "estimated from a smaller model on this machine"
    choices = [
        *(_of_quality(one, wishes) for one in corpora),
        Choice("duplicates", "Jaccard 0.8", "near copies teach nothing new and are learnt by heart"),
        Choice(
            "vocabulary",
            f"{length.vocab_size:,} entries",
            f"for {text_bytes / 1e6:,.1f} MB of text; rarer words would not be seen often enough",
        ),
        Choice("model", f"{length.parameters / 1e6:,.1f} M parameters", _why_size(length)),
        Choice(
            "tokens",
            f"{length.tokens:,}",
            f"{seconds / 60:,.1f} of {wishes.seconds / 60:,.1f} minutes are left for training, at "
            f"{tokens_a_second:,.0f} tokens/s, {how}",
        ),
        Choice("epochs", f"{length.epochs:.2f}", _why_epochs(length)),
        Choice("batch", f"{length.global_batch_tokens:,} tokens", "as large as leaves enough steps"),
        Choice("schedule", "wsd", "flat, then a line to zero: the best of those tried on short trainings"),
        Choice(
            "held out",
            f"{fraction:.2%} of the documents",
            "enough to measure the loss on text that is not learnt",
        ),
        Choice("checkpoints", "four", "a killed run loses a quarter of the training at most"),
    ]
    return Chosen(
        folder,
        wishes,
        corpora,
        tuned,
        tuning_epochs,
        length,
        round(fraction, 4),
        max(1_000_000, min(128_000_000, text_bytes // 8)),
        _prompts(texts[0]),
        tuple(choices),
        (*left_out, *_notes(folder, wishes, length, share, seconds, around, bool(chats))),
    )


def _used(texts: Sequence[Found], wishes: Wishes) -> tuple[list[Found], list[str]]:
    """The corpora that are trained on, and a note for each that would be empty in the end."""
    used, notes = [], []
    largest = max(one.text_bytes for one in texts)
    for one in texts:
        if one.text_bytes < min(LEAST_BYTES, largest):
            notes.append(f"Left out: {one.name} has only {one.text_bytes:,} bytes of text.")
        elif _in_languages(one, wishes) < LEAST_IN_LANGUAGES:
            notes.append(f"Left out: {one.name} is not in {', '.join(wishes.languages)}.")
        else:
            used.append(one)
    return used, notes


def _in_languages(found: Found, wishes: Wishes) -> float:
    """The share of a corpus that is in the languages that are wished for."""
    return sum(found.kind.languages.get(one, 0.0) for one in wishes.languages) if wishes.languages else 1.0


def _lost(found: Found, wishes: Wishes) -> float:
    """The share of a corpus that quality rejects, as far as the sample tells."""
    by_profile = found.kind.rejected.get(wishes.profile or found.kind.profile, 0.0)
    return 1 - (1 - by_profile) * _in_languages(found, wishes)


def _reading(found: Found, share: float, wishes: Wishes) -> Reading:
    piece = None
    if found.shape.plain:
        fitting = max(SMALLEST_PIECE, min(LARGEST_PIECE, found.text_bytes // PIECES))
        piece = fitting if found.longest > 2 * fitting else None
    profile = wishes.profile or found.kind.profile
    reading = Reading(found, profile, found.kind.foreign and profile != "none", None, piece)
    most = None if share == 1 else max(1, round(_documents(reading) * share))
    return Reading(found, reading.quality, reading.by_language, most, piece)


def _documents(reading: Reading) -> int:
    found, piece = reading.found, reading.piece_bytes
    number = max(found.documents, -(-found.text_bytes // piece)) if piece else found.documents
    return min(number, reading.max_documents or number)


def _of_quality(reading: Reading, wishes: Wishes) -> Choice:
    value = reading.quality + (", by language" if reading.by_language else "")
    reason = "as --for says" if wishes.profile else reading.found.kind.reason
    if reading.by_language:
        languages = list(reading.found.kind.languages.items())[:3]
        reason += "; " + ", ".join(f"{name} {share:.0%}" for name, share in languages)
    return Choice(f"quality of {reading.found.name}", value, reason)


def _why_size(length: Length) -> str:
    place = SIZES.index(length.size)
    shape = f"{length.size.n_layers} layers of width {length.size.d_model}"
    if place == 0:
        return f"{shape}, the smallest, since there is little text or time"
    if place == USUAL:
        return f"{shape}, which learns most in minutes on a CPU; a larger one would see too few tokens"
    return f"{shape}, the largest that sees 20 tokens for each parameter of its blocks"


def _why_epochs(length: Length) -> str:
    if length.limit == "time":
        return "the time ends the training; up to 4 passes over a text are nearly as good as new text"
    if length.epochs <= FULL_EPOCHS:
        return "more passes over so little text would be learnt by heart (Muennighoff et al. 2023)"
    return f"after {MOST_EPOCHS:.0f} passes nothing is gained (Muennighoff et al. 2023)"


def _prompts(found: Found) -> tuple[str, str]:
    """Beginnings that the model continues, which are nobody's words."""
    language = next(iter(found.kind.languages), "en")
    words = sorted(known()[language].stop_words) if language in known() else []
    return (words[0], words[-1]) if len(words) > 1 else ("The", "It was")


def _notes(
    folder: Folder,
    wishes: Wishes,
    length: Length,
    share: float,
    seconds: float,
    around: float,
    has_chats: bool,
) -> Sequence[str]:
    """What the user should expect."""
    notes = []
    if folder.sampled < folder.files - len(folder.unread):
        notes.append(f"This is a sample: {folder.sampled:,} of {folder.files:,} files were looked at.")
    if share < 1:
        notes.append(f"There is more text than the time allows: {share:.1%} of it, the first, is read.")
    if seconds + around > 1.05 * wishes.seconds:
        over = (seconds + around) / 60
        notes.append(f"The time is short: with its preparations, this takes about {over:,.1f} minutes.")
    if length.unique < 1_000_000:
        words = length.unique * BYTES_A_TOKEN / 1e6
        notes.append(
            f"There is little text, {words:,.1f} MB: expect a model that imitates its style and knows little."
        )
    if wishes.chat and not has_chats:
        notes.append("--chat: the folder holds no conversations, so the model is not taught to answer.")
    if has_chats and not wishes.chat:
        notes.append(
            "The conversations are not learnt: --chat teaches the model to answer after the training."
        )
    return notes
