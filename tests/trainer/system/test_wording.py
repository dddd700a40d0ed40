"""Sentences about one thing do not speak of several, and name values without words of Python."""

import os
import subprocess
from decimal import Decimal
from typing import Any

import pytest

from trainer.system.wording import begins, counted, kind_of, shell_word


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


def test_a_training_of_many_corpora_that_shares_steps_begins_with_one_line() -> None:
    start = {
        "parameters": 1_000,
        "flops_per_token": 5e6,
        "device": "cuda",
        "processes": 8,
        "precision": "bf16",
    }
    start |= {"attention": "flash", "tokens_total": 5_000_000, "resumed_from": None}
    start |= {
        "epochs": {f"corpus{n}": n / 4 for n in range(1, 9)},
        "padding": {"corpus1": 0.02, "corpus2": 0},
    }
    start |= {"trunks": [{"run": "aa", "step": 10}, {"run": "bb", "step": 1_200}]}
    assert begins(start) == (
        "begins: 1,000 parameters, 5.0 MFLOP per token, bf16 on cuda, 8 processes, attention flash; "
        "5,000,000 tokens, 0.25 to 2.00 epochs of 8 corpora; up to 2.0% padding; "
        "its first 1,200 steps are those of run bb"
    )
