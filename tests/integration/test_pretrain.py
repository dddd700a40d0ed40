"""`dagster job execute -j pretrain`, typed as the README says, from text to a model that others can open."""

import json
import math
import re
from pathlib import Path

import dagster as dg
import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

from pipeline.cli import main
from pipeline.cli.summary import ui_command
from pipeline.steps.model import evaluate
from pipeline.steps.tokens import bigram
from pipeline.steps.tokens.shards import prefixes
from pipeline.store import keys
from pipeline.store.keys import TRAIN, VALIDATION, Key
from tests.integration.project import ROOT, Project
from trainer.config import SamplesConfig
from trainer.data.shards import TokenStream
from trainer.hf import load_model
from trainer.run.evaluation.generate import complete_with_model_of


def materializations(project: Project, key: list[str]) -> list[dg.AssetMaterialization]:
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        records = instance.fetch_materializations(dg.AssetKey(key), limit=100).records
        return [record.asset_materialization for record in records if record.asset_materialization]


def test_every_stage_reports_its_data_version_and_what_became_of_the_documents(finished: Project) -> None:
    paths = [
        ["corpora", corpus, stage]
        for corpus in ("topics", "stdlib")
        for stage in ("raw", "scrubbed", "quality")
    ]
    paths += [
        ["dedup"],
        ["tokenizer"],
        ["token_shards", "topics"],
        ["token_shards", "stdlib"],
        ["pretrained_model"],
        ["evaluation"],
        ["exported_model"],
    ]
    for key in paths:
        (event,) = materializations(finished, key)
        assert (
            event.tags
            and event.tags["dagster/data_version"]
            == finished.store.current(Key.from_path("/".join(key))).data_version
        )
        assert event.metadata["seconds"].value is not None
    (quality,) = materializations(finished, ["corpora", "stdlib", "quality"])
    verdicts = {
        record.data["verdict"]: record.data["documents"]
        for record in quality.metadata["verdicts by rule"].value.records
    }
    assert verdicts.pop("kept") == quality.metadata["kept"].value > 0
    assert sum(verdicts.values()) == quality.metadata["rejected"].value > 0


def test_documents_in_are_documents_kept_and_rejected_at_every_stage(finished: Project) -> None:
    counts = {
        key: finished.store.current(key).counts
        for key in ("corpora/topics/raw", "corpora/topics/scrubbed", "corpora/topics/quality")
    }
    assert (
        counts["corpora/topics/raw"]["documents"]
        == counts["corpora/topics/scrubbed"]["documents"]
        == counts["corpora/topics/quality"]["documents"]
    )
    quality = counts["corpora/topics/quality"]
    assert quality["kept"] + quality["rejected"] == quality["documents"]
    dedup = finished.store.current(keys.DEDUP).counts
    shards = [finished.store.current(keys.token_shards(corpus)).counts for corpus in ("topics", "stdlib")]
    assert dedup["kept"] + dedup["removed"] == dedup["documents"]
    assert sum(found["train_documents"] + found["validation_documents"] for found in shards) == dedup["kept"]
    assert dedup["removed/exact"] >= 1
    assert dedup["removed/near"] >= 1


def test_an_address_is_gone_from_everything_that_a_model_could_see(finished: Project) -> None:
    assert finished.store.current(keys.scrubbed("topics")).counts["spans/email"] >= 1
    later = [
        path
        for key in ("corpora/topics/scrubbed", "dedup", "tokenizer", "token_shards")
        for path in (finished.store.root / key).rglob("*")
    ]
    assert later
    assert not [path for path in later if path.is_file() and b"jane.doe@" in path.read_bytes()]


def test_each_checkpoint_is_an_entry_with_the_versions_it_was_made_from(finished: Project) -> None:
    events = materializations(finished, ["checkpoint"])
    assert sorted(event.metadata["tokens"].value for event in events) == [4096, 8192, 12288, 16384]
    for event in events:
        tags = event.tags or {}
        for key in ("tokenizer", "token_shards/topics", "token_shards/stdlib"):
            assert tags[f"dagster/input_data_version/{key}"] == finished.store.current(key).data_version
    final = max(events, key=lambda event: event.metadata["tokens"].value)
    lineage = json.loads((Path(final.metadata["path"].value) / "lineage.json").read_text())
    assert (
        lineage["assets"]["corpora/topics/raw"]["data_version"]
        == finished.store.current(keys.raw("topics")).data_version
    )
    assert lineage["recipe"]["name"] == "tiny"


