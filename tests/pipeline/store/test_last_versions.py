"""What a store records of each recipe may be damaged: no run stops for that, and nothing is removed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli import main
from pipeline.store import keys, last_versions
from pipeline.store.bucket.files import files_in
from pipeline.store.errors import PipelineError
from pipeline.store.last_versions import DESCRIPTION, LastVersions, RecipeName

NAME = "0123456789abcdef"


@pytest.fixture
def used(tmp_path: Path) -> LastVersions:
    """A recipe that uses one version."""
    used = LastVersions(files_in(tmp_path), RecipeName("mine-01234567", "mine.yaml"))
    used.use(keys.DEDUP, NAME)
    return used


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x80
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped": flipped,
    "empty": lambda path: path.write_text(""),
    "other": lambda path: path.write_text('{"name": 1}'),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("record", [DESCRIPTION, "dedup"])
def test_the_next_run_writes_a_damaged_record_anew(used: LastVersions, record: str, damage: str) -> None:
    path = used._path / record
    DAMAGES[damage](path)
    other = LastVersions(files_in(path.parents[2]), RecipeName("mine-89abcdef", "mine.yaml"))
    assert list(other.of_file("dedup")) == []
    with pytest.raises(PipelineError, match=f"{record} is damaged, .*: run a job of the recipe again"):
        list(last_versions.recorded(files_in(path.parents[2])))
    used.describe()
    used.use(keys.DEDUP, NAME)
    assert list(last_versions.recorded(files_in(path.parents[2]))) == [("dedup", NAME)]
    assert list(other.of_file("dedup")) == [NAME]


@pytest.mark.parametrize("record", [DESCRIPTION, "dedup"])
def test_a_damaged_record_is_named_and_nothing_is_removed(
    used: LastVersions,
    tmp_path: Path,
    record: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GROUNDWORK_STORE", str(tmp_path))
    flipped(used._path / record)
    assert main(["gc", "--delete"]) == 2
    assert f"{record} is damaged, so it cannot be told which versions" in capsys.readouterr().err
    assert main(["verify"]) == 2
    assert f"DAMAGED  {used._path / record} is not a record" in capsys.readouterr().out


SEEDS = {"seeds": 2, "variants": {"fast": {"seeds": 3}, "lr": {"x": {"each": [1, 2]}}}}
TUNED = {"seeds": 2, "variants": {"hot": {}}, "post_training": {"sft": {"epochs": 1}}}


@pytest.mark.parametrize(
    ("written", "kept", "gone"),
    [
        (SEEDS, ["", "base.2", "fast.3", "lr_1.2"], ["base.3", "fast.4", "gone", "gone.2"]),
        (TUNED, ["sft", "hot/sft", "base.2/sft", "hot.2/sft"], ["dpo", "hot/dpo", "gone/sft", "hot.3/sft"]),
    ],
    ids=["seeds", "sections"],
)
def test_what_seeds_and_sections_of_a_variant_use_is_kept_as_long_as_the_file_has_them(
    tmp_path: Path, written: dict[str, Any], kept: list[str], gone: list[str]
) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(yaml.safe_dump(written))
    files = files_in(tmp_path / "store")
    for number, variant in enumerate(kept + gone):
        name = RecipeName(f"mine-{number:08x}", str(recipe), variant=variant)
        LastVersions(files, name).use(keys.DEDUP, f"{number:016x}")
    assert {int(version, 16) for _, version in last_versions.recorded(files)} == {0, 1, 2, 3}
