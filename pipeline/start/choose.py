"""Every choice of a recipe for a folder and a deadline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from pipeline.start.folder.look import Folder, FoundCorpus, NothingReadableError
from pipeline.start.horizon import AIM, Horizon
from pipeline.start.sizes import SIZES, USUAL, Learned, Length, Size, bytes_a_token, length_of, longest
from pipeline.start.speed import Speed, processes
from pipeline.start.tuning import Tuning
from trainer.system.clock import since_boot

# What takes time around the training, measured on two cores: Dagster and its stages start, and after the
# training the model is evaluated and exported, eight times as long as the program that measures the speed. A
# busy machine is slower with both. And the bytes of text that the data stages take in each second.
PROGRAMS_AROUND, DATA_BYTES_A_SECOND = 8.0, 4e6
PROGRAMS_AROUND_TUNING = 7.0  # the same for the tuning
LEAST_TRAINING = 0.2  # share of the time, however short it is
MOST_DATA = 0.3  # share of the time that the data stages may take before only a part of the text is read
LEAST_IN_LANGUAGES, LEAST_BYTES = 0.02, 10_000  # of a corpus that would not be empty in the end
PIECES = 200  # of plain text, at least, so that some of them can be held out
SMALLEST_PIECE, LARGEST_PIECE = 2_048, 65_536
# The held-out text: its share of all at most, and how large it is beside the training, since scoring it takes
# time, too.
HELD_OUT_DOCUMENTS, MOST_HELD_OUT, HELD_OUT_TOKENS = 16, 0.04, 0.04
NONE_HELD_OUT = 0.02  # odds at most that no conversation is held out, without which nothing is tuned
# A conversation is learned as a whole, in one window.
LONGEST_WINDOW = 1_024
FEW_ENTRIES = 1_024  # of a vocabulary, below which tokens are hardly longer than a byte
LEAST_KEPT = 0.02  # share of the text that quality must leave
WARMUP_STEPS, WARMUP_SHARE = 40, 0.1  # of the training at most


@dataclass(frozen=True)
class Wishes:
    """What the user asked for. `profile` and `languages`, where given, take the place of what the sample
    shows.
    """

    seconds: float
    languages: tuple[str, ...] = ()
    profile: str | None = None
    chat: bool = False


@dataclass(frozen=True)
class Reading:
    """How one corpus is read and judged. None stands for a setting that is left at its default."""

    corpus: FoundCorpus
    quality: str
    by_language: bool
    max_documents: int | None
    piece_bytes: int | None


@dataclass(frozen=True)
class Budget:
    """How the time is divided, in seconds: the `training`, what is `around` it, and the `tuning` with what is
    around that. `share` of the text is read, which is `text_bytes`, and quality leaves `kept` bytes of these.
    """

    around: float
    training: float
    tuning: float
    share: float
    text_bytes: int
    kept: int

    def after_data(self) -> Self:
        """The same once the data stages are done."""
        seconds = self.text_bytes / DATA_BYTES_A_SECOND
        return replace(self, around=self.around - seconds, training=self.training + seconds)


@dataclass(frozen=True)
class Chosen:
    """Everything that the recipe says.

    The `tuning` is on the `conversations`. `speed_source` says in words where the speed is from, and a short
    program takes `program_seconds`. Of the `gpus` of this machine, `processes` train. `validation_fraction`
    of the documents and `held_out_conversations` of the conversations are held out. `left_out` says why
    corpora are not trained on. `changed` says why the `horizon` was changed during the training, if it was.
    The sizes that were `tried` before have so many bits per byte of the held-out text.
    """

    folder: Folder
    wishes: Wishes
    corpora: tuple[Reading, ...]
    conversations: tuple[Reading, ...]
    tuning: Tuning
    budget: Budget
    length: Length
    horizon: Horizon
    seq_len: int
    tokens_per_second: float
    speed_source: str
    program_seconds: float
    gpus: int
    processes: int
    validation_fraction: float
    held_out_conversations: float
    part_bytes: int
    left_out: tuple[str, ...]
    changed: str = ""
    tried: Mapping[Size, float] = field(default_factory=dict)

    def with_horizon(self, horizon: Horizon, why: str) -> Self:
        length = replace(self.length, tokens=horizon.tokens, limit=horizon.limit)
        return replace(self, horizon=horizon, length=length, changed=why)


def choose(
    folder: Folder,
    wishes: Wishes,
    speed: Speed,
    spent: float = 0.0,
    left: Learned | None = None,
    size: Size | None = None,
) -> Chosen:
    """Chooses all settings of a recipe. `spent` seconds are gone already. Once the data stages are done,
    `left` is the text that they have left to learn. The model has this `size`, if one is given. Raises
    NothingReadableError for a folder that has nothing to pretrain on.
    """
    began = since_boot()
    folder = _with_transcripts_as_text(folder, wishes)
    texts, left_out = _texts(folder, wishes)
    _check_kept(folder, texts, wishes)
    chats = _chats(folder, wishes)
    speed.look()
    budget = _budget(texts, chats, wishes, speed, spent + since_boot() - began)
    corpora = [_reading(corpus, budget.share, wishes) for corpus in texts]
    fewest = min(0.2, HELD_OUT_DOCUMENTS / max(1, sum(map(_documents, corpora))))
    if left is not None:
        budget = budget.after_data()
    text = left or Learned(round(budget.kept * (1 - fewest)))
    if size is None:
        length = _length(text, budget.training, speed)
    else:
        length = length_of(size, text, budget.training, speed.of)
    size, vocab_size = length.size, length.vocab_size
    tokens_per_second = speed.of(size, vocab_size)
    chats = [chat for chat in chats if _fits(chat, vocab_size)]
    conversations = [_reading(chat, 1.0, wishes) for chat in chats]
    seq_len = _window(chats, length)
    horizon = _horizon(length, seq_len)
    together = processes(speed.gpus, horizon.batch // seq_len)
    tuning = Tuning.of(chats, size, vocab_size, seq_len, horizon.batch, together)
    # Each conversation is held out or not by itself.
    stays = NONE_HELD_OUT ** (1 / max(1, sum(map(_documents, conversations))))
    return Chosen(
        folder=folder,
        wishes=wishes,
        corpora=tuple(corpora),
        conversations=tuple(conversations),
        tuning=tuning.planned(wishes.seconds, tokens_per_second),
        budget=budget,
        length=length,
        horizon=horizon,
        seq_len=seq_len,
        tokens_per_second=tokens_per_second,
        speed_source=speed.source(size),
        program_seconds=speed.program_seconds,
        gpus=speed.gpus,
        processes=together,
        validation_fraction=_held_out(fewest, budget, length),
        held_out_conversations=round(max(MOST_HELD_OUT, min(0.45, 1 - stays)), 4),
        part_bytes=max(1_000_000, min(128_000_000, budget.text_bytes // 8)),
        left_out=tuple(left_out),
    )


def check_text(folder: Folder, wishes: Wishes) -> None:
    """Raises NothingReadableError for a folder that has nothing to pretrain on, as `choose` does, before
    anything is compiled or measured.
    """
    _texts(_with_transcripts_as_text(folder, wishes), wishes)


def _with_transcripts_as_text(folder: Folder, wishes: Wishes) -> Folder:
    """Conversations in plain text are text where they cannot teach the model to answer, or shall not."""
    teach = wishes.chat and any(corpus.is_text for corpus in folder.corpora)
    corpora = [
        replace(one, shape=replace(one.shape, format="text"))
        if one.shape.is_transcript and not (teach and _fits(one))
        else one
        for one in folder.corpora
    ]
    return replace(folder, corpora=tuple(corpora))


def _texts(folder: Folder, wishes: Wishes) -> tuple[list[FoundCorpus], list[str]]:
    """The corpora that are trained on, and a note for each corpus of which nothing would be left."""
    texts = [corpus for corpus in folder.corpora if corpus.is_text]
    if not texts:
        kinds = " and ".join(sorted({corpus.shape.format for corpus in folder.corpora}))
        raise NothingReadableError(
            f"{folder.path}: has only rows of {kinds}, and a model learns to answer after it has read text: "
            "add a folder of texts"
        )
    used, notes = [], []
    largest = max(corpus.text_bytes for corpus in texts)
    for corpus in texts:
        if corpus.text_bytes < min(LEAST_BYTES, largest):
            notes.append(f"Left out: {corpus.name} has only {corpus.text_bytes:,} bytes of text.")
        elif _in_languages(corpus, wishes) < LEAST_IN_LANGUAGES:
            notes.append(f"Left out: {corpus.name} is not in {', '.join(wishes.languages)}.")
        else:
            used.append(corpus)
    if not used:
        raise NothingReadableError(
            f"{folder.path}: none of its text is in {', '.join(wishes.languages)}, so no model can be made: "
            "name other --languages, or leave them out"
        )
    return used, notes


def _check_kept(folder: Folder, texts: Sequence[FoundCorpus], wishes: Wishes) -> None:
    """Raises NothingReadableError if the wished profile leaves next to nothing of the sample."""
    lost = sum(
        corpus.text_bytes * corpus.kind.rejected.get(wishes.profile or "none", 0.0) for corpus in texts
    )
    share = lost / max(1, sum(corpus.text_bytes for corpus in texts))
    if share > 1 - LEAST_KEPT:
        raise NothingReadableError(
            f"{folder.path}: the profile {wishes.profile} would reject {share:.0%} of the sampled text, so "
            "no model can be made: name another kind with --for, or leave it out"
        )


def _chats(folder: Folder, wishes: Wishes) -> list[FoundCorpus]:
    """The corpora of conversations, if the user wants them to be learned and some of them can be held out."""
    if not wishes.chat:
        return []
    chats = [corpus for corpus in folder.corpora if corpus.shape.format == "chat" and _fits(corpus)]
    return chats if sum(chat.documents for chat in chats) > 1 else []


def _budget(
    texts: Sequence[FoundCorpus], chats: Sequence[FoundCorpus], wishes: Wishes, speed: Speed, spent: float
) -> Budget:
    in_all = max(1, sum(corpus.text_bytes for corpus in texts))
    share = min(1.0, MOST_DATA * wishes.seconds * DATA_BYTES_A_SECOND / in_all)
    kept = sum(corpus.text_bytes * (1 - _lost(corpus, wishes)) for corpus in texts)
    around = spent + PROGRAMS_AROUND * speed.program_seconds + share * in_all / DATA_BYTES_A_SECOND
    tuning = 0.0
    if chats:
        usual = SIZES[USUAL]
        pace = speed.of(usual, usual.vocab_size)
        usually = Tuning.of(chats, usual, usual.vocab_size, usual.seq_len, usual.batch)
        tuning = usually.planned(wishes.seconds, pace).seconds(pace)
        tuning += PROGRAMS_AROUND_TUNING * speed.program_seconds
    training = max(LEAST_TRAINING * wishes.seconds, AIM * wishes.seconds - around - tuning)
    return Budget(around, training, tuning, share, round(share * in_all), round(share * kept))


def _reading(corpus: FoundCorpus, share: float, wishes: Wishes) -> Reading:
    piece = None
    if corpus.shape.is_file:
        fitting = max(SMALLEST_PIECE, min(LARGEST_PIECE, corpus.text_bytes // PIECES))
        piece = fitting if corpus.longest > 2 * fitting else None
    profile = wishes.profile or corpus.kind.profile
    whole = Reading(corpus, profile, corpus.kind.foreign and profile != "none", None, piece)
    if share == 1:
        return whole
    return replace(whole, max_documents=max(1, round(_documents(whole) * share)))


def _length(text: Learned, seconds: float, speed: Speed) -> Length:
    """The size of the model and the tokens that fit into the time, by the measured speed of that size."""
    length = longest(text, seconds, speed.of)
    while speed.look(length.size, length.vocab_size):
        length = longest(text, seconds, speed.of)
    return length


def _window(chats: Sequence[FoundCorpus], length: Length) -> int:
    """Tokens of a window, into which nearly all conversations fit."""
    window, longest_chat = length.seq_len, max((chat.long_document for chat in chats), default=0)
    while window < LONGEST_WINDOW and window * _least_bytes_a_token(length.vocab_size) < longest_chat:
        window *= 2
    return window


def _horizon(length: Length, seq_len: int) -> Horizon:
    batch = max(length.global_batch_tokens, seq_len)
    tokens = max(1, length.tokens // batch) * batch
    warmup = min(WARMUP_STEPS * batch, int(WARMUP_SHARE * tokens))
    return Horizon(tokens, batch, length.most // batch * batch, warmup)


def _held_out(fewest: float, budget: Budget, length: Length) -> float:
    tokens = HELD_OUT_TOKENS * length.tokens
    most = tokens * bytes_a_token(length.vocab_size) / max(budget.text_bytes, 1)
    return round(max(min(MOST_HELD_OUT, most), fewest), 4)


def _fits(corpus: FoundCorpus, vocab_size: int = FEW_ENTRIES) -> bool:
    return corpus.long_document <= LONGEST_WINDOW * _least_bytes_a_token(vocab_size)


def _least_bytes_a_token(vocab_size: int) -> int:
    return 2 if vocab_size >= FEW_ENTRIES else 1


def _in_languages(corpus: FoundCorpus, wishes: Wishes) -> float:
    """The share of a corpus that is in the wished languages."""
    if not wishes.languages:
        return 1.0
    return sum(corpus.kind.languages.get(language, 0.0) for language in wishes.languages)


def _lost(corpus: FoundCorpus, wishes: Wishes) -> float:
    """The share of a corpus that quality rejects, as far as the sample tells."""
    by_profile = corpus.kind.rejected.get(wishes.profile or corpus.kind.profile, 0.0)
    return 1 - (1 - by_profile) * _in_languages(corpus, wishes)


def _documents(reading: Reading) -> int:
    corpus, piece = reading.corpus, reading.piece_bytes
    number = max(corpus.documents, -(-corpus.text_bytes // piece)) if piece else corpus.documents
    return min(number, reading.max_documents or number)
