"""A step far out of line is flagged, the same one whether or not the run was interrupted."""

import random

from trainer.run.spikes import STEPS, SpikeDetector


def course() -> list[tuple[float, float]]:
    """300 ordinary steps but for two: a loss out of line at 200, a gradient at 250."""
    chooser = random.Random(1)
    steps = [(chooser.gauss(3, 0.1), chooser.gauss(1, 0.05)) for _ in range(300)]
    steps[200], steps[250] = (5.0, 1.0), (3.0, 9.0)
    return steps


def test_only_what_is_far_above_the_steps_before_is_a_spike() -> None:
    detector = SpikeDetector()
    assert [step for step, (loss, norm) in enumerate(course()) if detector.is_spike(loss, norm)] == [200, 250]


def test_a_fall_is_no_spike_and_without_enough_steps_nothing_is() -> None:
    detector = SpikeDetector()
    flags = [detector.is_spike(loss, 1.0) for loss in [9.0] + [3.0] * (STEPS - 2) + [99.0]]
    assert not any(flags)
    calm = SpikeDetector((3.0 + 0.01 * (i % 2), 1.0) for i in range(STEPS))
    assert not calm.is_spike(0.1, 0.1)
    still = SpikeDetector((3.0, 1.0) for _ in range(STEPS))
    assert not still.is_spike(3.0, 1.0)


def test_a_detector_that_goes_on_from_its_history_flags_the_same_steps() -> None:
    steps = course()
    whole = SpikeDetector()
    expected = [whole.is_spike(*step) for step in steps]
    first = SpikeDetector()
    flags = [first.is_spike(*step) for step in steps[:190]]
    second = SpikeDetector(first.history)
    assert flags + [second.is_spike(*step) for step in steps[190:]] == expected
