"""A run in stages: each has its tokens, windows, batch, mixture and learning rate, exactly, from any position
and however often it is resumed.
"""

import copy
import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.trainer.runs import history, outcome, stopped_at
from tests.trainer.trained import trained
from trainer.config import RunConfig
from trainer.data.loader import TrainingData
from trainer.data.order import SampleOrder, Segment
from trainer.data.shards import TokenStream
from trainer.run.loop import DONE, run
from trainer.system.errors import TrainerError

# 32 x 8 = 256 tokens a step unless a stage says otherwise; in windows of 8, then 16, then 32.
STAGES: list[dict[str, Any]] = [
    {"name": "short", "share": 0.25, "seq_len": 8, "global_batch_tokens": 128, "weights": {"prose": 1}},
    {"name": "middle", "until_tokens": 2048, "seq_len": 16, "lr_multiplier": 0.5},
    {"name": "long", "weights": {"code": 3, "prose": 1}, "schedule": {"kind": "linear", "min_lr_ratio": 0}},
]
MIXES = st.sampled_from([(1, 0), (1, 3), (0, 1)])
SEGMENTS = st.tuples(st.sampled_from([2, 4, 6, 12]), st.integers(1, 200), MIXES)


@pytest.fixture
def staged(settings: dict[str, Any]) -> dict[str, Any]:
    settings["training"] |= {"stages": STAGES, "schedule": {"kind": "constant", "warmup_tokens": 512}}
    return settings


def test_tokens_samples_and_rates_go_through_their_golden_points(staged: dict[str, Any]) -> None:
    curriculum = RunConfig.model_validate(staged).training.curriculum
    assert [
        (stage.name, stage.first_token, stage.first_step, stage.first_sample, stage.steps)
        for stage in curriculum.stages
    ] == [("short", 0, 0, 0, 6), ("middle", 768, 6, 96, 5), ("long", 2048, 11, 176, 4)]
    steps = (0, 1, 6, 7, 11, 12, 15)
    assert [*map(curriculum.tokens, steps)] == [0, 128, 768, 1024, 2048, 2304, 3072]
    assert [*map(curriculum.samples, steps)] == [0, 16, 96, 112, 176, 184, 208]
    at = ((0, 128), (3, 512), (5, 768), (6, 769), (10, 2048), (11, 2049), (12, 2560), (14, 3072))
    assert [curriculum.stage(step).lr_factor(tokens) for step, tokens in at] == pytest.approx(
        [0.25, 1, 1, 0.5, 0.5, 1023 / 1024, 0.5, 0]
    )


def test_a_run_in_stages_takes_the_tokens_that_each_states_wherever_it_is_resumed(
    staged: dict[str, Any],
) -> None:
    staged["training"]["checkpoint"] = {"every_tokens": 128, "keep_last": 20}
    config = trained(staged)
    whole = outcome(config.run_dir)
    for step in (8, 6):
        stopped_at(config.run_dir, step)
        assert run(config) == DONE
        assert outcome(config.run_dir) == whole

    steps = [one for one in history(config.run_dir) if one["kind"] == "train"]
    assert [one["tokens"] for one in steps] == [*range(128, 769, 128), *range(1024, 3073, 256)]
    assert [one["stage"] for one in steps] == ["short"] * 6 + ["middle"] * 5 + ["long"] * 4
    lineage = json.loads((config.run_dir / "checkpoints/step-00000015/lineage.json").read_text())["training"]
    # 768 of prose; 80 windows of 16 at 3 : 1; 32 windows of 32 at 1 : 3.
    assert lineage["corpus_tokens"] == {"prose": 768 + 60 * 16 + 8 * 32, "code": 20 * 16 + 24 * 32}


