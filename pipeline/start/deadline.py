"""How much of the time that a person gave is left."""

from dataclasses import dataclass, field

from trainer.system.clock import since_boot


@dataclass(frozen=True)
class Deadline:
    """The time in so many `seconds` from now."""

    seconds: float
    began: float = field(default_factory=since_boot)

    @property
    def spent(self) -> float:
        return since_boot() - self.began

    @property
    def left(self) -> float:
        return self.seconds - self.spent