def test_the_run_is_on_the_leaderboard(finished: Project) -> None:
    metadata = materializations(finished, ["leaderboard"])[0].metadata
    header, _, row = (
        line.strip("| ").split(" | ") for line in metadata["all runs, all columns"].value.strip().splitlines()
    )
    found = dict(zip(header, row, strict=True))
    bits = materializations(finished, ["evaluation"])[0].metadata["bits per byte"].value
    shown = {"recipe": "tiny", "tokens": "16,384", "done": "100%", "checkpoints": "2"}
    assert shown.items() <= found.items()
    assert float(found["bits per byte"]) == pytest.approx(bits, abs=1e-4)
    run = finished.store.current(keys.PRETRAINED_MODEL).fingerprint[:8]
    assert found["run"].startswith(f"[tiny {run}](/assets/checkpoint?view=partitions&partition={run}-")


def test_transformers_opens_the_export_and_its_logits_are_the_trainers(finished: Project) -> None:
    exported = finished.store.current(keys.EXPORTED_MODEL).path
    # the machines it was trained on
    assert "launch" not in json.loads((exported / "lineage.json").read_text())["recipe"]
    tokenizer = AutoTokenizer.from_pretrained(exported)
    ids = tokenizer("Return the number of items in a container.", return_tensors="pt").input_ids
    with torch.no_grad():
        theirs = AutoModelForCausalLM.from_pretrained(exported).float()(ids).logits
        model = load_model(exported, torch.device("cpu"))
        ours = model.logits(model(ids))[..., : theirs.shape[-1]]
    assert theirs.shape[-1] == len(tokenizer) == 512
    assert (ours - theirs).abs().max() < 1e-4


def test_the_exported_tokenizer_begins_a_text_as_in_training_and_the_frozen_one_does_not_change(
    finished: Project,
) -> None:
    exported, frozen = (finished.store.current(key).path for key in (keys.EXPORTED_MODEL, keys.TOKENIZER))
    prompts, plain = AutoTokenizer.from_pretrained(exported), AutoTokenizer.from_pretrained(frozen)
    ids = prompts("Return the").input_ids
    assert ids == [plain.convert_tokens_to_ids("[BOT]"), *plain("Return the").input_ids]
    assert prompts.decode(ids, skip_special_tokens=True) == "Return the"
    assert (prompts.model_max_length, plain.model_max_length) == (64, int(1e30))
    greedy = SamplesConfig(prompts=["Return the"], max_new_tokens=8, temperature=0)
    (ours,) = complete_with_model_of(exported, greedy, seed=0)
    (theirs,) = pipeline("text-generation", str(exported))("Return the", max_new_tokens=8, do_sample=False)
    assert theirs["generated_text"] == ours["text"]


def test_a_second_run_recomputes_nothing(finished: Project) -> None:
    before = finished.content()
    finished.make()
    newest = [
        materializations(finished, ["corpora", "topics", stage])[0]
        for stage in ("raw", "scrubbed", "quality")
    ]
    newest += [
        materializations(finished, key)[0]
        for key in (["dedup"], ["tokenizer"], ["token_shards", "topics"], ["pretrained_model"])
    ]
    assert all(event.metadata["reused"].value for event in newest)
    assert finished.content() == before


