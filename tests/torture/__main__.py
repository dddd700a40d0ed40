"""`python -m tests.torture --minutes 60 --seed 1` draws faults, judges what becomes of each and prints a
table. `--only SEED` draws one again.
"""

import argparse
import json
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from performance.harness.sidebyside import record
from tests.torture import branches, commands, faults, processes, services
from tests.torture.world import FindingError, World

WORKERS = 2
FINDING = "FINDING"
SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        faults.damaged_store,
        faults.rotten_store,
        faults.stale_partial,
        faults.damaged_source,
        faults.edited,
        faults.full_disk,
        faults.read_only_store,
        faults.odd_setting,
        faults.odd_command,
        processes.killed,
        processes.crossed,
        processes.collected,
        processes.jumping_clock,
        processes.interrupted_training,
        branches.branched,
        commands.killed_command,
        services.lost_node,
    )
} | {f"bad_bucket_{cloud}": partial(services.bad_bucket, cloud=cloud) for cloud in services.CLOUDS}
Trial = dict[str, Any]


def trial(world: World, seed: int, wanted: str | None = None) -> Trial:
    """Draws a scenario and its faults by `seed`; its outcome."""
    chance = random.Random(seed)
    drawn = chance.choice(sorted(SCENARIOS))
    world.restore()
    done: Trial = {"seed": seed, "scenario": wanted or drawn, "outcome": FINDING}
    try:
        done["outcome"] = SCENARIOS[wanted or drawn](world, chance)
    except FindingError as error:
        done["what"] = str(error)
    except Exception:  # the machine's own mistake is one, too
        done["what"] = traceback.format_exc()
    return done | {"faults": list(world.faults)}


def work(directory: Path, seeds: range, until: float) -> list[Trial]:
    """Trials in a world of its own until the time is over."""
    world, done = World(directory), []
    world.build()
    with world.services:
        for seed in seeds:
            if time.monotonic() > until:
                break
            done.append(trial(world, seed))
            if done[-1]["outcome"] == FINDING:
                print(json.dumps(done[-1]), flush=True)
    return done


def by_kind(done: list[Trial]) -> list[dict[str, Any]]:
    """Faults by their kind: in which stages, and what became of them."""
    found = [(kind, stage, one["outcome"]) for one in done for kind, stage in one["faults"]]
    rows = []
    for kind in sorted({kind for kind, *_ in found}):
        stages = Counter(stage for that, stage, _ in found if that == kind)
        outcomes = Counter(outcome for that, _, outcome in found if that == kind)
        rows.append({"kind": kind, "faults": stages.total(), "stages": stages, "outcomes": outcomes})
    return rows


def told(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", type=int, metavar="SEED", help="one trial, by the seed of its finding")
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    print(f"seed {options.seed}", flush=True)
    first = options.seed * 1_000_000
    seeds = [range(first + worker, first + 1_000_000, WORKERS) for worker in range(WORKERS)]
    if options.only is not None:
        seeds = [range(options.only, options.only + 1)]
    # Processes, because Ray's cluster sets signal handlers, which only a main thread may.
    with tempfile.TemporaryDirectory() as directory, ProcessPoolExecutor(WORKERS) as pool:
        places = [Path(directory, str(number)) for number in range(len(seeds))]
        drawn = zip(places, seeds, strict=True)
        running = [pool.submit(work, place, some, until) for place, some in drawn]
        done = [one for future in running for one in future.result()]
    rows, found = by_kind(done), [one for one in done if one["outcome"] == FINDING]
    for row in rows:
        print(f"{row['kind']:24}{row['faults']:6}  {told(row['outcomes'])}\n{'':32}{told(row['stages'])}")
    count = sum(row["faults"] for row in rows)
    print(f"{len(done)} trials, {count} faults, {len(found)} findings")
    if options.only is None:
        counts = {"seed": options.seed, "minutes": options.minutes, "trials": len(done), "faults": count}
        record("torture", counts | {"kinds": rows, "findings": found}, ["pyarrow", "ray", "torch"])
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
