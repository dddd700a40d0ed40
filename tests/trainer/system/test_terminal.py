"""A person in a terminal sees a bar below whole lines; a log gets lines and not one carriage return."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pseudo_terminal import CTRL_C, InTerminal
from trainer.system import terminal

ROOT = Path(__file__).parents[3]
BEGIN = """import logging, os, subprocess, sys, time
from trainer.system import terminal
terminal.begin()
"""
TRAINS = """
with terminal.doing("training") as bar:
    bar.update(0.4, ["loss 4.213", "step 40 of 100", "3,912 tokens/s", "validation 4.551"], 95.0)
    time.sleep(0.7)
"""


def command(script: str) -> list[str]:
    return [sys.executable, "-c", BEGIN + script]


def environment(**variables: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **variables}


def shown_by(script: str, columns: int = 110, **variables: str) -> InTerminal:
    return InTerminal(command(script), columns, environment(**variables))


def test_a_terminal_shows_a_bar_with_the_time_left_and_is_clean_at_the_end() -> None:
    with shown_by(TRAINS) as shown:
        assert shown.to_the_end() == 0
    facts = "loss 4.213  step 40 of 100  3,912 tokens/s  validation 4.551  1:3"
    assert shown.seen("training  40% ████", "░░░", facts, " left")
    assert shown.lines == [""]


def test_a_narrow_terminal_keeps_loss_and_time_left_in_one_line() -> None:
    with shown_by(TRAINS, 40) as shown:
        shown.to_the_end()
    assert shown.seen("training  40%  loss 4.213", " left")
    assert all(len(screen) == 1 for screen in shown.screens)


def test_what_anybody_writes_is_in_whole_lines_above_the_bar() -> None:
    script = """
logging.basicConfig(format="%(message)s")
with terminal.doing("reading the shards"):
    time.sleep(0.5)
    logging.warning("a warning")
    os.write(2, b"half a ")
    time.sleep(0.3)
    os.write(2, b"line\\n")
    subprocess.run(["sh", "-c", "echo a child >&2"])
    time.sleep(0.3)
    os.write(2, b"no end of the line")
print("the result")
"""
    with shown_by(script) as shown:
        assert shown.to_the_end() == 0
    said = ["a warning", "half a line", "a child", "no end of the line", "the result", ""]
    assert shown.lines == said
    assert shown.seen("reading the shards  0:00")
    for screen in shown.screens:  # nothing in the middle of anything
        assert all(line in said or line[2:].startswith("reading the shards  0:0") for line in screen)


def test_a_program_without_a_result_may_print_on_standard_output_too() -> None:
    begin = BEGIN.replace("begin()", "begin('running')")
    script = f"{begin}time.sleep(0.5)\nsubprocess.run(['echo', 'a child'])\ntime.sleep(0.3)\n"
    with InTerminal([sys.executable, "-c", script], environment=environment()) as shown:
        assert shown.to_the_end() == 0
    assert shown.lines == ["a child", ""]
    assert any(screen[0] == "a child" and screen[-1][2:].startswith("running") for screen in shown.screens)


def test_what_is_inside_something_else_is_shown_instead_of_it() -> None:
    script = """
with terminal.doing("the whole"):
    time.sleep(0.5)
    with terminal.doing("a part"):
        time.sleep(0.5)
    time.sleep(0.5)
"""
    with shown_by(script) as shown:
        shown.to_the_end()
    told = ["".join(screen)[2:-6] for screen in shown.screens if "".join(screen)]
    assert list(dict.fromkeys(told)) == ["the whole", "a part"]
    assert told[-1] == "the whole"


def test_ctrl_c_leaves_a_clean_terminal() -> None:
    script = "with terminal.doing('waiting'):\n    time.sleep(60)\n"
    with shown_by(script, PYTHON_COLORS="0") as shown:
        shown.until(lambda lines: "waiting" in lines[-1])
        shown.press(CTRL_C)
        assert shown.to_the_end() != 0
    assert shown.lines[-2:] == ["KeyboardInterrupt", ""]


@pytest.mark.parametrize("in_terminal", [False, True])
def test_without_a_terminal_that_can_clear_a_line_there_are_plain_lines_for_what_takes_a_while(
    in_terminal: bool,
) -> None:
    script = """
logging.basicConfig(format="%(message)s", level=logging.INFO)
with terminal.doing("quick work"):
    time.sleep(0.1)
with terminal.doing("slow work") as work:
    time.sleep(2)
    work.update(0.5, ["half of it"])
    logging.info("half is done", extra=terminal.IN_LINE)
"""
    if in_terminal:
        with shown_by(script, TERM="dumb") as shown:
            shown.to_the_end()
        said = shown.raw.replace(b"\r\n", b"\n")
    else:
        said = subprocess.run(command(script), env=environment(), capture_output=True, check=True).stderr
    assert said == b"slow work\nhalf is done\n"


def test_a_terminal_leaves_out_lines_that_say_what_the_bar_shows() -> None:
    script = """
handler = logging.StreamHandler(sys.stderr)
handler.addFilter(terminal.is_news)
logging.basicConfig(format="%(message)s", level=logging.INFO, handlers=[handler])
logging.info("loss 4", extra=terminal.IN_LINE)
logging.info("saved")
"""
    with shown_by(script) as shown:
        shown.to_the_end()
    assert shown.lines == ["saved", ""]


def test_a_terminal_without_utf_8_gets_ascii() -> None:
    with shown_by(TRAINS, PYTHONIOENCODING="ascii") as shown:
        shown.to_the_end()
    assert shown.seen("training  40% ####", "....") and shown.raw.isascii()


def test_a_crash_says_where_although_nobody_is_left_to_pass_it_on() -> None:
    script = "import faulthandler\nfaulthandler.enable()\nwith terminal.doing('x'):\n    os.abort()\n"
    with shown_by(script) as shown:
        assert shown.to_the_end() < 0
    assert shown.seen("Fatal Python error: Aborted")


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=40),
    st.one_of(st.none(), st.floats(0, 1)),
    st.lists(st.text("loss 4.213", max_size=20), max_size=5),
    st.one_of(st.none(), st.floats(0, 1e6)),
    st.integers(1, 200),
)
def test_the_line_fits_into_any_terminal(
    what: str, share: float | None, facts: list[str], left: float | None, columns: int
) -> None:
    from tqdm.utils import disp_len

    activity = terminal.Activity(what)
    activity.update(share, facts, left)
    for plain in (False, True):
        assert disp_len(activity.line(columns, plain)) <= columns


def test_what_is_counted_shows_its_speed() -> None:
    reading = terminal.Activity("reading")
    more = reading.counter("bytes")
    more(3_000_000)
    more(500)
    assert "reading  3.0 M bytes  " in reading.line(100, plain=True)
    assert " a second  0:00" in reading.line(100, plain=True)