def test_the_summary_says_where_the_model_is_and_how_good_it_is(
    finished: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finished.enter(monkeypatch)
    assert main(["summary"]) == 0
    said = capsys.readouterr().out
    assert str(finished.store.current(keys.EXPORTED_MODEL).path) in said
    assert "bits per byte" in said and "xz -9" in said and "Return the" in said
    took = r"Training     16,384 tokens in [\d.]+ (s|min), [\d,]+ tokens/s, with start-up, validation"
    assert re.search(took, said)
    assert f"tensorboard --logdir {finished.store.root}/runs\n" in said
    path = finished.store.current(keys.EXPORTED_MODEL).path
    assert f"    python -m trainer generate --model {path} --prompt 'It was'\n" in said
    bigrams = re.search(r"xz -9 needs [\d.]+, and a bigram model ([\d.]+)\n", said)
    assert bigrams and float(bigrams[1]) == pytest.approx(by_pairs(finished), rel=0.01)


def by_pairs(finished: Project) -> float:
    """Bits per byte of the held-out text, by counts of which token follows which in each corpus."""
    entries, nats = finished.store.current(keys.TOKENIZER).counts["entries"], 0.0
    for corpus in ("topics", "stdlib"):
        shards = finished.store.current(keys.token_shards(corpus))
        learned, held_out = (TokenStream(prefixes(shards, split)) for split in (TRAIN, VALIDATION))
        text = held_out.window(0, held_out.num_tokens)
        nats += bigram.loss([learned.window(0, learned.num_tokens)], text, entries) * len(text)
    size = evaluate.read(finished.store.current(keys.EVALUATION))["held_out_bytes"]
    return nats / size / math.log(2)


def test_the_summary_prints_the_command_that_shows_this_recipe_and_this_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("GROUNDWORK_RECIPE", "GROUNDWORK_STORE", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(ROOT)
    assert ui_command() == "make ui"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GROUNDWORK_RECIPE", "my recipe.yaml")
    monkeypatch.setenv("GROUNDWORK_STORE", "/data/store")
    recipe = f"GROUNDWORK_RECIPE='{tmp_path}/my recipe.yaml'"
    assert ui_command() == f"{recipe} GROUNDWORK_STORE=/data/store make -C {ROOT} ui"
    monkeypatch.setenv("GROUNDWORK_STORE", "store")  # make would look for it where the command is typed
    assert ui_command() == f"{recipe} GROUNDWORK_STORE={tmp_path}/store make -C {ROOT} ui"


def test_settings_given_with_c_override_the_recipe(finished: Project, tmp_path: Path) -> None:
    override, changes = tmp_path / "some.yaml", {"shards": {"validation_fraction": 0.2}}
    config = {
        "name": "more held out",
        "training": {"seq_len": finished.recipe["training"]["seq_len"]},  # as in the recipe
        "overrides": changes,
    }
    override.write_text(yaml.safe_dump({"resources": {"workshop": {"config": config}}}))
    before = finished.store.current(keys.token_shards("topics")).counts["validation_documents"]
    finished.make("-c", str(override), job="retokenize")
    changed = finished.store_of(changes).current(keys.token_shards("topics"))
    assert changed.counts["validation_documents"] > before
    with dg.DagsterInstance.from_config(str(finished.home)) as instance:
        tags = instance.get_runs(limit=1)[0].tags
    shown = {name: text for name, text in tags.items() if not name.startswith((".dagster/", "dagster/"))}
    assert shown == {"name": "more held out", "shards.validation_fraction": "0.2"}
    assert finished.store.current(keys.token_shards("topics")).counts["validation_documents"] == before


def test_a_bad_setting_is_one_line_and_no_run(finished: Project, tmp_path: Path) -> None:
    override = tmp_path / "bad.yaml"
    config = {"overrides": {"training": {"optimiser": {"lr": 1}}}}
    override.write_text(yaml.safe_dump({"resources": {"workshop": {"config": config}}}))
    with dg.DagsterInstance.from_config(str(finished.home)) as instance:
        before = instance.get_runs_count()
        status, said = finished.run("-c", str(override))
        assert instance.get_runs_count() == before
    problem = "training: unknown key 'optimiser': did you mean 'optimizer'?"
    (*before_it, last) = said.splitlines()
    assert (status, last) == (1, f"error: the settings of this run, from the Launchpad or -c: {problem}")
    assert all("preparing the run" in line for line in before_it)  # of a busy machine
