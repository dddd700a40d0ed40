"""Scores that lm-evaluation-harness wrote for a model, beside those of benchmarks that the trainer asks."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pipeline.sources.benchmarks.items import Benchmark, Question
from pipeline.steps.lineage.checkpoints import TrainedModel
from pipeline.steps.model.benchmark import AskedBenchmark, LogLikelihoods, Scores
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.fingerprint import file_sha256
from pipeline.store.manifest import Part, Version
from pipeline.store.store import Store
from pipeline.store.work import Work
from trainer.config.model_files import SINGLE
from trainer.system.durable import read_json
from trainer.system.intervals import of_mean, wilson

VERSION = "harness-1"
TITLE = "lm-eval:{}"  # its questions and prompts are other ones than those of a benchmark of the same name
ACCURACIES = {"acc": "accuracy", "acc_norm": "accuracy_per_character", "acc_bytes": "accuracy_per_byte"}
# What reading JSON of another shape, or with other numbers, raises.
OTHERWISE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError)


@dataclass(frozen=True)
class Answers:
    """The questions of a task, and the log-likelihoods of their answers."""

    items: Sequence[Question]
    log_likelihoods: LogLikelihoods

    @classmethod
    def read(cls, path: Path, accuracy: float) -> Self | None:
        """Reads a file of samples. None if there is none, or if the `accuracy` does not follow from it."""
        items, rows = [], []
        try:
            for line in path.read_text(encoding="utf-8").split("\n"):
                if line:
                    row = json.loads(line)
                    asked = [(one["arg_0"], one["arg_1"]) for one in row["arguments"].values()]
                    contexts, continuations = zip(*asked, strict=True)
                    context = contexts[0] if len(set(contexts)) == 1 else contexts
                    gold = int(row["target"])
                    items.append(Question(context=context, continuations=continuations, gold=gold))
                    rows.append([float(one[0]) for one in row["filtered_resps"]])
            found = list(zip(items, rows, strict=True))
            right = sum(row.index(max(row)) == item.gold for item, row in found)
            alike = all(
                len(item.continuations) == len(row) > item.gold >= 0 and len(row) > 1 for item, row in found
            )
            known = all(math.isfinite(one) for row in rows for one in row)
        except (OSError, *OTHERWISE):
            return None
        follows = items and alike and known and math.isclose(right / len(items), accuracy)
        return cls(items, rows) if follows else None

    @property
    def scores(self) -> Scores:
        """The scores that follow from the answers, and that the results lack."""
        found = zip(self.items, self.log_likelihoods, strict=True)
        sizes = [len(item.continuations[item.gold].encode()) for item in self.items]
        bits = [-row[item.gold] / math.log(2) for item, row in found]
        chance = sum(1 / len(item.continuations) for item in self.items) / len(self.items)
        per_byte = of_mean([one / size for one, size in zip(bits, sizes, strict=True)])
        return {"chance": chance, "bits_per_byte": per_byte}


@dataclass(frozen=True)
class Results:
    """What the harness measured of `model`, which is a path or a name on the hub. `parameters` is their
    number, None where the file does not say. Titles are those in tables. `left_out` has the figures that are
    no shares of right answers.
    """

    model: str
    parameters: int | None
    scores: Mapping[str, Scores]
    answers: Mapping[str, Answers]
    left_out: Sequence[str]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a `results_*.json`, and the `samples_*.jsonl` beside it. Raises PipelineError."""
        try:
            found = read_json(path)
            model, parameters = str(found["model_name"]), found["config"].get("model_num_parameters")
            scores: dict[str, Scores] = {}
            answers: dict[str, Answers] = {}
            left_out: list[str] = []
            for task, title, items, shares in _rows(found):
                if not shares or not items:
                    left_out.append(title)
                    continue
                logged = path.with_name(path.name.replace("results_", f"samples_{task}_", 1) + "l")
                if (accuracy := shares.get("accuracy")) is not None and (
                    read := Answers.read(logged, accuracy)
                ):
                    answers[title] = read
                scores[title] = _scores(items, shares, answers.get(title))
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise PipelineError(f"{path} cannot be read: {why}") from error
        except OTHERWISE as error:
            raise PipelineError(
                f"{path} is not from lm-evaluation-harness, or from another release ({error!r}): give the "
                "results_*.json that `lm_eval run --output_path` writes"
            ) from error
        if not scores:
            raise PipelineError(f"{path} holds no share of right answers, only {', '.join(left_out)}")
        return cls(model, parameters, scores, answers, left_out)

    def check_model(self, path: Path, named: bool) -> None:
        """Raises PipelineError unless the results are of the model in a directory. Weights on this machine
        are compared. Of others only the size is known, so the user must have `named` the model.
        """
        measured, ours = Path(self.model), path / "hf" if (path / "hf").is_dir() else path
        if measured.is_dir():
            is_ours = measured.samefile(ours) or _weights(measured) == _weights(ours)
        elif not named:
            raise PipelineError(
                f"the results are of {self.model}, which is not on this machine: give --model"
            )
        else:
            ours_has = TrainedModel(read_json(path / "lineage.json")).parameters
            is_ours = self.parameters in (None, ours_has)
        if not is_ours:
            raise PipelineError(
                f"the results are of another model, {self.model}, not of {path}: give --model"
            )


