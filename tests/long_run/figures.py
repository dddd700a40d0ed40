"""What a long run is measured by: the disk, the records of Dagster, lines through the samples, a picture."""

import sqlite3
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

from performance.harness.sidebyside import RESULTS

WARM_UP = 180  # seconds in which a process still loads what it needs


def on_disk(home: Path) -> dict[str, Any]:
    """Megabytes of the store, the rest of DAGSTER_HOME and the event log; its rows; runs by status."""
    records = home / "history"
    whole, store, events = map(_megabytes, (home, home / "store", records / "runs"))
    rows = sum(_count(path, "event_logs") for path in (records / "runs").glob("*.db"))
    runs: dict[str, int] = {}
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"file:{records}/runs.db?mode=ro", uri=True)) as file,
    ):
        runs = dict(file.execute("select status, count(*) from runs group by status"))
    sizes = {"store_mb": store, "records_mb": round(whole - store, 1), "events_mb": events}
    return {**sizes, "events": rows, "runs": runs}


def _megabytes(path: Path) -> float:
    """Files may vanish meanwhile, which `du` calls an error."""
    found = subprocess.run(["du", "-sk", path], capture_output=True, text=True, check=False)
    return round(int(found.stdout.split()[0]) / 1e3, 1)


def _count(path: Path, table: str) -> int:
    """Rows; none while Dagster creates the file."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
        return int(file.execute(f"select count(*) from {table}").fetchone()[0])
    return 0


def growth(samples: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """For each long-lived process, the slope of the line through the second half of the samples, per hour and
    per run that ended. Processes that were replaced share the slope but not the height.
    """
    half = samples[-1]["s"] / 2
    grown = {}
    for role in samples[-1]["living"]:
        lives: dict[int, list[tuple[float, ...]]] = {}
        for sample in samples:
            if one := sample["living"].get(role):
                place = (sample["s"] / 3600, sum(sample["runs"].values()), one["mb"], one["fds"])
                lives.setdefault(one["pid"], []).append(place)
        settled = []
        for points in map(np.array, lives.values()):
            begun = points[0, 0] + WARM_UP / 3600
            kept = points[(points[:, 0] >= max(half / 3600, begun))]
            if len(kept) > 2:
                settled.append(kept - kept.mean(axis=0))
        if settled:
            hours, runs, mb, fds = np.concatenate(settled).T
            per_hour, per_run = _slope(hours, mb), _slope(runs, mb)
            grown[role] = {
                "processes": len(lives),
                "mb": round(samples[-1]["living"][role]["mb"], 1),
                "mb_per_hour": round(per_hour, 2),
                "mb_per_run": round(per_run, 4),
                "fds": samples[-1]["living"][role]["fds"],
                "fds_per_hour": round(_slope(hours, fds), 2),
            }
    return grown


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    return float((x * y).sum() / (x * x).sum()) if x.any() else 0.0


def draw(result: dict[str, Any]) -> None:
    """The picture beside the results."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    samples = result["samples"]
    minutes = [sample["s"] / 60 for sample in samples]
    figure = Figure(figsize=(10, 6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    memory, files, disk, runs = figure.subplots(2, 2).flat
    for role in samples[-1]["living"]:
        for axes, name in ((memory, "mb"), (files, "fds")):
            axes.plot(minutes, [sample["living"].get(role, {}).get(name) for sample in samples], label=role)
    for name, label in (("store_mb", "store"), ("records_mb", "records of Dagster")):
        disk.plot(minutes, [sample[name] for sample in samples], label=label)
    for status in ("SUCCESS", "FAILURE", "CANCELED"):
        runs.plot(minutes, [sample["runs"].get(status, 0) for sample in samples], label=status.lower())
    runs.plot(minutes, [sample["processes"] for sample in samples], color="grey", lw=0.7, label="processes")
    titles = ("resident memory, MB", "open file descriptors", "disk, MB", "runs that ended")
    for axes, title in zip((memory, files, disk, runs), titles, strict=True):
        axes.set(title=title, ylim=(0, None), xlabel="minutes" if axes in (disk, runs) else None)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
        for second, what in result["disturbed"]:
            if what.endswith("killed"):
                axes.axvline(second / 60, color="red", alpha=0.12, lw=0.7)
    figure.savefig(RESULTS / "long_run.png")
