"""Sentences about one thing do not speak of several."""

import pytest

from trainer.system.wording import counted


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
