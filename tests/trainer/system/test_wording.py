"""Sentences about one thing do not speak of several, and name values without words of Python."""

import os
import subprocess
from decimal import Decimal
from typing import Any

import pytest

from trainer.system.wording import counted, kind_of, shell_word


@pytest.mark.parametrize(
    ("number", "many", "said"),
    [
        (0, "versions", "0 versions"),
        (1, "versions", "1 version"),
        (1, "training runs", "1 training run"),
        (1, "rows or files", "1 row or file"),
        (1, "corpora", "1 corpus"),
        (1200, "corpora", "1,200 corpora"),
    ],
)
def test_a_number_and_what_it_counts(number: int, many: str, said: str) -> None:
    assert counted(number, many) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "null"),
        (True, "true or false"),
        (3, "a whole number"),
        (0.5, "a number"),
        ([], "a list"),
        ({}, "an object"),
        (Decimal(1), "a value of type Decimal"),
    ],
)
def test_what_a_value_is(value: Any, said: str) -> None:
    assert kind_of(value) == said


@pytest.mark.parametrize(
    "name",
    [b"/a/b.yaml", b"it's $HOME", b"caf\xe9", b"two\nlines \\ of 'it'", "\u00e9\u200b\t\u20ac".encode()],
)
def test_a_command_can_be_pasted_whatever_a_file_is_called(name: bytes) -> None:
    word = shell_word(os.fsdecode(name))
    assert word.isprintable()
    pasted = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert pasted.stdout == name
