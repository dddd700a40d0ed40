"""How often `decide` is wrong: small runs that differ in the seed alone, and a control of half duplicates.

`python -m performance.verdicts --pairs 200 --controls 100 --work DIR` prepares two corpora and two evaluation
texts once, trains six runs for each pair and three more for each control, no run twice, and gives what they
scored to the code of `decide`. DIR keeps each run, so that it goes on after a kill.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.stats import binomtest

from performance.harness.sidebyside import ROOT, documents, record
from pipeline.recipe.loading import load_recipe
from pipeline.recipe.overrides import merged
from pipeline.reports.variant_arms import measures
from pipeline.steps.model.benchmark import AskedBenchmark
from pipeline.steps.model.significance import ALIKE, ALPHA, LOOKS, Difference, Text, alpha, difference
from pipeline.store.variant_names import BASE
from trainer.config import RunConfig, load_run_config
from trainer.system import figures

CORPORA = ("enwiki", "books")
PAGE = 4_000
EVALUATED = 8  # every so many documents are evaluation text
SEEDS = LOOKS[0]
PLANTED = (0.0, 0.002, 0.004, 0.008, 0.012, 0.016, 0.024)
FIGURE = ROOT / ".images" / "power.png"
MODEL = {"n_layers": 2, "d_model": 64, "n_heads": 2, "n_kv_heads": 2, "d_ff": 172, "qk_norm": True}
TOKENS, BATCH = 102_400, 1_024


def pages(text: str) -> list[str]:
    """A text in pieces of about PAGE characters, each of whole paragraphs."""
    found = [""]
    for paragraph in text.split("\n\n"):
        if len(found[-1]) > PAGE:
            found.append("")
        found[-1] += paragraph + "\n\n"
    return found


def recipe(work: Path) -> Path:
    """Its file, with the text that it reads."""
    path = work / "recipe.yaml"
    work.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return path
    named = {}
    for name in CORPORA:
        rows = [json.dumps({"text": page}) + "\n" for row in documents(name) for page in pages(row["text"])]
        random.Random(1).shuffle(rows)
        for part, chosen in (
            ("train", rows[len(rows) // EVALUATED :]),
            ("eval", rows[: len(rows) // EVALUATED]),
        ):
            named[name, part] = work / f"{name}_{part}.jsonl"
            named[name, part].write_text("".join(chosen))
    sources = {key: {"kind": "files", "paths": [str(file)]} for key, file in named.items()}
    texts = [
        {"name": f"{name}_text", "source": sources[name, "eval"], "max_bytes": 100_000} for name in CORPORA
    ]
    training = {
        "model": MODEL,
        "seq_len": 128,
        "global_batch_tokens": BATCH,
        "max_tokens": TOKENS,
        "micro_batch_size": 8,
        "threads": 1,
        "optimizer": {"kind": "muon", "muon_lr": 0.01, "lr": 0.004, "weight_decay": 0},
        "schedule": {"kind": "wsd", "decay_fraction": 0.6, "min_lr_ratio": 0},
        "checkpoint": {"every_tokens": TOKENS, "keep_last": 1},
        "evaluation": {"every_tokens": TOKENS, "max_tokens": 4_096},
    }
    found = {
        "name": "verdicts",
        "corpora": [{"name": name, "source": sources[name, "train"]} for name in CORPORA],
        "tokenizer": {"vocab_size": 1024},
        "evaluation": {"texts": texts},
        "decontamination": "benchmarks",
        "training": training,
    }
    path.write_text(yaml.safe_dump(found, sort_keys=False))
    return path


def prepared(work: Path, file: Path) -> tuple[Path, list[AskedBenchmark]]:
    """The configuration of a run of a recipe, and what runs are compared on; `pretrain` makes them once."""
    os.environ |= {"DAGSTER_HOME": str(work), "GROUNDWORK_RECIPE": str(file)}
    if not (configs := list(work.glob("store/runs/*/config.yaml"))):
        (work / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
        job = ["job", "execute", "-m", "pipeline.definitions", "-j", "pretrain"]
        subprocess.run([Path(sys.executable).with_name("dagster"), *job], check=True)
        configs = list(work.glob("store/runs/*/config.yaml"))
    compared_on = measures({BASE: load_recipe(file)})
    for folder in ("runs", "items"):
        (work / folder).mkdir(exist_ok=True)
    for one in compared_on:
        (work / "items" / f"{one.name}.jsonl").write_text(one.benchmark.lines)
    return configs[0], compared_on


def trained(work: Path, config: Path, arm: str, seed: int, training: dict[str, Any] | None = None) -> None:
    """Trains and scores one run: WORK/runs/ARM-SEED.json with the log-likelihood of each window by text. The
    arm `duplicates` is the control; any other has the settings in `training`.
    """
    from trainer.run.evaluation.benchmarks import benchmark
    from trainer.run.loop import run

    result = work / "runs" / f"{arm}-{seed}.json"
    if result.exists():
        return
    with tempfile.TemporaryDirectory(dir=work) as place:
        settings = load_run_config(config).model_dump(mode="json") | {"run_dir": place, "lineage": {}}
        own = {"control": arm} if arm == "duplicates" else {}
        settings["training"] = merged(settings["training"], {"seed": seed, **own, **(training or {})})
        assert run(RunConfig.model_validate(settings)) == 0
        (weights,) = Path(place).glob("checkpoints/*/hf")
        files = sorted((work / "items").glob("*.jsonl"))
        for _ in benchmark(weights, files, "auto", Path(place)):
            pass
        answers = {}
        for name in (file.stem for file in files):
            lines = (Path(place) / f"{name}.log_likelihoods.jsonl").read_text().splitlines()
            answers[name] = [json.loads(line)["log_likelihoods"] for line in lines]
        result.with_suffix(".tmp").write_text(json.dumps(answers))
        result.with_suffix(".tmp").rename(result)


def scores(work: Path, compared_on: list[AskedBenchmark], arm: str, number: int) -> dict[str, np.ndarray]:
    """The bits of each cluster by text, float64 [number, clusters]."""
    runs = [json.loads((work / "runs" / f"{arm}-{seed}.json").read_text()) for seed in range(number)]
    return {one.name: np.stack([one.bits(run[one.name]) for run in runs]) for one in compared_on}


Arm = dict[str, np.ndarray]


def judged(compared_on: list[AskedBenchmark], ours: Arm, theirs: Arm, planted: float = 0.0) -> Difference:
    """The verdict on two arms, where the second one needs `planted` bits per byte more than it did."""
    texts = [Text(ours[one.name], theirs[one.name] + planted * one.sizes, one.sizes) for one in compared_on]
    return difference(texts, alpha(len(texts[0].ours), 1))


def share(words: list[str]) -> dict[str, Any]:
    """How often a pair was called different, with the binomial interval of 95% (Wilson)."""
    different = sum(word != ALIKE for word in words)
    interval = binomtest(different, len(words)).proportion_ci(method="wilson")
    return {
        "of": len(words),
        "different": different,
        "interval": [round(interval.low, 4), round(interval.high, 4)],
    }


def draw(planted: dict[int, dict[float, dict[str, Any]]]) -> None:
    """How often a planted difference was found, a line for each number of seeds."""
    drawing = figures.figure(7, 4)
    axes = drawing.subplots()
    for color, (seeds, found) in zip(figures.COLORS, planted.items(), strict=False):
        rates = [one["different"] / one["of"] for one in found.values()]
        axes.plot(list(found), rates, "o-", color=color, label=f"{seeds} seeds of each")
    axes.axhline(ALPHA, color="grey", linewidth=0.8, linestyle=":")
    axes.set(xlabel="planted difference (bits per byte)", ylabel="called different", ylim=(0, 1.03))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    FIGURE.write_bytes(figures.png(drawing))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m performance.verdicts", description=__doc__)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--controls", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    work = options.work.absolute()
    config, compared_on = prepared(work, recipe(work))
    wanted = [("base", seed) for seed in range(2 * SEEDS * options.pairs)]
    wanted += [("duplicates", seed) for seed in range(SEEDS * options.controls)]
    with ProcessPoolExecutor(options.processes) as pool:
        for done in [pool.submit(trained, work, config, *one) for one in wanted]:
            done.result()
    base = scores(work, compared_on, "base", 2 * SEEDS * options.pairs)
    control = scores(work, compared_on, "duplicates", SEEDS * options.controls)

    def arm(of: Arm, number: int, seeds: int = SEEDS) -> Arm:
        return {name: rows[seeds * number : seeds * (number + 1)] for name, rows in of.items()}

    def pairs(seeds: int) -> list[tuple[Arm, Arm]]:
        number = SEEDS * options.pairs // seeds
        return [(arm(base, 2 * one, seeds), arm(base, 2 * one + 1, seeds)) for one in range(number)]

    alike = [judged(compared_on, *pair) for pair in pairs(SEEDS)]
    controls = {
        seeds: [
            (arm(base, one, seeds), arm(control, one, seeds))
            for one in range(SEEDS * options.controls // seeds)
        ]
        for seeds in LOOKS
    }
    lost = {
        seeds: share([judged(compared_on, *pair).word for pair in found])
        for seeds, found in controls.items()
        if found
    }
    planted = {
        seeds: {
            more: share([judged(compared_on, *pair, more).word for pair in pairs(seeds)]) for more in PLANTED
        }
        for seeds in LOOKS
    }
    draw(planted)
    total = np.mean([base[one.name].sum(1) / one.sizes.sum() for one in compared_on], 0)
    record(
        "verdicts",
        {
            "run": {"tokens": TOKENS, "steps": TOKENS // BATCH, "model": MODEL, "seeds": SEEDS},
            "bits_per_byte": {
                "mean": round(float(total.mean()), 4),
                "sd": round(float(total.std(ddof=1)), 5),
            },
            "alike": share([one.word for one in alike]),
            "half_width": round(float(np.median([one.high - one.value for one in alike])), 4),
            "detectable": round(float(np.median([one.detectable for one in alike])), 4),
            "control of half duplicates found, by seeds": lost,
            "on one text, with three seeds": {
                one.name: {
                    "sd": round(float((base[one.name].sum(1) / one.sizes.sum()).std(ddof=1)), 5),
                    "alike": share([judged([one], *pair).word for pair in pairs(SEEDS)]),
                    "control found": share([judged([one], *pair).word for pair in controls[SEEDS]]),
                }
                for one in compared_on
            },
            "found by seeds and by the difference that was planted": planted,
        },
        ["torch", "numpy"],
    )


if __name__ == "__main__":
    main()
