"""Which model can be trained in the time and on the text that there are."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainer.config import OptimizerConfig
from trainer.config.model import ModelConfig

# Muennighoff et al. 2023, "Scaling Data-Constrained Language Models" (arXiv 2305.16264), equation 5 and
# section 6: what is read again is worth less each time; four epochs are nearly as good as new text, and after
# sixteen nothing is gained.
HALF_WORTH, FULL_EPOCHS, MOST_EPOCHS = 15.4, 4.0, 16.0


@dataclass(frozen=True)
class Regularized:
    """What keeps a model from learning a text by heart.

    `dropout` is for a text for which there is time `from_times` as often as is good without, and that is read
    at most `times` as often. It suits vocabularies of at most so many `entries`: of larger texts more passes
    teach nothing (docs/performance/folders.md). Each step takes the rate times the weight decay from a
    weight, and all steps `decayed`, the product that matters (Wang and Aitchison 2024, arXiv 2405.13698).
    `rates` is the share of the usual learning rates.
    """

    from_times: float
    times: float
    dropout: float
    decayed: float
    rates: float = 1.0
    entries: int = 0


PLAIN = Regularized(0, 1, 0.0, 2.5)
SMALLEST_WITH_DROPOUT = (
    Regularized(3, 4, 0.2, 4.0, rates=0.7, entries=2_048),
    Regularized(1, 2, 0.1, 2.0, entries=2_048),
)
WITH_DROPOUT = (Regularized(2, 2, 0.2, 2.5, entries=1_024),)  # of the sizes next to it
# Without dropout, the smallest becomes better by decay only in a long training over text that is repeated.
LONG_STEPS, REPEATED = 2_000, 3.0
# The usual rates, of embedding and head, and of the matrices in blocks.
LR, MUON_LR = OptimizerConfig().lr, OptimizerConfig().muon_lr
USUAL = 2  # the shape of the default recipe, which is measured first
FEWEST_STEPS = 100
LITTLE_TEXT = 1_000_000  # tokens
FEWEST_ENTRIES = 320  # of a vocabulary: the 256 bytes, the control tokens and a few pairs


@dataclass(frozen=True)
class Size:
    """A model and how it is trained at its best. `batch`: tokens of a step, with enough time. From
    `tokens_a_parameter` of its blocks on, it learns more in the same time than the size before it. With time
    for all passes, it learns more of a text that has a token for `parameters_a_token` of its blocks.
    """

    n_layers: int
    d_model: int
    n_heads: int
    d_ff: int
    seq_len: int
    batch: int
    vocab_size: int  # at most
    tokens_a_parameter: int
    parameters_a_token: int = 0  # 0 where this was not measured

    @property
    def shape(self) -> dict[str, Any]:
        heads = {"n_heads": self.n_heads, "n_kv_heads": self.n_heads}
        return {
            "n_layers": self.n_layers,
            "d_model": self.d_model,
            **heads,
            "d_ff": self.d_ff,
            "qk_norm": True,
        }

    @property
    def model(self) -> ModelConfig:
        return ModelConfig(**self.shape)

    @property
    def words(self) -> str:
        return f"{self.n_layers} layers of width {self.d_model}"

    @property
    def of_blocks(self) -> int:
        """Parameters without embedding and head."""
        return self.model.parameters(0)


# docs/performance/folders.md has the runs from which the tokens of the first three follow, those of the third
# by a law of the form of Hoffmann et al. 2022 (arXiv 2203.15556). By the same law, 8 begin the fourth.
SIZES = (
    Size(2, 128, 2, 344, 128, 2_048, 4_096, 0),
    Size(3, 192, 3, 512, 256, 2_048, 4_096, 2, 5),
    Size(4, 256, 4, 688, 256, 2_048, 8_192, 5, 55),
    Size(6, 384, 6, 1_024, 512, 16_384, 8_192, 8),
    Size(8, 512, 8, 1_376, 512, 32_768, 16_384, 8),
    Size(12, 768, 12, 2_048, 1_024, 131_072, 32_768, 8),
    Size(16, 1_024, 16, 2_736, 1_024, 262_144, 32_768, 8),
    Size(24, 1_536, 24, 4_096, 2_048, 524_288, 50_000, 8),
    Size(24, 2_048, 32, 5_504, 2_048, 524_288, 50_000, 8),
)
# How far from the best size so far others are, in the order in which they are tried. Neighbors differ least.
AWAY = (-2, 2, 1, -1)


def others(best: Size) -> Iterator[Size]:
    """The other sizes that are tried in the time that little text leaves."""
    places = (SIZES.index(best) + steps for steps in AWAY)
    yield from (SIZES[place] for place in places if 0 <= place < len(SIZES))


def ranked(tried: Mapping[Size, float]) -> str:
    """The sizes and their bits per byte in words, the best first."""
    scores = sorted(tried.items(), key=lambda one: one[1])
    return ", ".join(f"{score:.3f} with {size.words}" for size, score in scores)


@dataclass(frozen=True)
class Length:
    """A size, and how long a model of it is trained: over `tokens`, of which `unique` are different ones, in
    `text_bytes` of text. More than `most` tokens teach nothing with this `dropout`. The `weight_decay` suits
    these tokens. It stays when the length of the training is changed, which goes on from the same weights.
    """

    size: Size
    vocab_size: int
    global_batch_tokens: int
    tokens: int
    text_bytes: int
    unique: int
    most: int
    dropout: float
    rates: float  # the share of the usual learning rates
    weight_decay: float
    limit: str  # what ends the training: `time` or `text`

    @property
    def epochs(self) -> float:
        return self.tokens / self.unique

    @property
    def is_fed(self) -> bool:
        """Whether the tokens are enough for the size."""
        enough = worth(self.tokens, self.unique) >= self.size.tokens_a_parameter * self.size.of_blocks
        return enough or self.is_for_repeats

    @property
    def is_for_repeats(self) -> bool:
        """Whether there is time for the passes over a text that is large enough for the size."""
        return self.epochs >= REPEATED and self.size.of_blocks <= self.size.parameters_a_token * self.unique

    @property
    def seq_len(self) -> int:
        """Tokens of a window: few where a large model repeats little text. Of 195 kB of mail the third size
        came to 2.228 bits per byte in windows of 128 tokens, and to 2.266 in windows of 256.
        """
        short = self.epochs >= REPEATED and self.unique < LITTLE_TEXT
        return SIZES[0].seq_len if short else self.size.seq_len

    @property
    def parameters(self) -> int:
        return self.size.model.parameters(self.vocab_size)


def worth(tokens: float, unique: float) -> float:
    """How many new tokens teach as much as `tokens` of a text that has only `unique` ones."""
    repeats = min(tokens / unique, MOST_EPOCHS) - 1
    return tokens if repeats <= 0 else unique * (1 + HALF_WORTH * (1 - math.exp(-repeats / HALF_WORTH)))


def vocabulary(text_bytes: int, size: Size) -> int:
    """Entries: few for little text, in which a long tail of words is never learned."""
    steps = (
        (30_000, FEWEST_ENTRIES),
        (300_000, 1_024),
        (1_000_000, 2_048),
        (10_000_000, 4_096),
        (1_000_000_000, 8_192),
        (10_000_000_000, 16_384),
    )
    return min(size.vocab_size, next((entries for most, entries in steps if text_bytes < most), 50_000))


def bytes_a_token(vocab_size: int) -> float:
    """How many bytes of English a token stands for on average, where the text is as large as `vocabulary`
    wants it for so many entries. Encyclopedia, novels, proposals and Python's documentation have up to a
    tenth more or less.
    """
    measured = ((320, 1.6), (1_024, 3.0), (2_048, 3.3), (4_096, 3.7), (8_192, 4.1))
    return next((size for entries, size in measured if vocab_size <= entries), 4.4)


@dataclass(frozen=True)
class Learned:
    """Text that is learned, and how many times as many bytes as usual one of its tokens has."""

    text_bytes: int
    density: float = 1.0

    def tokens(self, vocab_size: int) -> int:
        return max(1, round(self.text_bytes / (self.density * bytes_a_token(vocab_size))))


def longest(text: Learned, seconds: float, tokens_per_second: Callable[[Size, int], float]) -> Length:
    """The largest size that sees enough text in so many seconds of training, and its length. Repeated text
    counts as `worth` says.
    """
    lengths = [length_of(size, text, seconds, tokens_per_second) for size in SIZES]
    return next(one for one in reversed(lengths) if one.is_fed)


def length_of(
    size: Size, text: Learned, seconds: float, tokens_per_second: Callable[[Size, int], float]
) -> Length:
    """The length of one size, by the same rules."""
    vocab_size = vocabulary(text.text_bytes, size)
    unique = text.tokens(vocab_size)
    # A model with more parameters than tokens learns a text by heart when it reads it often. The smallest had
    # 2.46 bits per byte after 4 passes over 440 kB of encyclopedia and 2.65 after 8; of 2.9 MB it had 2.05
    # after 4.5 passes and 2.10 after 7.
    passes = min(MOST_EPOCHS, max(FULL_EPOCHS, FULL_EPOCHS * unique / size.model.parameters(vocab_size)))
    possible = seconds * tokens_per_second(size, vocab_size)
    smallest = size == SIZES[0]
    with_dropout = SMALLEST_WITH_DROPOUT if smallest else WITH_DROPOUT if size.parameters_a_token else ()
    against = (one for one in with_dropout if vocab_size <= one.entries)
    chosen = next((one for one in against if possible > one.from_times * passes * unique), PLAIN)
    of_text = min(MOST_EPOCHS, passes * chosen.times) * unique
    tokens = min(possible, of_text)
    batch = size.batch
    while batch > 2 * size.seq_len and tokens / batch < FEWEST_STEPS:
        batch //= 2
    steps = max(2, int(tokens / batch))
    gains = tokens >= REPEATED * unique and (steps >= LONG_STEPS or not smallest)
    decay = chosen.decayed / (chosen.rates * MUON_LR * steps) if chosen.dropout or gains else 0.0
    return Length(
        size,
        vocab_size,
        batch,
        tokens=steps * batch,
        text_bytes=text.text_bytes,
        unique=unique,
        most=round(of_text),
        dropout=chosen.dropout,
        rates=chosen.rates,
        weight_decay=float(f"{decay:.2g}"),
        limit="time" if possible <= of_text else "text",
    )
