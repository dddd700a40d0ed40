"""How long a model learns to answer, and in how large steps."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from pipeline.start.folder.look import FoundCorpus
from pipeline.start.sizes import SIZES, USUAL, Size, bytes_a_token

SHARE, MOST_EPOCHS = 0.15, 3.0  # of the time; passes over the conversations, if these make enough steps
# A small model learns to end its answers by the number of its steps, however few conversations there are. One
# of 1.4 M parameters ended no answer after two steps, and after 100 nearly all that are a sentence. Longer
# answers take more.
FEWEST_STEPS, WANTED_STEPS = 100, 300
SMALLEST_BATCH = 512
# The peak of AdamW's rate for sizes up to the usual one, and beyond.
SMALL_RATE, LARGE_RATE = 2e-3, 1e-3
# The share of the tuning that is text of the pretraining, so that it is not forgotten. A small model with few
# steps cannot do both: with this share it ended 45 to 54 of 60 answers of several sentences, without it 59.
# With enough steps it can: three passes over 1,455 questions raised the loss on text of a model of 7.4 M
# parameters by .61, and by 1.94 without rehearsal. Of its drawn answers 80 and 79 of 80 end.
REHEARSAL = 0.2


@dataclass(frozen=True)
class Tuning:
    """The training on conversations. A pass over them is `pass_tokens`. A step has at least `smallest` tokens
    and at most `largest`. `large` says whether the model is beyond the usual size. The `tokens` that are
    read, and the share of `rehearsal` among them, follow from the time.
    """

    pass_tokens: float
    smallest: int
    largest: int
    large: bool
    tokens: float = 0.0
    rehearsal: float = 0.0

    @classmethod
    def of(
        cls,
        chats: Iterable[FoundCorpus],
        size: Size,
        vocab_size: int,
        seq_len: int,
        largest: int,
        processes: int = 1,
    ) -> Self:
        """The tuning on `chats`, before its time is known. `largest`: the tokens of a step of the
        pretraining, in which so many `processes` take part. Each of them needs a window of a step.
        """
        tokens = sum(chat.text_bytes for chat in chats) / bytes_a_token(vocab_size)
        large = SIZES.index(size) > USUAL
        smallest = max(SMALLEST_BATCH, processes * seq_len)
        return cls(max(1.0, tokens), smallest, max(SMALLEST_BATCH, largest), large)

    @property
    def rate(self) -> float:
        """The peak of the learning rate."""
        return LARGE_RATE if self.large else SMALL_RATE

    @property
    def epochs(self) -> float:
        """Passes over the conversations."""
        return self.tokens * (1 - self.rehearsal) / self.pass_tokens

    @property
    def batch(self) -> int:
        """The tokens of a step: the largest batch that leaves as many steps as are wanted."""
        batch = self.smallest
        while 2 * batch <= min(self.largest, self.tokens / WANTED_STEPS):
            batch *= 2
        return batch

    def fitting(self, seconds: float, tokens_per_second: float) -> Self:
        """The tuning that fits into so many seconds, but never one so short that no answer would end.
        `tokens_per_second`: the speed of the pretraining.
        """
        wanted = WANTED_STEPS * self.smallest
        time = max(FEWEST_STEPS * self.smallest, seconds * tokens_per_second)
        most = max(wanted, MOST_EPOCHS * self.pass_tokens)
        enough = min(most, time * (1 - REHEARSAL)) >= wanted
        rehearsal = REHEARSAL if enough or self.large else 0.0
        return replace(self, tokens=min(most / (1 - rehearsal), time), rehearsal=rehearsal)

    def planned(self, given: float, tokens_per_second: float) -> Self:
        """The tuning that fits into its share of the `given` seconds."""
        return self.fitting(SHARE * given, tokens_per_second)

    def seconds(self, tokens_per_second: float) -> float:
        return self.tokens / tokens_per_second
