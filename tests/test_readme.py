"""What the README and the page on jobs tell a user to type is accepted."""

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli import main
from pipeline.recipe.loading import load_recipe
from pipeline.recipe.recipe import RECIPES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
JOBS = (ROOT / "docs" / "jobs.md").read_text(encoding="utf-8")
BENCHMARKS = "\n".join(page.read_text("utf-8") for page in (ROOT / "docs").rglob("performance/*.md"))


def yaml_blocks(page: str) -> list[dict[str, Any]]:
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)]


def test_the_corpora_for_ones_own_text_fit_the_recipe_that_init_writes(tmp_path: Path) -> None:
    (block,) = [block for block in yaml_blocks(README) if "corpora" in block]
    assert main(["init", str(tmp_path / "mine.yaml")]) == 0
    recipe = yaml.safe_load((tmp_path / "mine.yaml").read_text())
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(recipe | block))
    assert load_recipe(tmp_path / "mine.yaml").corpus_names == ["notes", "wikitext"]


def test_the_overrides_fit_the_default_recipe() -> None:
    (block,) = [block for block in yaml_blocks(JOBS) if "resources" in block]
    overrides = block["resources"]["workshop"]["config"]["overrides"]
    assert (
        load_recipe(RECIPES / "default.yaml", overrides).training.max_tokens
        == overrides["training"]["max_tokens"]
    )


def test_the_launcher_that_scaling_up_shows_fits_the_default_recipe() -> None:
    (block,) = [block for block in yaml_blocks(README) if "launch" in block]
    assert load_recipe(RECIPES / "default.yaml", block).launch.nproc_per_node == 8


@pytest.mark.parametrize(
    "path", re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README) + re.findall(r"`(performance/\w+\.py)`", BENCHMARKS)
)
def test_every_picture_and_benchmark_is_there(path: str) -> None:
    assert (ROOT / path).is_file()


def test_the_figures_that_the_readme_repeats_are_those_of_the_benchmarks() -> None:
    table = README.partition("## Measured")[2].partition("## Limits")[0]
    figures = [figure for row in table.splitlines() if row.startswith("|") for figure in row.split("|")[2:4]]
    numbers = [number for figure in figures for number in re.findall(r"^\s*([\d.,]+)", figure)]
    assert len(numbers) >= 16
    assert [number for number in numbers if not re.search(rf"(?<![\d.]){number}(?![\d])", BENCHMARKS)] == []


def test_a_checkout_below_a_folder_with_any_name_tells_dagster_where_it_is(tmp_path: Path) -> None:
    """Only what `make setup` itself writes: the packages are not installed."""
    checkout = tmp_path / "Bob's & Zoë|a" / "groundwork"
    shutil.copytree(ROOT / ".lock", checkout / ".lock")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, checkout)
    (checkout / ".lock" / "install").write_text("#!/bin/sh\n")
    venv.create(checkout / ".venv")
    (checkout / ".venv" / "bin" / "pip").symlink_to("/bin/true")
    subprocess.run(["make", "setup", f"PYTHON={sys.executable}"], cwd=checkout, check=True)
    shown = 'printf "%s\\n" "$DAGSTER_HOME" "$DAGSTER_CLI_JOB_EXECUTE_WORKING_DIRECTORY"'
    command = ["env", "-u", "DAGSTER_HOME", "bash", "-c", f". .venv/bin/activate; {shown}"]
    done = subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [str(checkout / "dagster_home"), str(checkout)]