def test_batches_of_a_stage_are_cut_from_the_shards_as_it_says_on_any_number_of_processes(
    staged: dict[str, Any],
) -> None:
    config = RunConfig.model_validate(staged)
    data, curriculum = TrainingData(config.data, config.training, config.run_dir), config.training.curriculum
    streams = [TokenStream(corpus.train) for corpus in config.data.corpora]
    for step in range(15):
        stage, batch = curriculum.stage(step), data.batch(step, 0, 1)
        assert batch.shape == (stage.global_batch_tokens // stage.seq_len, stage.seq_len + 1)
        corpora, windows = data.order.windows(curriculum.samples(step), len(batch))
        for row, corpus, window in zip(batch, corpora, windows, strict=True):
            wanted = streams[corpus].window(int(window) * stage.seq_len, stage.seq_len + 1)
            assert row.tolist() == wanted.tolist()
        assert np.array_equal(batch, np.concatenate([data.batch(step, rank, 4) for rank in range(4)]))


@examples(max_examples=40, deadline=None)
@given(st.lists(SEGMENTS, min_size=1, max_size=5))
def test_across_stages_no_token_comes_twice_before_all_came_once(
    stages: list[tuple[int, int, tuple[int, int]]],
) -> None:
    firsts = [0, *itertools.accumulate(count for _, count, _ in stages)]
    segments = [Segment(first, *stage[::2]) for first, stage in zip(firsts, stages, strict=False)]
    order = SampleOrder(3, ["a", "b"], [13, 29], seq_len=12, segments=segments)
    seen = [np.zeros(size * 12, dtype=np.int64) for size in order.sizes]
    left_out = 0
    for first, (length, count, _) in zip(firsts, stages, strict=False):
        corpora, windows = order.windows(first, count)
        for corpus, window in zip(corpora, windows, strict=True):
            seen[corpus][window * length : (window + 1) * length] += 1
        left_out += 12 - length
    assert order.tokens(firsts[-1]).tolist() == [tokens.sum() for tokens in seen]
    for corpus, tokens in enumerate(seen):
        # Where windows become longer, the rest of one is left out.
        assert tokens.max() - np.sort(tokens)[left_out] <= 1
        per_part = tokens.reshape(-1, order.part_len)
        assert (per_part == per_part[:, :1]).all()
        which, _ = order.reads(corpus, np.arange(len(per_part)), firsts[-1])
        assert np.array_equal(np.bincount(which, minlength=len(per_part)), per_part[:, 0])


def test_stages_of_one_length_leave_nothing_out_and_go_on_where_the_last_one_stopped() -> None:
    order = SampleOrder(
        3,
        ["a", "b"],
        [50, 70],
        seq_len=8,
        segments=[Segment(0, 8, (1, 0)), Segment(30, 8, (1, 1)), Segment(70, 8, (0, 1))],
    )
    taken = [order.windows(first, count) for first, count in ((0, 30), (30, 40), (70, 50))]
    corpora, windows = (np.concatenate(both) for both in zip(*taken, strict=True))
    assert sorted(windows[corpora == 0].tolist()) == list(range(50))
    assert sorted(windows[corpora == 1].tolist()) == list(range(70))


@pytest.mark.parametrize(
    ("stages", "says"),
    [
        ([{"name": "a", "share": 0.5}], r"the last stage, 'a', ends at token 1536, not at max_tokens 3072"),
        (
            [{"name": "a"}, {"name": "b"}],
            "stage 'a' is not the last and has no end: set share or until_tokens",
        ),
        (
            [{"name": "a", "share": 0.5, "until_tokens": 512}],
            "stage 'a' has both share and until_tokens: leave one out",
        ),
        ([{"name": "a", "share": 0.5}, {"name": "a"}], "two stages are named 'a': rename"),
        (
            [{"name": "a", "until_tokens": 512}, {"name": "b", "until_tokens": 512}],
            "'b' would run from token 512 to 512",
        ),
        (
            [{"name": "a", "until_tokens": 600}, {"name": "b"}],
            r"'a': its 600 tokens are not a multiple of global_batch_tokens \d+; set until_tokens to 512",
        ),
        (
            [{"name": "a", "share": 0.2}, {"name": "b"}],
            r"'a': its \d+ tokens are not .*; replace its share by until_tokens: 512",
        ),
        (
            [
                {"name": "a", "until_tokens": 512},
                {"name": "b", "until_tokens": 3072, "global_batch_tokens": 384},
            ],
            r"'b': its 2560 tokens are not .*; set until_tokens to 3200, and max_tokens to 3200",
        ),
        ([{"name": "a", "share": 1, "seq_len": 12}], r"seq_len 12 must divide training\.seq_len 32"),
        (
            [{"name": "a", "share": 1, "global_batch_tokens": 64}],
            r"stage 'a': global_batch_tokens 64 is not a multiple .*; set it to 128",
        ),
        (
            [{"name": "a", "weights": {"proes": 1}}],
            "stage 'a': weights has 'proes', which is not a corpus with training text; use prose, code",
        ),
        (
            [{"name": "a", "weights": {"prose": 0}}],
            r"the weight of 'prose' is 0\.0: set it above 0, or leave 'prose' out",
        ),
        ([{"name": "a", "length": 3}], "unknown key 'length'"),
        (
            [{"name": "a", "schedule": {"kind": "wsd", "warmup_tokens": 2000}}],
            r"stage 'a': schedule\.warmup_tokens 2000 and a decay of 1843 tokens",
        ),
    ],
)
def test_stages_that_cannot_be_are_refused_with_what_to_change(
    settings: dict[str, Any], stages: list[dict[str, Any]], says: str
) -> None:
    settings["training"]["stages"] = stages
    with pytest.raises(ValidationError, match=says):
        RunConfig.model_validate(settings)


def test_packed_windows_have_one_length(staged: dict[str, Any]) -> None:
    staged["training"]["packing"] = "best_fit"
    with pytest.raises(ValidationError, match="packing best_fit needs the same seq_len in the entire run"):
        RunConfig.model_validate(staged)


def test_what_is_to_come_can_be_changed_by_an_explicit_word_and_what_was_cannot(
    staged: dict[str, Any],
) -> None:
    staged["training"]["checkpoint"]["keep_last"] = 20
    config = trained(staged)
    stopped_at(config.run_dir, 8)
    stages = copy.deepcopy(STAGES)
    stages[2]["weights"] = {"prose": 1}
    staged["training"]["stages"] = stages
    changed = RunConfig.model_validate(staged)
    assert run(changed, allow_changes=True) == DONE
    lineage = json.loads((config.run_dir / "checkpoints/step-00000015/lineage.json").read_text())["training"]
    assert lineage["corpus_tokens"] == {"prose": 768 + 60 * 16 + 32 * 32, "code": 20 * 16}
    stages[0]["global_batch_tokens"] = 256
    with pytest.raises(TrainerError, match=r"cannot resume.*training\.stages up to step 15 changed"):
        run(RunConfig.model_validate(staged), allow_changes=True)
