"""How long a training must become so that everything ends at the deadline.

With `wsd` any length is exact until the learning rate begins to fall: a shorter or longer training goes on
from the state that it shares with the one before (docs/trainer.md). So the length is decided anew at the last
moment at which it can be, from the pace that the training has then.
"""

from dataclasses import dataclass, field, replace

from trainer.config.lr_schedule import ScheduleConfig
from trainer.system.clock import since_boot

AIM = 0.97  # share of the time: the rest is for what nobody foresees
# Share of the training over which the learning rate falls. With less of it the length is decided later.
DECAY = 0.3
# What takes so many times as long as a short program: to evaluate, export, check and show a model; and to
# stop one training and begin the next. Measured on two cores with one to thirteen other programs.
FINISHING, RESTARTING = 4.2, 3.0
# For a restart: share of the time by which the end must be missed, how many times what it costs a shorter
# training must save, and the share by which a longer one must grow.
MISSED, SAVED, GROWN = 0.04, 2.0, 0.03
LEAD_SECONDS = 2.0  # that a trainer takes to stop, and a step at least


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


@dataclass(frozen=True)
class Horizon:
    """The length of a training: `tokens`, in steps of `batch` tokens. More than `most` tokens teach nothing.
    The learning rate rises over the first `warmup` tokens.
    """

    tokens: int
    batch: int
    most: int
    warmup: int

    @property
    def stable(self) -> int:
        """Tokens before the learning rate begins to fall."""
        return ScheduleConfig(kind="wsd", decay_fraction=DECAY).stable_tokens(self.tokens)

    @property
    def limit(self) -> str:
        """What ends the training: `time` or `text`."""
        return "time" if self.tokens < self.most else "text"

    def changed_from(self, before: int) -> str:
        """How its length differs from that of `before` tokens, and why, in words."""
        goal = "to end in time" if self.limit == "time" else "to all that the text is worth"
        return f"{'shortened' if self.tokens < before else 'lengthened'} from {before:,} {goal}"

    def resized(self, wanted: float, reached: float) -> "Horizon":
        """The horizon next to `wanted` tokens whose learning rate does not fall before `reached` tokens."""
        least = max(reached, self.warmup) / (1 - DECAY)
        steps = max(int(wanted // self.batch), int(least // self.batch) + 2)
        return replace(self, tokens=min(steps * self.batch, max(self.most, self.tokens)))


@dataclass(frozen=True)
class Standing:
    """The progress of a training: `tokens` are done, and each token takes `seconds_a_token`. Of the `given`
    seconds, `left` are left for the training and for what follows it. That takes as long as so many short
    `programs`, of `program_seconds` each.
    """

    tokens: float
    seconds_a_token: float
    program_seconds: float
    left: float
    given: float
    programs: float = FINISHING

    def late(self, tokens: float) -> float:
        """How many seconds after the time that is aimed at all ends, if the training ends after so many
        `tokens`.
        """
        needed = (tokens - self.tokens) * self.seconds_a_token + self.programs * self.program_seconds
        return needed - (self.left - (1 - AIM) * self.given)

    def fitting(self, planned: Horizon) -> Horizon:
        """The horizon with which a restart ends nearest to the deadline, in place of the `planned` one."""
        return planned.resized(self._wanted, min(self.tokens, planned.stable))

    @property
    def _wanted(self) -> float:
        """The tokens with which a restart would end in time."""
        room = -self.late(self.tokens) - RESTARTING * self.program_seconds
        return self.tokens + room / self.seconds_a_token

    def must_change(self, planned: Horizon) -> bool:
        """Whether this is the last moment for another horizon, and the end nears the deadline with it."""
        late, fitting = self.late(planned.tokens), self.fitting(planned)
        reached = self.tokens + max(LEAD_SECONDS / self.seconds_a_token, planned.batch)
        sooner = (planned.tokens - fitting.tokens) * self.seconds_a_token
        if late > MISSED * self.given:
            worth = sooner > SAVED * RESTARTING * self.program_seconds
            return worth and reached >= planned.resized(self._wanted, reached=0).stable
        longer = late < -MISSED * self.given and fitting.tokens > (1 + GROWN) * planned.tokens
        return longer and reached >= planned.stable > self.tokens
