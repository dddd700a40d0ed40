"""What the mean of the last checkpoints is worth, beside and with a learning rate that decays.

`python -m performance.averages --recipe default --seeds 3 --work DIR` trains each seed twice, with the
schedule of the recipe and with a constant rate, keeps the checkpoints of the last fifth, and gives the scores
of the last one and of means to the code of `decide`. DIR keeps each run, so that it goes on after a kill.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from performance.harness.sidebyside import ROOT, record
from performance.verdicts import Arm, judged, prepared, recipe, scores
from pipeline.recipe.overrides import merged
from trainer.config import RunConfig, load_run_config

MEANS = (2, 4, 8)
SHARE = 40  # of a run between checkpoints: eight of them are its last fifth
UNREAD = ("pyarrow", "numba")  # packages whose docstrings no recipe reads
SMALL = "small"  # the runs of `performance.verdicts`


def shipped(work: Path, name: str, tokens: int | None) -> Path:
    """A recipe that ships, judged by docstrings of two packages; `tokens` long, if given."""
    path = work / "recipe.yaml"
    found = yaml.safe_load((ROOT / "pipeline" / "recipes" / f"{name}.yaml").read_text())
    found.pop("post_training", None)
    texts = [
        {"name": one, "source": {"kind": "python_docs", "packages": [one]}, "max_bytes": 100_000}
        for one in UNREAD
    ]
    found |= {"evaluation": {"texts": texts}, "decontamination": "benchmarks"}
    if tokens is not None:
        found["training"] |= {"max_tokens": tokens}
        found["training"]["schedule"].pop("warmup_tokens")
    path.write_text(yaml.safe_dump(found, sort_keys=False))
    return path


def trained(work: Path, config: Path, schedule: str, seed: int, training: dict[str, Any]) -> None:
    """Trains a run, and scores its last checkpoint and its means: WORK/runs/ARM-SEED.json for each arm, which
    is `<schedule>` or `<schedule> <N>`.
    """
    from trainer.hf.mean import write_mean
    from trainer.run.evaluation.benchmarks import benchmark
    from trainer.run.loop import run

    arms = {schedule: 1} | {f"{schedule} {number}": number for number in MEANS}
    if all((work / "runs" / f"{arm}-{seed}.json").exists() for arm in arms):
        return
    settings = load_run_config(config).model_dump(mode="json") | {"lineage": {}}
    tokens = merged(settings["training"], training)["max_tokens"]
    with tempfile.TemporaryDirectory(dir=work) as place:
        kept = {"every_tokens": tokens // SHARE, "keep_last": max(MEANS), "optimizer": "newest"}
        own = {"seed": seed, "threads": 1, "checkpoint": kept, "evaluation": {"every_tokens": tokens}}
        settings["training"] = merged(merged(settings["training"], training), own)
        assert run(RunConfig.model_validate(settings | {"run_dir": place})) == 0
        saved = sorted(Path(place).glob("checkpoints/step-*/hf"))
        files = sorted((work / "items").glob("*.jsonl"))
        for arm, number in arms.items():
            weights = Path(place) / f"mean-{number}"
            write_mean(saved[-number:], None, like=saved[-1], destination=weights)
            for _ in benchmark(weights, files, "auto", weights):
                pass
            answers = {
                file.stem: [
                    json.loads(line)["log_likelihoods"]
                    for line in (weights / f"{file.stem}.log_likelihoods.jsonl").read_text().splitlines()
                ]
                for file in files
            }
            result = work / "runs" / f"{arm}-{seed}.json"
            result.with_suffix(".tmp").write_text(json.dumps(answers))
            result.with_suffix(".tmp").rename(result)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m performance.averages", description=__doc__)
    parser.add_argument("--recipe", default=SMALL, help="one that ships; default: %(default)s")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tokens", type=int, help="of each run; default: as the recipe says")
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    work = options.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    file = recipe(work) if options.recipe == SMALL else shipped(work, options.recipe, options.tokens)
    config, compared_on = prepared(work, file)
    written = load_run_config(config).training
    tokens = options.tokens or written.max_tokens
    warmup = {"warmup_tokens": round(tokens / 50)}
    schedules = {
        "decay": {"schedule": warmup},
        "constant": {"schedule": {"kind": "constant", "min_lr_ratio": 1.0, **warmup}},
    }
    for seed in range(options.seeds):
        for schedule, training in schedules.items():
            trained(work, config, schedule, seed, {"max_tokens": tokens, **training})
    arms = [schedule + mean for schedule in schedules for mean in ("", *(f" {number}" for number in MEANS))]
    found: dict[str, Arm] = {arm: scores(work, compared_on, arm, options.seeds) for arm in arms}
    report: dict[str, Any] = {}
    for arm, ours in found.items():
        # the mean over texts, each of which counts alike
        bits = np.mean([ours[one.name].sum(1) / one.sizes.sum() for one in compared_on], 0)
        report[arm] = {
            "bits_per_byte": [round(float(one), 4) for one in bits],
            "mean": round(float(bits.mean()), 4),
        }
        if arm != "decay":
            verdict = judged(compared_on, found["decay"], ours)
            report[arm] |= {
                "difference": round(float(verdict.value), 4),
                "interval": [round(float(verdict.low), 4), round(float(verdict.high), 4)],
                "it_says": verdict.word,
            }
        print(arm, report[arm])
    name = f"averages_{options.recipe}_{tokens}"
    record(name, {"tokens": tokens, "seeds": options.seeds, "arms": report}, ["torch", "numpy"])


if __name__ == "__main__":
    main()
