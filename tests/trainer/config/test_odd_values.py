"""Whatever stands in a configuration, it is read, or refused in one sentence."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import HealthCheck, given
from hypothesis import settings as bounded
from hypothesis import strategies as st

from trainer.config import RunConfig, load_to_train
from trainer.parallel.world import World
from trainer.run.fit import preflight
from trainer.system.errors import TrainerError

NUMBERS = st.one_of(
    st.sampled_from([0, -1, 10**9, 10**18, 10**30, 1e300, 1e-300, float("inf"), float("nan"), True, False]),
    st.integers(),
    st.floats(),
)
ODD = st.one_of(
    NUMBERS,
    st.none(),
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.sampled_from(["1e6", "1e999", "/", "~nobody/x", "\0", "!!python/object:os.system"]),
    st.lists(NUMBERS, max_size=3),
    st.dictionaries(st.text(max_size=5), NUMBERS, max_size=2),
)


def places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every key and item of nested settings."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(found for key, item in inner for found in places(item, (*place, key)))]


@pytest.fixture
def everything(settings: dict[str, Any]) -> dict[str, Any]:
    """A configuration with all that can be set."""
    dumped = RunConfig.model_validate(settings).model_dump(mode="json")
    schedule = {"kind": "cosine", "warmup_tokens": 0}
    stages = [{"name": "a", "share": 0.5, "weights": {"prose": 1}, "schedule": schedule}, {"name": "b"}]
    scaling = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16}
    dumped["training"] |= {"stages": stages, "averaging": {"half_life_tokens": 256}}
    dumped["training"]["model"]["rope_scaling"] = scaling
    dumped["training"]["samples"]["prompts"] = ["the"]
    return dumped


@pytest.mark.slow
def test_an_odd_value_anywhere_is_read_or_refused_in_a_sentence(
    everything: dict[str, Any], tmp_path: Path
) -> None:
    alone, path = World(0, 1, torch.device("cpu")), tmp_path / "odd.yaml"

    @bounded(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(place=st.sampled_from(places(everything)[1:]), odd=ODD)
    def one(place: tuple[Any, ...], odd: Any) -> None:
        changed = deepcopy(everything)
        at = changed
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] = odd
        path.write_text(yaml.safe_dump(changed), encoding="utf-8")
        try:
            preflight.check(load_to_train(path), alone)
        except TrainerError as error:
            assert "Traceback" not in str(error)

    one()
