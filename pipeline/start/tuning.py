"""How long a model learns to answer, and in how large steps."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from pipeline.start.look import Found
from pipeline.start.sizes import SIZES, USUAL, Size, bytes_a_token

SHARE, MOST_EPOCHS = 0.15, 3.0  # of the time; passes over the conversations, if these make enough steps
# A small model learns to end its answers by the number of its steps, however few conversations there are. One
# of 1.4 M parameters ended no answer after two steps, and after 100 nearly all that are a sentence. Longer
# answers take more.
FEWEST_STEPS, WANTED_STEPS = 100, 300
SMALLEST_BATCH = 512
# The peak of AdamW's rate, and the share of the tuning that is text of the pretraining, so that it is not
# forgotten: for sizes up to the usual one, and beyond. A small model cannot do both. With a share of .2 it
# ended 45 to 54 of 60 answers of several sentences, without one 59; its loss on text rose by .3 and by .5.
SMALL, LARGE = (2e-3, 0.0), (1e-3, 0.2)


@dataclass(frozen=True)
class Tuning:
    """`pass_tokens`: of a pass over the conversations, with the text that is rehearsed. A step has at least
    `smallest` tokens and at most `largest`. `rate`: the peak. `rehearsal`: the share of that text. `tokens`:
    how many are learnt, once that is known.
    """

    pass_tokens: float
    smallest: int
    largest: int
    rate: float
    rehearsal: float
    tokens: float = 0.0

    @classmethod
    def of(cls, chats: Iterable[Found], size: Size, vocab_size: int, seq_len: int, largest: int) -> Self:
        """`largest`: tokens of a step of the pretraining."""
        rate, rehearsal = SMALL if SIZES.index(size) <= USUAL else LARGE
        tokens = sum(one.text_bytes for one in chats) / bytes_a_token(vocab_size) / (1 - rehearsal)
        return cls(
            max(1.0, tokens), max(SMALLEST_BATCH, seq_len), max(SMALLEST_BATCH, largest), rate, rehearsal
        )

    @property
    def epochs(self) -> float:
        return self.tokens / self.pass_tokens

    @property
    def batch(self) -> int:
        """Tokens of a step, as many as leave as many steps as are wanted."""
        batch = self.smallest
        while 2 * batch <= min(self.largest, self.tokens / WANTED_STEPS):
            batch *= 2
        return batch

    def fitting(self, seconds: float, tokens_per_second: float) -> Self:
        """As long as fits into so many seconds, but not so short that no answer would end.
        `tokens_per_second`: of the pretraining.
        """
        least, wanted = FEWEST_STEPS * self.smallest, WANTED_STEPS * self.smallest
        most = max(wanted, MOST_EPOCHS * self.pass_tokens)
        return replace(self, tokens=min(most, max(least, seconds * tokens_per_second)))

    def planned(self, given: float, tokens_per_second: float) -> Self:
        """With its share of the `given` seconds."""
        return self.fitting(SHARE * given, tokens_per_second)

    def seconds(self, tokens_per_second: float) -> float:
        return self.tokens / tokens_per_second
