"""The order of samples: each once an epoch, mixed as asked, from any position, on any processes."""

import hashlib
import itertools
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.config import RunConfig
from trainer.data.loader import TrainingData
from trainer.data.order import (
    CYCLE,
    LONGEST_CYCLE,
    MixtureCycle,
    SampleOrder,
    Segment,
    mixture_cycle,
    permute,
    shares_in_turns,
)
from trainer.system.errors import TrainerError
from trainer.system.prefetch import ahead


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3000), st.binary(max_size=8))
def test_a_permutation_takes_each_place_once_and_is_undone(size: int, key: bytes) -> None:
    there = permute(np.arange(size), size, key)
    assert np.array_equal(np.sort(there), np.arange(size))
    assert np.array_equal(permute(there, size, key, backwards=True), np.arange(size))


SEGMENTS = {
    "one": [Segment(0, 8, (2.0, 1.0))],
    "two stages": [Segment(0, 4, (1.0, 2.0)), Segment(333, 8, (2.0, 1.0))],
    "longer, and without a corpus": [Segment(0, 8, (2.0, 1.0)), Segment(100, 2, (1.0, 0.0))],
}


@pytest.mark.parametrize("stages", SEGMENTS)
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 900), st.none() | st.integers(1, 900), st.booleans())
def test_when_a_window_was_read_is_found_without_going_through_the_order(
    stages: str, samples: int, repeated: int | None, permutes: bool
) -> None:
    """Over more than three epochs of either corpus."""
    order = SampleOrder(7, ["a", "b"], [101, 17], seq_len=8, segments=SEGMENTS[stages], permutes=permutes)
    if repeated is not None:
        order.repeat_half(repeated)
    ends = [segment.first_sample for segment in SEGMENTS[stages][1:]]
    read: dict[tuple[int, int], list[int]] = {}
    for segment, end in zip(SEGMENTS[stages], [*ends, 900], strict=True):
        for sample in range(segment.first_sample, min(end, samples)):
            (corpus,), (window,) = order.windows(sample, 1)
            each = segment.seq_len // order.part_len
            for part in range(window * each, (window + 1) * each):
                read.setdefault((int(corpus), part), []).append(sample)
    for corpus in range(2):
        which, when = order.reads(corpus, np.arange(order.parts(corpus, samples)), samples)
        found: dict[tuple[int, int], list[int]] = {}
        for part, sample in sorted(zip(which.tolist(), when.tolist(), strict=True)):
            found.setdefault((corpus, part), []).append(sample)
        assert found == {place: samples for place, samples in read.items() if place[0] == corpus}


def test_keys_give_permutations_that_look_unrelated() -> None:
    index = np.arange(10_000)
    first, second = permute(index, 10_000, b"a"), permute(index, 10_000, b"b")
    assert (first == second).sum() < 20
    assert (first == index).sum() < 20
    assert abs(np.corrcoef(first, index)[0, 1]) < 0.05
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.05


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6))
def test_a_mixture_is_never_more_than_one_sample_off(weights: list[float]) -> None:
    turns = mixture_cycle(tuple(weights))
    taken = np.cumsum(turns[:, None] == np.arange(len(weights)), axis=0)
    wanted = np.arange(1, len(turns) + 1)[:, None] * (taken[-1] / len(turns))
    assert np.abs(taken - wanted).max() < len(weights)
    shares = np.array(weights) / sum(weights)
    assert np.abs(taken[-1] / len(turns) - shares).max() <= len(weights) / CYCLE
    assert taken[-1] / len(turns) == pytest.approx(shares, rel=0.05)


@pytest.mark.parametrize(
    "weights",
    [(10e9, 200e3), (100e9, 1e6), (1.0,) * 5000, (*range(5000, 10_000), 0)],
    ids=["10B", "100B", "5000 equal", "a zero"],
)
def test_the_smallest_of_many_corpora_gets_its_share_and_no_more(weights: tuple[float, ...]) -> None:
    samples = 1 << 22
    counts = MixtureCycle(weights).counts(samples)
    assert counts.sum() == samples
    assert counts / samples == pytest.approx(np.array(weights) / sum(weights), rel=0.05)


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-12, 1e-4))
def test_a_corpus_is_read_as_often_as_its_share_says_or_refused(share: float) -> None:
    try:
        shares = shares_in_turns({"web": 1 - share, "tiny": share})
    except TrainerError as error:
        assert "corpus 'tiny' has" in str(error) and share < 20 / LONGEST_CYCLE
    else:
        assert shares["tiny"] == pytest.approx(share, rel=0.0501)


def test_a_mixture_of_usual_shares_keeps_the_order_that_earlier_versions_gave_it() -> None:
    digests = [
        hashlib.sha256(mixture_cycle(weights).tobytes()).hexdigest()[:16]
        for weights in ((1.0,), (3.0, 1.0), (0.62, 0.25, 0.0, 0.13), (50.0, 30.0, 15.0, 4.0, 1.0))
    ]
    assert digests == ["c35020473aed1b46", "a029c48643c281e2", "27bd9cb6ab101fa5", "981c0c3ba94f4409"]


def test_turns_are_counted_and_found_alike_however_long_the_cycle_is() -> None:
    cycle = MixtureCycle((10_000.0, 1.0, 3.0))
    assert cycle.length > CYCLE
    corpora, before = cycle.at(np.arange(3 * cycle.length))
    for corpus in range(3):
        assert np.array_equal(before[corpora == corpus], np.arange((corpora == corpus).sum()))
        assert (corpora[: cycle.length + 99] == corpus).sum() == cycle.counts(cycle.length + 99)[corpus]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 20_000), st.integers(1, 500), st.integers(1, 7))
