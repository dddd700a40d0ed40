"""Whether answers have the form that a row asks for. A form is a regular expression by whoever made the data,
and may search forever. So another process searches, with an alarm: this file, run by path.

The process reads a line for each answer: a JSON list of a form, or null, and a text. For each line it prints
true, false, or null when the time was up.
"""

import json
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Sequence
from typing import TextIO

SECONDS = 1.0  # for one answer


def have_form(forms_and_texts: Sequence[tuple[str | None, str]]) -> list[bool | None]:
    """Whether each text has the form beside it. The answer is None without a form, and where SECONDS do not
    suffice to tell. Such a form is not tried on another text.
    """
    lines = "".join(f"{json.dumps(pair)}\n" for pair in forms_and_texts)
    command = [sys.executable, "-P", __file__]
    done = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main(lines: TextIO) -> None:
    warnings.simplefilter("ignore")  # of what a later version may read otherwise
    signal.signal(signal.SIGALRM, _time_is_up)
    slow: set[str | None] = {None}
    for line in lines:
        form, text = json.loads(line)
        fits = None
        try:
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            fits = None if form in slow else re.fullmatch(form, text) is not None
            signal.setitimer(signal.ITIMER_REAL, 0)
        except TimeoutError:
            slow.add(form)
        print(json.dumps(fits))


def _time_is_up(*_: object) -> None:
    raise TimeoutError


if __name__ == "__main__":
    main(sys.stdin)
