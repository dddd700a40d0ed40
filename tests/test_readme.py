"""What the README tells a user to type is accepted."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.recipe.recipe import RECIPES, load_recipe

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def yaml_blocks() -> list[dict[str, Any]]:
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", README, flags=re.DOTALL)]


def test_the_recipe_for_ones_own_text_is_a_recipe(tmp_path: Path) -> None:
    (block,) = [block for block in yaml_blocks() if "corpora" in block]
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(block))
    assert load_recipe(tmp_path / "mine.yaml").corpus_names == ["notes", "wikitext"]


def test_the_overrides_fit_the_default_recipe() -> None:
    (block,) = [block for block in yaml_blocks() if "resources" in block]
    overrides = block["resources"]["workshop"]["config"]["overrides"]
    assert (
        load_recipe(RECIPES / "default.yaml", overrides).training.max_tokens
        == overrides["training"]["max_tokens"]
    )


@pytest.mark.parametrize(
    "path", re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README) + re.findall(r"`(benchmarks/\w+\.py)`", README)
)
def test_every_picture_and_benchmark_is_there(path: str) -> None:
    assert (ROOT / path).is_file()