def test_any_position_is_reached_at_once(start: int, count: int, pieces: int) -> None:
    order = SampleOrder(7, ["a", "b"], [101, 17], seq_len=8, segments=[Segment(0, 8, (2.0, 1.0))])
    whole = order.windows(start, count)
    cuts = np.linspace(0, count, pieces + 1).astype(int)
    parts = [order.windows(start + low, high - low) for low, high in itertools.pairwise(cuts)]
    assert np.array_equal(whole[0], np.concatenate([part[0] for part in parts]))
    assert np.array_equal(whole[1], np.concatenate([part[1] for part in parts]))


def test_every_window_comes_once_an_epoch_and_epochs_differ() -> None:
    order = SampleOrder(7, ["a", "b"], [101, 17], seq_len=8, segments=[Segment(0, 8, (2.0, 1.0))])
    corpora, windows = order.windows(0, 3000)
    for corpus, size in enumerate(order.sizes):
        mine = windows[corpora == corpus]
        epochs = [mine[i * size : (i + 1) * size] for i in range(len(mine) // size)]
        for epoch in epochs:
            assert np.array_equal(np.sort(epoch), np.arange(size))
        assert not np.array_equal(epochs[0], epochs[1])
    assert order.tokens(3000).tolist() == [8 * int((corpora == 0).sum()), 8 * int((corpora == 1).sum())]


def test_corpora_of_one_size_are_not_read_in_one_order() -> None:
    order = SampleOrder(7, ["a", "b"], [500, 500], seq_len=8, segments=[Segment(0, 8, (1.0, 1.0))])
    corpora, windows = order.windows(0, 1000)
    assert (windows[corpora == 0] == windows[corpora == 1]).sum() < 20


def test_a_second_stage_goes_on_with_the_windows_that_the_first_has_not_read() -> None:
    stages = [Segment(0, 8, (3.0, 1.0)), Segment(400, 8, (1.0, 1.0))]
    order = SampleOrder(7, ["a", "b"], [500, 500], seq_len=8, segments=stages)
    read = [order.windows(0, 400), order.windows(400, 400)]
    corpora, windows = (np.concatenate(parts) for parts in zip(*read, strict=True))
    for corpus in (0, 1):
        mine = windows[corpora == corpus]
        assert len(np.unique(mine)) == len(mine) > 200


@pytest.mark.parametrize("packing", ["windows", "documents"])
def test_a_control_of_duplicates_reads_half_of_the_windows_twice(config: RunConfig, packing: str) -> None:
    data, control = (
        TrainingData(one.data, one.training, one.run_dir)
        for one in (config.with_training(packing=packing, control=wanted) for wanted in (None, "duplicates"))
    )
    steps = config.training.steps
    read = np.concatenate([data.batch(step, 0, 1) for step in range(steps)])
    spoilt = np.concatenate([control.batch(step, 0, 1) for step in range(steps)])
    seen = {row.tobytes() for row in spoilt}
    assert len(seen) <= len(spoilt) / 2 + 2 * len(config.data.corpora)
    assert np.array_equal(read[: len(read) // 3], spoilt[: len(read) // 3])


@pytest.mark.parametrize("epochs", [0.5, 1, 1.5, 2, 3, 4])
def test_a_control_of_duplicates_never_reads_more_than_half_of_a_corpus(epochs: float) -> None:
    orders = [SampleOrder(7, ["a"], [100], seq_len=8, segments=[Segment(0, 8, (1.0,))]) for _ in range(2)]
    samples = round(100 * epochs)
    orders[1].repeat_half(samples)
    plain, control = (len(np.unique(order.windows(0, samples)[1])) for order in orders)
    assert control == plain / 2


def test_a_shuffled_control_leaves_padding_and_the_beginnings_of_documents(config: RunConfig) -> None:
    packed = config.with_training(control="shuffled", packing="best_fit")
    control = TrainingData(packed.data, packed.training, packed.run_dir)
    plain = TrainingData(config.data, config.with_training(packing="best_fit").training, packed.run_dir)
    for step in range(3):
        read, spoilt = plain.batch(step, 0, 1), control.batch(step, 0, 1)
        stays = (read < 0) | (read == config.data.bot_id)
        assert stays.any() and np.array_equal(read[stays], spoilt[stays])
        assert not np.array_equal(read, spoilt)


def test_a_shuffled_control_reads_the_same_tokens_in_another_order(config: RunConfig) -> None:
    shuffled = config.with_training(control="shuffled")
    data, control = (TrainingData(one.data, one.training, one.run_dir) for one in (config, shuffled))
    read, spoilt = data.batch(3, 0, 1), control.batch(3, 0, 1)
    assert np.array_equal(np.sort(read), np.sort(spoilt))
    assert (read == spoilt).mean() < 0.2
    assert np.array_equal(spoilt, np.concatenate([control.batch(3, rank, 2) for rank in range(2)]))


def test_reading_ahead_changes_nothing(config: RunConfig) -> None:
    data = TrainingData(config.data, config.training, config.run_dir)
    with closing(ahead(data.batch(step, 0, 1) for step in itertools.count(3))) as batches:
        for step in (3, 4, 5, 6):
            assert np.array_equal(next(batches), data.batch(step, 0, 1))


def test_a_corpus_shorter_than_a_window_is_named(config: RunConfig) -> None:
    training = config.training.model_copy(update={"seq_len": 1_000_000})
    with pytest.raises(TrainerError, match=r"corpus 'prose' has \d+ training tokens, too few"):
        TrainingData(config.data, training, config.run_dir)
