"""The learning rate is a pure function of tokens: at the first step, each boundary and the end."""

import math
from typing import Any

import pytest

from trainer.config import ScheduleConfig, TrainingConfig

AT = (1, 50, 100, 101, 400, 550, 700, 1000)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (
            {"kind": "cosine"},
            [0.01, 0.5, 1, 0.1 + 0.45 * (1 + math.cos(math.pi / 900)), 0.775, 0.55, 0.325, 0.1],
        ),
        ({"kind": "linear", "min_lr_ratio": 0}, [0.01, 0.5, 1, 899 / 900, 600 / 900, 0.5, 300 / 900, 0]),
        ({"kind": "constant"}, [0.01, 0.5, 1, 1, 1, 1, 1, 1]),
        ({"kind": "wsd", "min_lr_ratio": 0}, [0.01, 0.5, 1, 1, 1, 0.75, 0.5, 0]),
        (
            {"kind": "wsd", "decay": "sqrt", "min_lr_ratio": 0},
            [0.01, 0.5, 1, 1, 1, 0.5, 1 - math.sqrt(0.5), 0],
        ),
    ],
)
def test_the_courses_go_through_their_golden_points(
    schedule: dict[str, object], expected: list[float]
) -> None:
    config = ScheduleConfig.model_validate({"warmup_tokens": 100, **schedule})
    assert [config.share_of_peak(tokens, 1000) for tokens in AT] == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["cosine", "linear", "constant", "wsd"])
def test_without_a_warmup_the_first_step_is_at_full_rate(kind: str) -> None:
    config = ScheduleConfig.model_validate({"kind": kind, "decay_fraction": 0.5})
    assert config.share_of_peak(1, 1_000_000) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        (
            {"kind": "wsd", "warmup_tokens": 410},
            r"warmup_tokens 410 and a decay of 600 tokens .* do not fit into the 1000 tokens of the wsd",
        ),
        (
            {"kind": "wsd", "decay_fraction": 1, "warmup_tokens": 1},
            "warmup_tokens 1 and a decay of 1000 tokens",
        ),
        (
            {"kind": "cosine", "warmup_tokens": 1001},
            "warmup_tokens 1001 do not fit into the 1000 tokens of the cosine",
        ),
    ],
)
def test_what_is_longer_than_the_run_is_refused(schedule: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ScheduleConfig.model_validate(schedule).check(1000)


def test_a_schedule_that_just_fits_is_taken() -> None:
    ScheduleConfig(kind="wsd", warmup_tokens=400).check(1000)


def test_the_default_warmup_does_not_depend_on_the_length_of_a_run(settings: dict[str, Any]) -> None:
    training = settings["training"] | {"schedule": {"kind": "wsd"}}

    def warmup(steps: int, **changes: Any) -> int:
        given = training | {"max_tokens": steps * 256} | changes
        return TrainingConfig.model_validate(given).schedule.warmup_tokens

    assert warmup(400) == warmup(100_000) == 40 * 256
    assert warmup(20) == 2 * 256  # at most a tenth
    assert warmup(100_000, optimizer={"kind": "adamw", "betas": [0.9, 0.99]}) == 200 * 256
    assert warmup(400, schedule={"kind": "wsd", "decay_fraction": 0.99}) == 4 * 256
