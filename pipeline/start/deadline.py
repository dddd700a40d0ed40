"""How much of the time that a person gave is left."""

import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Deadline:
    """The time in so many `seconds` from now."""

    seconds: float
    began: float = field(default_factory=time.monotonic)

    @property
    def spent(self) -> float:
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        return self.seconds - self.spent
