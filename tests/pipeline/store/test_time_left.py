"""Long work says how far it is, and not too often."""

import logging

import pyarrow as pa
import pytest

from pipeline.stages import bpe
from pipeline.store.engines.local import TimeLeft


def test_a_line_every_five_seconds_says_what_is_done_and_the_time_left_at_the_present_speed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    caplog.set_level(logging.INFO)
    left = TimeLeft("tokenizer: %.0f of %.0f merges")
    for clock[0], done in ((1.0, 5), (4.9, 9), (5.0, 10), (6.0, 20), (10.0, 60), (20.0, 100)):
        left.reach(done, 100)
    assert caplog.messages == [
        "tokenizer: 10 of 100 merges, about 45 s left",
        "tokenizer: 60 of 100 merges, about 4 s left",
    ]


def test_training_counts_its_merges_up_to_the_last() -> None:
    seen: list[tuple[int, int]] = []
    text = pa.array([" ".join(map(str, range(2000))) * 2])
    bpe.train([text], bpe.TokenizerParams(vocab_size=600), lambda *progress: seen.append(progress))
    assert seen == sorted(seen) and len(seen) > 2 and seen[-1] == (340, 340)
