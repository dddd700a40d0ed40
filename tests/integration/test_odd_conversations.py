"""Rows of all forms, and conversations that cannot be asked, through the jobs `sft` and `align`."""

import json
from pathlib import Path

import pytest

from pipeline.recipe import variants
from pipeline.steps.recipe_versions import RecipeVersions
from pipeline.store import keys
from pipeline.store.store import Store
from tests.integration.project import make_chat_project
from tests.pipeline.sources.talks import files


@pytest.mark.slow
def test_rows_of_all_forms_and_talks_that_cannot_be_asked_go_through_both_jobs(tmp_path: Path) -> None:
    project = make_chat_project(tmp_path / "random")
    project.recipe["training"] |= {"seq_len": 256, "micro_batch_size": 2}
    project.recipe["checks"] = {"max_set_aside_share": 0.9}
    said = [{"role": "user", "content": "word " * 300}, {"role": "assistant", "content": "It is one."}]
    odd = [
        *(
            {"id": f"long-{n}", "messages": [{**said[0], "content": f"{n} {said[0]['content']}"}, said[1]]}
            for n in range(5)
        ),
        *(
            {
                "id": f"ends-{n}",
                "messages": [
                    {"role": "user", "content": f"{n}?"},
                    *said[1:],
                    {"role": "user", "content": "bye"},
                ],
            }
            for n in range(20)
        ),
        *({"id": f"alone-{n}", "messages": [{**said[1], "content": f"Alone {n}."}]} for n in range(20)),
        *({"id": f"form-{n}", "prompt": f"Which {n}?", "completion": "a", "form": "("} for n in range(5)),
    ]
    for format, more in (("chat", odd), ("preferences", [])):
        with (project.directory / f"{format}.jsonl").open("a") as file:
            for row in (*more, *(row for rows in files(format, 1, 1000, 50) for row in rows)):
                file.write(json.dumps(row) + "\n")
    for job in ("pretrain", "align"):
        status, told = project.run(job=job)
        assert status == 0, told
    for section, rows in (("sft", 1050), ("dpo", 1000)):
        recipe = variants.load(project.write_recipe(), section)
        of_section = Store(project.home / "store", RecipeVersions(recipe))
        raw = of_section.current(keys.raw(f"{section}_words")).counts
        assert raw["documents"] + raw["set_aside"] >= rows
        tuning = json.loads(of_section.current(keys.EVALUATION).only("evaluation").read_text())["tuning"]
        assert tuning["asked"] > 0
    assert raw["set_aside/not_learnt"] > 100
