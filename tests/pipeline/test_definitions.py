"""What the web server and the daemon load, which is more than a job that is started by its name."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from pipeline.recipe.loading import load_recipe
from pipeline.recipe.recipe import RECIPES
from tests.integration.project import TRAINING


def test_the_code_location_loads() -> None:
    from pipeline.definitions import defs

    repository = defs.get_repository_def()
    repository.load_all_definitions()
    assert {"pretrain", "retokenize", "verify"} <= set(repository.job_names)
    dg.Definitions.validate_loadable(defs)


TALKS, PAIRS = (
    {"name": f"of_{form}", "source": {"kind": "files", "paths": [f"{form}.jsonl"], "format": form}}
    for form in ("chat", "preferences")
)
SHOWN = """
import json, pipeline.definitions as code
graph = code.defs.resolve_asset_graph()
print(json.dumps({
    "partitions": {
        key.to_user_string(): sorted(graph.get(key).partitions_def.get_partition_keys())
        for key in graph.get_all_asset_keys()
        if graph.get(key).partitions_def and "checkpoint" not in str(graph.get(key).partitions_def)
    },
    "tags": {name: code.defs.resolve_job_def(name).tags for name in ("pretrain", "sft", "align")},
}))
"""


def shown(tmp_path: Path, script: str = SHOWN, given: Sequence[str] = (), **sections: Any) -> dict[str, Any]:
    """The partitions of assets and the tags of jobs in the code location of a recipe with two sections."""
    path = tmp_path / "recipe.yaml"
    written = {
        "name": "mine",
        "corpora": [{"name": "docs", "source": {"kind": "python_docs"}}],
        "tokenizer": {"vocab_size": 512, "chat": True},
        "training": TRAINING,
        "post_training": {"sft": {"corpora": [TALKS]}, "dpo": {"corpora": [PAIRS]}},
    }
    path.write_text(yaml.safe_dump({**written, **sections}), encoding="utf-8")
    environment = {**os.environ, "GROUNDWORK_RECIPE": str(path), "GROUNDWORK_STORE": str(tmp_path / "store")}
    command = [sys.executable, "-W", "ignore", "-c", script, *given]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_only_the_assets_of_sections_that_differ_between_variants_have_partitions(tmp_path: Path) -> None:
    model = {"pretrained_model", "evaluation", "exported_model", "training_progress"}
    assert shown(tmp_path) == {"partitions": {}, "tags": {"pretrain": {}, "sft": {}, "align": {}}}

    hot = {"post_training": {"sft": {"training": {"optimizer": {"lr": 3e-3}}}}}
    found = shown(tmp_path, variants={"hot": hot})
    both = {f"{section}/{one}" for section in ("sft", "dpo") for one in model}
    assert found["partitions"] == {key: ["base", "hot"] for key in both}
    of_base = {"dagster/partition": "base"}
    assert found["tags"] == {"pretrain": {}, "sft": of_base, "align": of_base}

    found = shown(tmp_path, variants={"more": {"post_training": {"dpo": {"epochs": 2}}}})
    assert found["partitions"].keys() == {f"dpo/{one}" for one in model}
    assert found["tags"] == {"pretrain": {}, "sft": {}, "align": of_base}


OWNED = """
import json, pipeline.definitions as code
graph = code.defs.resolve_asset_graph()
nodes = [graph.get(key) for key in graph.get_all_asset_keys()]
hours = lambda policy: policy and policy.fail_window.to_timedelta().total_seconds() / 3600
print(json.dumps({
    node.key.to_user_string(): [sorted(node.owners), hours(node.freshness_policy)]
    for node in nodes
    if node.is_materializable
}))
"""


def test_assets_have_the_owners_of_their_corpus_or_recipe_and_raw_text_its_freshness(tmp_path: Path) -> None:
    news = {"name": "news", "source": {"kind": "files", "paths": ["news.txt"]}}
    talks = {**TALKS, "owners": ["team:talks"]}
    found = shown(
        tmp_path,
        OWNED,
        owners=["ada@example.com"],
        corpora=[{**news, "owners": ["team:news"], "fresh_hours": 26}, {**news, "name": "old"}],
        post_training={"sft": {"corpora": [talks]}},
    )
    assert found["corpora/news/raw"] == [["team:news"], 26]
    assert found["corpora/news/quality"] == [["team:news"], None]
    assert found["corpora/old/raw"] == [["ada@example.com"], None]
    assert found["sft/corpora/of_chat/raw"] == [["team:talks"], None]
    assert found["pretrained_model"] == found["sft/pretrained_model"] == [["ada@example.com"], None]


TICKS = """
import json, sys, pipeline.definitions as code
from datetime import datetime, timedelta
from dagster._utils.schedules import schedule_execution_time_iterator
found = {}
for name in ("nightly_retokenize", "daily_verify"):
    one = code.defs.resolve_schedule_def(name)
    ticks = []
    for day in sys.argv[1:]:
        noon = datetime.fromisoformat(day + "T12:00+00:00") - timedelta(days=1)
        after = schedule_execution_time_iterator(noon.timestamp(), one.cron_schedule, one.execution_timezone)
        ticks += [next(after).astimezone().isoformat() for _ in range(2)]
    found[name] = [one.description, *ticks]
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("zone", "in_utc"),
    [
        ({}, ["03-29 03:00", "03-30 03:00", "10-25 03:00", "10-26 03:00"]),
        pytest.param(
            {"timezone": "Europe/Berlin"},
            ["03-29 01:00", "03-30 01:00", "10-25 02:00", "10-26 02:00"],
            marks=pytest.mark.slow,
        ),
        # where 3:00 is skipped in spring, and comes twice in autumn
        ({"timezone": "Europe/Helsinki"}, ["03-29 01:00", "03-30 00:00", "10-25 01:00", "10-26 01:00"]),
    ],
)
def test_schedules_start_once_a_day_at_their_hour_in_the_recipes_time_zone_also_when_clocks_change(
    tmp_path: Path, zone: dict[str, str], in_utc: list[str]
) -> None:
    found = shown(tmp_path, TICKS, ["2026-03-29", "2026-10-25"], **zone)
    described, *ticks = found["nightly_retokenize"]
    assert [f"{datetime.fromisoformat(tick).astimezone(UTC):%m-%d %H:%M}" for tick in ticks] == in_utc
    named = zone.get("timezone", "UTC")
    assert f"3:00 {named}" in described and f"5:00 {named}" in found["daily_verify"][0]


def test_owners_freshness_and_time_zone_change_nothing_that_is_made(tmp_path: Path) -> None:
    recipe = load_recipe(RECIPES / "default.yaml")
    told = recipe.model_copy(
        update={
            "owners": ("team:data",),
            "timezone": "Europe/Berlin",
            "corpora": tuple(one.model_copy(update={"fresh_hours": 2.0}) for one in recipe.corpora),
        }
    )
    assert told.model_dump_json() == recipe.model_dump_json()
