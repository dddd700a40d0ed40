"""A conversation in the terminal: what is a command, and what is asked."""

import io
from typing import Any

import pytest

from trainer.tools.chat.terminal import HELP, talk


class Model:
    """Answers with what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def answer(self, said: str) -> list[str]:
        self.asked.append(said)
        return [said]

    def reset(self) -> None:
        self.asked.append("(anew)")


def asked(*lines: str) -> tuple[list[str], str]:
    """What reached the model, and what was printed."""
    model: Any = Model()
    out = io.StringIO()
    talk(model, io.StringIO("".join(f"{line}\n" for line in lines)), out)
    return model.asked, out.getvalue()


def test_help_is_shown_and_no_question() -> None:
    questions, shown = asked("/help", "Hello")
    assert questions == ["Hello"] and shown.count(HELP) == 2


@pytest.mark.parametrize("end", ["/quit", "/exit"])
def test_quit_ends_the_conversation(end: str) -> None:
    assert asked("Hello", end, "Are you there?")[0] == ["Hello"]


def test_a_mistyped_command_is_told_and_no_question() -> None:
    questions, shown = asked("/rest", "/reset", "Hello")
    assert questions == ["(anew)", "Hello"] and "/rest is not a command. " in shown


@pytest.mark.parametrize("said", ["/usr/bin is what?", "/usr/bin", "What is /help?"])
def test_a_question_that_begins_with_a_slash_is_asked(said: str) -> None:
    assert asked(said)[0] == [said]
