"""What the hub shows beside a model or a data set and finds it by: the front matter of a card."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pipeline.sources.hub.catalog import licenses
from pipeline.steps.lineage.checkpoints import TrainedModel
from pipeline.steps.model import harness
from pipeline.store.manifest import breakdown

TAGS = ["groundwork"]
RARE = 0.01  # of the documents are in a language that is not named
METRICS = {ours: theirs for theirs, ours in harness.ACCURACIES.items()}
HARNESS = {
    "source_name": "lm-evaluation-harness",
    "source_url": "https://github.com/EleutherAI/lm-evaluation-harness",
}


def of_model(lineage: Mapping[str, Any], evaluation: Mapping[str, Any], name: str, library: str) -> str:
    """The front matter of a model as YAML. `library` is what reads the model. The hub knows a base model only
    by its name there. So a model that began from one of our own names the model on the hub that the first of
    these began from.
    """
    from huggingface_hub import EvalResult, ModelCardData

    model = TrainedModel(lineage)
    ancestry = [one.lineage for one in (model, *model.bases)]
    corpora = [corpus for one in ancestry for corpus in one["recipe"]["corpora"] if corpus.get("train", True)]
    bases = [(one["recipe"]["training"].get("pretrained") or {}).get("repo") for one in ancestry]
    base = next(filter(None, bases), None)
    from_scratch = bases[-1] is None and "pretrained" not in ancestry[-1]
    found = [
        EvalResult(task_type="text-generation", dataset_type=of, dataset_name=of, **result)
        for of, results in _results(evaluation).items()
        for result in results
    ]
    return ModelCardData(
        library_name=library,
        pipeline_tag="text-generation",
        tags=TAGS,
        license=license_of(corpora) if from_scratch else None,
        language=languages([one["assets"] for one in ancestry]),
        base_model=base,
        datasets=_distinct(one["source"]["name"] for one in corpora if one["source"]["kind"] == "hub"),
        model_name=name,
        eval_results=found,
    ).to_yaml()


def license_of(corpora: Iterable[Mapping[str, Any]]) -> list[str] | None:
    """The licenses of the corpora as the hub names them; None if that of one is not known."""
    found = [licenses(corpus) for corpus in corpora]
    return _distinct(one for several in found for one in several) if all(found) else None


def languages(assets: Iterable[Mapping[str, Any]]) -> list[str] | None:
    """The languages of documents that are not rejected, by frequency; None if they were not measured."""
    counts = Counter[str]()
    for one in assets:
        for key, version in one.items():
            if key.rpartition("/")[2] == "quality":
                found, kept = breakdown(version["counts"], "languages"), version["params"]["languages"]
                counts.update({name: found[name] for name in found if kept is None or name in kept})
    return [name for name, count in counts.most_common() if count > RARE * counts.total()] or None


def _results(evaluation: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The figures that were measured, by text or benchmark."""
    bits = "bits_per_byte"
    found = {"held-out text": [{"metric_type": "perplexity", "metric_value": evaluation["perplexity"]}]}
    if evaluation[bits] is not None:
        found["held-out text"].append({"metric_type": bits, "metric_value": evaluation[bits]})
    for title, scores in (evaluation.get("benchmarks") or {}).items():
        source = HARNESS if title.startswith(harness.TITLE.format("")) else {}
        shown = {**METRICS, **({} if scores["metric"] else {bits: bits})}
        found[title] = [
            {"metric_type": kind, "metric_value": scores[name]["value"], **source}
            for name, kind in shown.items()
            if scores[name]
        ]
    return found


def _distinct(names: Iterable[str]) -> list[str] | None:
    return list(dict.fromkeys(names)) or None
