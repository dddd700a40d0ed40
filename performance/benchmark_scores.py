"""Our log-likelihoods and accuracies beside those of ai2-olmo-eval's own metric and of lm-eval, item by item,
for an exported model that transformers reads.

    PYTHON performance/benchmark_scores.py MODEL [--tasks arc_easy,piqa] [--items 200]

PYTHON needs ai2-olmo-eval 0.9.0 and lm-eval 0.4.13 with their dependencies. All compute in fp32. With
--items, only the first of each task are compared. A model with a short context is read with one of 2,048
tokens by all three, because both peers fail on answers that do not fit.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from harness.sidebyside import record
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipeline.sources.benchmarks.items import of_package
from trainer.run.evaluation.benchmarks import benchmark

TASKS = "arc_easy,arc_challenge,piqa,sciq,csqa,openbookqa,winogrande,socialiqa"
WITH_LM_EVAL = ("arc_easy", "piqa")
CONTEXT = 2048
# Our name of the accuracy that a metric of ai2-olmo-eval is.
METRICS = {"acc": "accuracy", "len_norm": "accuracy_per_character"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--tasks", default=TASKS)
    parser.add_argument("--items", type=int)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        model = longer(options.model, Path(directory) / "model")
        tasks = options.tasks.split(",")
        rows = [row for name in tasks for row in compared(model, name, options.items, Path(directory))]
    versions = {name: version(name) for name in ("ai2-olmo-eval", "lm-eval", "torch", "transformers")}
    record("benchmark_scores", {"versions": versions, "rows": rows}, ())


def longer(model: Path, copy: Path) -> Path:
    """A copy of the model that reads CONTEXT tokens."""
    shutil.copytree(model, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"max_position_embeddings": CONTEXT}))
    return copy


def compared(model: Path, name: str, limit: int | None, directory: Path) -> Iterator[dict[str, Any]]:
    task = of_package(name)
    items = directory / f"{name}.jsonl"
    items.write_text("".join(task.lines.splitlines(keepends=True)[:limit]))
    ((_, scores),) = benchmark(model, [items], "fp32", directory)
    answers = (directory / f"{name}.log_likelihoods.jsonl").read_text().splitlines()
    ours = [json.loads(line)["log_likelihoods"] for line in answers]
    values, theirs = of_olmo(model, name, len(ours))
    for metric, own in METRICS.items():
        yield {
            "task": name,
            "peer": f"ai2-olmo-eval {metric}",
            "items": len(ours),
            "accuracy": scores[own]["value"],
            "peer's": values[metric],
            "largest difference in nats": difference(ours, theirs),
        }
    if name in WITH_LM_EVAL:
        value, theirs = of_lm_eval(model, items, directory)
        yield {
            "task": name,
            "peer": "lm-eval acc",
            "items": len(ours),
            "accuracy": scores["accuracy"]["value"],
            "peer's": value,
            "largest difference in nats": difference(ours, theirs),
        }


def difference(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> float:
    pairs = zip(ours, theirs, strict=True)
    return max(abs(a - b) for one, other in pairs for a, b in zip(one, other, strict=True))


@torch.no_grad()
def of_olmo(model: Path, name: str, items: int) -> tuple[dict[str, float], list[list[float]]]:
    """The METRICS that ICLMetric computes from the logits of transformers, and its log-likelihoods."""
    from olmo_eval import HFTokenizer, ICLMetric
    from olmo_eval.tasks import OEEvalTask

    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    encoder = HFTokenizer(
        str(model / "tokenizer.json"),
        pad_token_id=tokenizer.pad_token_id or 0,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.bos_token_id,
    )
    asked = OEEvalTask(encoder, name, "rc_0shot", model_ctx_len=CONTEXT, metric_type="acc")
    judges = {metric: ICLMetric(metric_type=metric) for metric in METRICS}
    samples = [sample for sample in asked.samples if sample["doc_id"] < items]
    for start in range(0, len(samples), 32):
        batch = asked.collate_fn(samples[start : start + 32])
        logits = network(batch["input_ids"]).logits
        for judge in judges.values():
            judge.update(batch, logits)
    found: dict[int, dict[int, float]] = {}
    for document, continuation, value in judges["acc"].loglikelihoods:
        found.setdefault(document, {})[continuation] = value
    rows = [[row[number] for number in sorted(row)] for _, row in sorted(found.items())]
    return {metric: float(judge.compute()[f"{metric}_v2"]) for metric, judge in judges.items()}, rows


def of_lm_eval(model: Path, items: Path, directory: Path) -> tuple[float, list[list[float]]]:
    """The accuracy of lm-eval on the same items, in a task described by a local YAML file."""
    import yaml
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    rows = directory / "rows.jsonl"
    with rows.open("w") as file:
        for line in items.read_text().splitlines():
            item = json.loads(line)
            # lm-eval puts the space before an answer itself
            choices = [choice.removeprefix(" ") for choice in item["continuations"]]
            file.write(
                json.dumps({"context": item["context"], "choices": choices, "gold": item["gold"]}) + "\n"
            )
    tasks = directory / "tasks"
    tasks.mkdir(exist_ok=True)
    settings = {
        "task": "own",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"validation": str(rows)}},
        "validation_split": "validation",
        "output_type": "multiple_choice",
        "doc_to_text": "{{context}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{gold}}",
        "metric_list": [{"metric": "acc"}],
    }
    (tasks / "own.yaml").write_text(yaml.safe_dump(settings))
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(model)
    evaluated = HFLM(pretrained=network, tokenizer=tokenizer, batch_size=32, add_bos_token=True, device="cpu")
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    result = simple_evaluate(
        evaluated, tasks=["own"], task_manager=manager, log_samples=True, bootstrap_iters=0
    )
    samples = sorted(result["samples"]["own"], key=lambda sample: sample["doc_id"])
    found = [[float(answer[0]) for answer in sample["filtered_resps"]] for sample in samples]
    return float(result["results"]["own"]["acc,none"]), found


if __name__ == "__main__":
    main()
