"""A checkpoint exists whole or not at all; a damaged one is named and passed over."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.checkpoint import publish, retention
from trainer.system.run_directory import RunDirectory
from trainer.system.run_history import model_version


def fill(text: str) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        (directory / "hf").mkdir()
        (directory / "hf" / "weights").write_text(text)
        (directory / "state").write_text("state of " + text)

    return write


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    for step in (4, 8, 12):
        publish.publish(tmp_path / f"step-{step:08d}", fill(f"model {step}"))
    return tmp_path


def test_the_newest_is_found_by_its_step_where_there_is_one(checkpoints: Path) -> None:
    publish.publish(checkpoints / "step-100000000", fill("later"))
    assert publish.newest_valid(checkpoints) == (checkpoints / "step-100000000", [])
    assert publish.newest_valid(checkpoints / "none") == (None, [])


def _flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[2] ^= 1
    path.write_bytes(bytes(raw))


@pytest.mark.parametrize(
    ("damage", "names"),
    [
        (lambda newest: _flip(newest / "hf" / "weights"), "hf/weights: differs"),
        (lambda newest: (newest / "state").write_text("sta"), "state: differs"),
        (lambda newest: (newest / "hf" / "weights").unlink(), "hf/weights: missing"),
        (lambda newest: (newest / "manifest.json").unlink(), "manifest.json cannot be read"),
        (lambda newest: (newest / "manifest.json").write_text('{"files": '), "manifest.json cannot be read"),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    checkpoints: Path, damage: Callable[[Path], None], names: str
) -> None:
    damage(checkpoints / "step-00000012")
    found, skipped = publish.newest_valid(checkpoints)
    assert found == checkpoints / "step-00000008"
    assert len(skipped) == 1
    assert names in skipped[0]
    assert "step-00000012" in skipped[0]


def test_a_save_that_fails_leaves_the_checkpoints_as_they_were(checkpoints: Path) -> None:
    def write(directory: Path) -> None:
        (directory / "state").write_text("half")
        raise OSError("No space left on device")

    before = publish.existing(checkpoints)
    with pytest.raises(OSError, match="No space"):
        publish.publish(checkpoints / "step-00000016", write)
    assert publish.existing(checkpoints) == before
    publish.publish(checkpoints / "step-00000016", fill("whole"))
    assert publish.newest_valid(checkpoints)[0] == checkpoints / "step-00000016"
    assert not list(checkpoints.glob(".*"))


def test_a_broken_checkpoint_of_the_same_step_is_replaced(checkpoints: Path) -> None:
    newest = checkpoints / "step-00000012"
    (newest / "state").unlink()
    publish.publish(newest, fill("again"))
    publish.verify(newest)
    assert (newest / "hf" / "weights").read_text() == "again"


def test_only_the_newest_are_kept(checkpoints: Path) -> None:
    retention.retire(checkpoints / "step-00000012", keep_last=2)
    assert sorted(path.name for path in checkpoints.iterdir()) == ["step-00000008", "step-00000012"]


def test_a_pinned_one_is_kept_however_old(checkpoints: Path) -> None:
    RunDirectory(checkpoints.parent).keep.write_text("step-00000004\n")
    retention.retire(checkpoints / "step-00000012", keep_last=1)
    assert sorted(path.name for path in checkpoints.iterdir()) == ["step-00000004", "step-00000012"]


def test_a_damaged_later_checkpoint_never_takes_the_place_of_a_good_one(checkpoints: Path) -> None:
    (checkpoints / "step-00000012" / "state").unlink()
    publish.publish(checkpoints / "step-00000009", fill("after the damage"))
    retention.retire(checkpoints / "step-00000009", keep_last=1)
    assert publish.newest_valid(checkpoints)[0] == checkpoints / "step-00000009"


def test_the_data_version_is_that_of_the_model_alone(checkpoints: Path) -> None:
    def other_state(directory: Path) -> None:
        fill("model 4")(directory)
        (directory / "state").write_text("other")

    first = model_version(publish.manifest(checkpoints / "step-00000004"))
    publish.publish(checkpoints / "step-00000020", other_state)
    assert model_version(publish.manifest(checkpoints / "step-00000020")) == first
    assert model_version(publish.manifest(checkpoints / "step-00000008")) != first
