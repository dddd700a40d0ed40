"""What the hub finds a model by: license, languages, data sets, the model that it began from, scores."""

from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCardData

from pipeline.sources.hub.catalog import ready_made
from pipeline.steps.model import front_matter
from pipeline.steps.model.harness import Results
from tests.pipeline.steps.model import lm_eval

EVALUATION: dict[str, Any] = {"perplexity": 12.5, "bits_per_byte": 1.25}
OWN = {"kind": "files", "paths": ["own.jsonl"]}
WIKI, STORIES = (
    next(one.source.model_dump(mode="json") for one in ready_made() if one.name == name)
    for name in ("wikitext-103-raw-v1", "tinystories")
)


def lineage(*corpora: dict[str, Any], pretrained: str | None = None, **languages: int) -> dict[str, Any]:
    named = [{"name": f"c{place}", **corpus} for place, corpus in enumerate(corpora)]
    counts = {f"languages/{name}": count for name, count in languages.items()}
    return {
        "recipe": {"corpora": named, "training": {"pretrained": pretrained and {"repo": pretrained}}},
        "assets": {
            f"corpora/{one['name']}/quality": {"counts": counts, "params": {"languages": None}}
            for one in named
        },
    }


def read(one: dict[str, Any], evaluation: dict[str, Any] = EVALUATION) -> dict[str, Any]:
    return yaml.safe_load(front_matter.of_model(one, evaluation, "mine", "transformers"))


def test_licenses_and_data_sets_are_those_of_all_corpora_that_were_trained_on() -> None:
    own = {"source": OWN, "license": "cc-by-4.0"}
    unread = {"source": OWN, "train": False}
    card = read(lineage({"source": WIKI}, {"source": STORIES}, own, unread))
    assert card["license"] == ["cc-by-sa-3.0", "gfdl", "cdla-sharing-1.0", "cc-by-4.0"]
    assert card["datasets"] == ["Salesforce/wikitext", "roneneldan/TinyStories"]
    assert "license" not in read(lineage({"source": WIKI}, {"source": OWN}))


def test_languages_are_named_unless_they_are_rare() -> None:
    assert read(lineage({"source": OWN}, de=300, en=690, fr=9))["language"] == ["en", "de"]
    assert "language" not in read(lineage({"source": OWN}))
    asked = lineage({"source": OWN}, de=300, en=700)
    asked["assets"]["corpora/c0/quality"]["params"]["languages"] = ["de"]
    assert read(asked)["language"] == ["de"]


def test_a_tuned_model_has_the_base_and_the_data_sets_of_all_before_it() -> None:
    base = lineage({"source": WIKI}, pretrained="owner/base")
    sft = lineage({"source": STORIES}) | {"pretrained": {"lineage": base}}
    card = read(lineage({"source": OWN, "license": "mit"}) | {"pretrained": {"lineage": sft}})
    assert card["base_model"] == "owner/base"  # the others are on no hub
    assert card["datasets"] == ["roneneldan/TinyStories", "Salesforce/wikitext"]
    assert "license" not in card  # that of the base is not known
    base["recipe"]["training"]["pretrained"] = None
    assert read(sft)["license"] == ["cdla-sharing-1.0", "cc-by-sa-3.0", "gfdl"]
    assert "base_model" not in read(sft)


def test_scores_are_results_that_the_library_of_the_hub_reads(tmp_path: Path) -> None:
    text = dict.fromkeys(("metric", *front_matter.METRICS)) | {"bits_per_byte": {"value": 1.5}}
    benchmarks = {"unread": text, **Results.read(lm_eval.write(tmp_path, "somewhere")).scores}
    card = read(lineage({"source": OWN}), EVALUATION | {"benchmarks": benchmarks})
    found = ModelCardData(**card)
    assert found.model_name == "mine" and found.eval_results
    assert [(one.dataset_name, one.metric_type, one.metric_value) for one in found.eval_results] == [
        ("held-out text", "perplexity", 12.5),
        ("held-out text", "bits_per_byte", 1.25),
        ("unread", "bits_per_byte", 1.5),
        ("lm-eval:own", "acc", 0.75),
        ("lm-eval:own", "acc_norm", 0.5),
    ]
    assert [one.source_name for one in found.eval_results][-2:] == [None, "lm-evaluation-harness"][1:] * 2
