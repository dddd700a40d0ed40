"""The machine finds what it looks for, and faults that it can draw again by their seed end well."""

import pytest

from tests.pipeline.store.test_damage import flip
from tests.torture.__main__ import SCENARIOS, trial
from tests.torture.world import FindingError, World

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    built = World(tmp_path_factory.mktemp("torture") / "world")
    built.build()
    return built


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_fault_of_each_kind_ends_in_the_same_bytes_or_a_sentence(world: World, scenario: str) -> None:
    done = trial(world, 1, scenario)
    assert done["outcome"] != "FINDING", done


def test_a_single_wrong_bit_and_a_traceback_are_findings(world: World) -> None:
    world.restore()
    ended = world.ended(world.start({}))
    flip(next(world.store.rglob("train/*.bin")), 5)
    with pytest.raises(FindingError, match="other bytes"):
        world.judge({}, ended)
    world.project.recipe |= {"quality": "unknown"}
    with pytest.raises(FindingError, match="exit status 2"):
        world.judge({})
