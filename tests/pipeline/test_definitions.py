"""What the web server and the daemon load, which is more than a job that is started by its name."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

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


def shown(tmp_path: Path, **sections: Any) -> dict[str, Any]:
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
    command = [sys.executable, "-W", "ignore", "-c", SHOWN]
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
