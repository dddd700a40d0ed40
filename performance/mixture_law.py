"""The law of `mixture.search` on the public runs of RegMix: fitted to 512 runs of 1 M parameters, how well
does it rank runs that it has not seen, of 1 M, 60 M and 1 B parameters?

    git clone https://github.com/sail-sg/regmix
    python performance/mixture_law.py regmix/data

RegMix stops its trees early by the loss on the very runs that they are tested on; nothing is chosen by them
here.
"""

import argparse
import csv
from importlib.metadata import version
from pathlib import Path

import numpy as np
from harness.sidebyside import record

from pipeline.steps.mixture_search.law import Array, fitted, log_linear, rank_correlation, trees

TARGET = "pile_cc"
BOOTSTRAPS = 30


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    shares, losses = runs(data, "train", "1m")
    law = fitted(shares, losses, BOOTSTRAPS, seed=0)
    single = {"log-linear": log_linear(shares, np.log(losses)), "trees": trees(shares, np.log(losses))}
    rows = []
    for size in ("1m", "60m", "1B"):
        unseen, truth = runs(data, "test", size)
        ranks = {law.name: rank_correlation(law.predict(unseen), truth)}
        for name, fit in single.items():
            ranks[f"{name}, fitted once"] = rank_correlation(fit(unseen), truth)
        rows.append(
            {"size": size, "runs": len(truth)} | {name: round(rank, 4) for name, rank in ranks.items()}
        )
    measured = {
        "law": law.name,
        "held-out error of log loss": law.errors,
        "rank correlation on held-out folds": law.rank,
        "versions": {name: version(name) for name in ("lightgbm", "numpy", "scipy")},
        "spearman": rows,
    }
    record("mixture_law", measured, ())


def runs(data: Path, split: str, size: str) -> tuple[Array, Array]:
    """[runs, domains] shares and the loss on the target."""
    shares, losses = (_table(data / f"{split}_{what}_{size}.csv") for what in ("mixture", "pile_loss"))
    target = next(place for place, name in enumerate(losses["index"]) if TARGET in name)
    both = [number for number in shares if number != "index" and number in losses]
    mixed = np.array([[float(share) for share in shares[number]] for number in both])
    return mixed / mixed.sum(1, keepdims=True), np.array([float(losses[number][target]) for number in both])


def _table(path: Path) -> dict[str, list[str]]:
    with path.open() as file:
        return {row[0]: row[1:] for row in csv.reader(file)}


if __name__ == "__main__":
    main()