def _rows(results: Mapping[str, Any]) -> Iterator[tuple[str, str, int | None, dict[str, float]]]:
    """Each row of a table: the task, its title, how many items were asked, and the shares of right answers,
    which are empty if the figure of the row is none. A group with shares stands for its tasks.
    """
    sizes, better = results["n-samples"], results["higher_is_better"]
    groups = results.get("group_subtasks") or {}
    figures = {
        task: {
            tuple(name.split(",")): value
            for name, value in row.items()
            if "," in name and "_stderr," not in name and isinstance(value, int | float)
        }
        for task, row in results["results"].items()
    }
    hidden = {task for group, tasks in groups.items() if figures.get(group) for task in tasks}
    for task in [task for task in figures if task not in hidden]:
        counted = results["results"][task].get("sample_count", {})
        items = next(iter(counted.values()), sizes.get(task, {}).get("effective"))
        own = {
            ACCURACIES[name]: value
            for (name, _), value in figures[task].items()
            if name in ACCURACIES and 0 <= value <= 1
        }
        if own:
            yield task, TITLE.format(task), items, own
        for (name, chosen), value in figures[task].items():
            if name not in ACCURACIES:
                is_share = better[task].get(name) and 0 <= value <= 1
                title = f"{task} {name}" + ("" if chosen == "none" else f" {chosen}")
                yield task, TITLE.format(title), items, {"accuracy": value} if is_share else {}


def _scores(items: int, shares: Mapping[str, float], answers: Answers | None) -> Scores:
    usual = next(name for name in ("accuracy_per_character", "accuracy", *shares) if name in shares)
    return {
        "items": items,
        **dict.fromkeys(("chance", "bits_per_byte", "texts_removed", *ACCURACIES.values())),
        **{name: wilson(share * items, items) for name, share in shares.items()},
        **(answers.scores if answers else {}),
        "metric": usual,
        "cut": 0,
    }


def _weights(directory: Path) -> str:
    """The hash of the weights; empty if there are none."""
    weights = directory / SINGLE
    return file_sha256(weights) if weights.is_file() else ""


def publish(store: Store, checkpoint: str, results: Results) -> Version:
    """Keeps the results as those of a checkpoint."""
    answers = {
        title: {"items": [item.model_dump() for item in one.items], "log_likelihoods": one.log_likelihoods}
        for title, one in results.answers.items()
    }
    content = {"scores": results.scores, "answers": answers}
    texts = {name: json.dumps(value) for name, value in content.items()}
    made_from = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    with store.making(Work(keys.imported(checkpoint), VERSION, {}, made_from)) as draft:
        if isinstance(draft, Version):
            return draft
        files = {name: draft.write(f"{name}.json", text) for name, text in texts.items()}
        return draft.publish([Part("results", draft.work.fingerprint, files)])


def imported(store: Store, checkpoint: str) -> dict[str, list[str]]:
    """What has been imported of a checkpoint, as a setting of its evaluation."""
    found = sorted(version.data_version for version in store.newest_first(keys.imported(checkpoint)))
    return {"imported": found} if found else {}


def scores(store: Store, checkpoint: str) -> dict[str, Scores]:
    """The imported scores of a checkpoint, of each title the newest."""
    return _newest(store, checkpoint, "scores")


def answers(store: Store, checkpoint: str) -> dict[str, tuple[AskedBenchmark, LogLikelihoods]]:
    """The imported answers of a checkpoint by the hash of what was asked."""
    found = {}
    for title, one in _newest(store, checkpoint, "answers").items():
        items = tuple(Question.model_validate(item) for item in one["items"])
        asked = AskedBenchmark(Benchmark(title, items, "accuracy"), {"kind": "lm-eval"})
        found[asked.sha256] = (asked, one["log_likelihoods"])
    return found


def _newest(store: Store, checkpoint: str, table: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for version in store.newest_first(keys.imported(checkpoint)):
        found = read_json(version.only(table)) | found
    return found
