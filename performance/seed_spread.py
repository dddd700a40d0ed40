"""How far runs lie apart that differ in the seed alone, by the size of the model and by tokens.

`python -m performance.seed_spread --work DIR` trains six seeds of each and draws a figure. DIR keeps the
runs, and may be that of `performance.verdicts`.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from scipy.stats import chi2

from performance.harness.sidebyside import ROOT, record
from performance.verdicts import BATCH, prepared, recipe, scores, trained
from trainer.config.model import ModelConfig
from trainer.system import figures

FIGURE = ROOT / ".images" / "seeds.png"
SEEDS = 6
TOKENS = (51_200, 102_400, 204_800, 409_600)
SHAPES = {
    "small": {"n_layers": 2, "d_model": 64, "n_heads": 2, "n_kv_heads": 2, "d_ff": 172, "qk_norm": True},
    "large": {"n_layers": 4, "d_model": 128, "n_heads": 4, "n_kv_heads": 4, "d_ff": 344, "qk_norm": True},
}
VOCABULARY = 1024


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m performance.seed_spread", description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    work = options.work.absolute()
    config, compared_on = prepared(work, recipe(work))
    settings = {
        (shape, tokens): {
            "model": model,
            "max_tokens": tokens,
            "schedule": {"warmup_tokens": tokens // 50 // BATCH * BATCH},
            "checkpoint": {"every_tokens": tokens},
            "evaluation": {"every_tokens": tokens},
        }
        for shape, model in SHAPES.items()
        for tokens in TOKENS
    }
    with ProcessPoolExecutor(options.processes) as pool:
        runs = [
            pool.submit(trained, work, config, "-".join(map(str, name)), seed, own)
            for name, own in settings.items()
            for seed in range(SEEDS)
        ]
        for one in runs:
            one.result()
    rows = []
    for shape, tokens in settings:
        found = scores(work, compared_on, f"{shape}-{tokens}", SEEDS)
        bits = np.mean([found[one.name].sum(1) / one.sizes.sum() for one in compared_on], 0)
        low, high = np.sqrt((SEEDS - 1) / chi2.ppf([0.975, 0.025], SEEDS - 1)) * bits.std(ddof=1)
        rows.append(
            {
                "parameters": ModelConfig.model_validate(SHAPES[shape]).parameters(VOCABULARY),
                "tokens": tokens,
                "bits_per_byte": round(float(bits.mean()), 4),
                "sd": round(float(bits.std(ddof=1)), 5),
                "interval": [round(float(low), 5), round(float(high), 5)],
            }
        )
    drawing = figures.figure(7, 4)
    axes = drawing.subplots()
    for number, parameters in enumerate(dict.fromkeys(row["parameters"] for row in rows)):
        mine = [row for row in rows if row["parameters"] == parameters]
        spread = np.array([row["sd"] for row in mine])
        bars = np.abs(np.array([row["interval"] for row in mine]).T - spread)
        axes.errorbar(
            [1.03**number * row["tokens"] for row in mine],
            spread,
            bars,
            marker="o",
            capsize=3,
            color=figures.COLORS[number],
            label=f"{parameters:,} parameters",
        )
    axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel="standard deviation (bits per byte)")
    axes.grid(alpha=0.25, which="both")
    axes.legend(frameon=False)
    FIGURE.write_bytes(figures.png(drawing))
    record("seed_spread", {"seeds": SEEDS, "runs": rows}, ["torch", "numpy"])


if __name__ == "__main__":
    main()
