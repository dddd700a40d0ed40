"""`python -m pipeline init`: a recipe for text of one's own."""

import re
import resource
import shlex
from pathlib import Path

import pytest
import yaml

from pipeline.cli import main
from pipeline.recipe.loading import load_recipe, recipe_path
from trainer.config import ScheduleConfig


def with_usual_warmup(schedule: ScheduleConfig) -> ScheduleConfig:
    """That of a run of 343 steps which does not set its warmup: a tenth."""
    return schedule.model_copy(update={"warmup_tokens": 70_246})


def test_the_skeleton_is_a_recipe_that_trains_like_the_default_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "My notes.yaml"
    assert main(["init", str(path)]) == 0
    assert f"GROUNDWORK_RECIPE={shlex.quote(str(path))}\n" in capsys.readouterr().out
    recipe, default = load_recipe(path), load_recipe(recipe_path("default"))
    same = {"samples": default.training.samples, "schedule": default.training.schedule}
    assert recipe.name == "my-notes"
    assert recipe.training.model_copy(update=same) == default.training
    assert recipe.training.schedule == with_usual_warmup(default.training.schedule)
    assert recipe.training.samples.prompts
    assert recipe.quality.model_dump() == default.quality.model_dump()
    assert recipe.shards == default.shards


@pytest.mark.parametrize("name", ["2024", "2024-11-28", "0x1f", "1_000", "true", "null", "on", "a" * 200])
def test_a_recipe_is_called_like_its_file_whatever_yaml_reads_in_the_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.yaml"
    assert main(["init", str(path)]) == 0
    assert load_recipe(path).name == name


def test_every_section_of_the_skeleton_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    assert main(["init", str(path)]) == 0
    text = path.read_text()
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    schema = re.match(r"# yaml-language-server: \$schema=(.*)\n", text)
    assert schema and Path(schema[1]).is_file()
    assert sum(" # " in line for line in lines) > len(lines) / 3
    assert max(map(len, text.splitlines()[1:])) <= 120


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("mine\n")
    assert main(["init", str(path)]) == 2
    assert "exists: name another file" in capsys.readouterr().err
    assert path.read_text() == "mine\n"
    assert main(["init", str(tmp_path / "nowhere" / "mine.yaml")]) == 2
    assert "cannot be written: No such file" in capsys.readouterr().err


def test_a_recipe_that_says_nothing_about_learning_learns_like_the_default_one(tmp_path: Path) -> None:
    """Muon, plateau and decay, QK-norm: what the default recipe writes out, but for its shorter warmup."""
    default = yaml.safe_load(recipe_path("default").read_text())
    training = default["training"]
    written = load_recipe(recipe_path("default")).training
    del training["optimizer"], training["schedule"], training["model"]["qk_norm"]
    path = tmp_path / "bare.yaml"
    path.write_text(yaml.safe_dump(default))
    schedule = with_usual_warmup(written.schedule)
    assert load_recipe(path).training == written.model_copy(update={"schedule": schedule})
    training["model"]["tie_embeddings"] = True
    training["optimizer"] = {"kind": "muon"}
    path.write_text(yaml.safe_dump(default))
    assert load_recipe(path).training.optimizer.groups == []  # a tied head has no rate of its own


def test_another_optimizer_or_schedule_keeps_its_own_defaults(tmp_path: Path) -> None:
    default = yaml.safe_load(recipe_path("default").read_text())
    default["training"] |= {"optimizer": {"kind": "adamw"}, "schedule": {"kind": "cosine"}}
    path = tmp_path / "adamw.yaml"
    path.write_text(yaml.safe_dump(default))
    training = load_recipe(path).training
    optimizer, schedule = training.optimizer, training.schedule
    assert (optimizer.lr, optimizer.weight_decay, optimizer.groups) == (3e-3, 0.1, [])
    assert (schedule.min_lr_ratio, schedule.warmup_tokens) == (0.1, 70_246)


def test_half_a_recipe_is_not_left_in_the_way_of_the_next(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
    try:
        assert main(["init", str(path)]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert main(["init", str(path)]) == 0
