"""How long a finished training took, how fast it was, and what it cost."""

from dataclasses import dataclass

from pipeline.store.manifest import Version


@dataclass(frozen=True)
class Effort:
    """What all attempts of a training took together. `usd` is None where the recipe names no price."""

    tokens: int
    hours: float
    usd: float | None

    @classmethod
    def of(cls, model: Version, usd_per_hour: float | None) -> "Effort":
        hours = model.seconds / 3600
        return cls(model.counts["tokens"], hours, None if usd_per_hour is None else hours * usd_per_hour)

    @property
    def tokens_per_second(self) -> int:
        return round(self.tokens / (3600 * max(self.hours, 1e-6)))

    def __str__(self) -> str:
        cost = "" if self.usd is None else f", {self.usd:.2f} USD"
        return f"{self.tokens:,} tokens in {self.hours:.2f} h, {self.tokens_per_second:,} tokens/s{cost}"
