"""What the line at the bottom of a terminal says, in the columns that there are."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from trainer.system.clock import since_boot

PAINTED_EVERY_SECONDS = 0.2
BAR_COLUMNS = (10, 30)  # fewer say little; more take the eye from the numbers
SPINNER, PLAIN_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"


class Progress(NamedTuple):
    """How far something was when it was `updated`. `share` is what is done, from 0 to 1, if that is known."""

    share: float | None
    facts: Sequence[str]
    seconds_left: float | None
    updated: float


def status_line(
    what: str, begun: float, progress: Progress, columns: int, plain: bool, whole: tuple[float, float] | None
) -> str:
    """The line in at most so many columns, of something that has `begun`. `plain` asks for ASCII. With a
    `whole`, the times at which that began and ends, the bar shows how much of it is over.
    """
    from tqdm.utils import disp_len, disp_trim

    share, known, left, updated = progress
    facts = [*known]
    seconds, spinner = time.monotonic() - begun, PLAIN_SPINNER if plain else SPINNER
    beginning = [spinner[int(seconds / PAINTED_EVERY_SECONDS) % len(spinner)], what]
    end = _clock(seconds)
    if share is not None:
        beginning = [what, f"{share:4.0%}"]
        end = f"{_clock(max(0.0, left - (time.monotonic() - updated)))} left" if left is not None else ""
    if whole:
        now = since_boot()
        ends = max(whole[1], now)
        named = f"{what} {share:.0%}" if share is not None else what
        then = time.localtime(time.time() + ends - now)
        share = (now - whole[0]) / (ends - whole[0])
        end = f"ends about {time.strftime('%H:%M', then)}"
        beginning = [disp_trim(named, max(1, columns - len(end) - 2))]

    def text() -> str:
        return "  ".join(filter(None, [" ".join(beginning), *facts, end]))

    # The bar of the whole is worth more than the facts.
    fewest, least = (0, BAR_COLUMNS[0] + 1) if whole else (1, 0)
    while len(facts) > fewest and disp_len(text()) > columns - least:
        facts.pop()
    room = columns - disp_len(text()) - 1
    if share is not None and room < -1:
        beginning = beginning[1:]
    elif share is not None and room >= BAR_COLUMNS[0]:
        beginning.append(_bar(share, min(BAR_COLUMNS[1], room), plain))
    return disp_trim(text(), columns)


def short(number: float) -> str:
    """Such as "12.3 M" for 12,300,000."""
    for power, letter in ((9, "G"), (6, "M"), (3, "k")):
        if number >= 10**power:
            return f"{number / 10**power:.1f} {letter}"
    return f"{number:.0f}"


def _bar(share: float, columns: int, plain: bool) -> str:
    full, empty = "#." if plain else "█░"
    done = int(min(max(share, 0.0), 1.0) * columns)
    return full * done + empty * (columns - done)


def _clock(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
