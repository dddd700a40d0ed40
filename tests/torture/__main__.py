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
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

from tests.torture.faults import SCENARIOS
from tests.torture.world import FindingError, World

RESULTS = Path(__file__).parents[2] / "performance" / "results" / "torture.json"
WORKERS = 2


def trial(world: World, seed: int, wanted: str | None = None) -> dict[str, str | int]:
    """Draws a scenario and its faults by `seed`; its outcome."""
    chance = random.Random(seed)
    drawn = chance.choice(sorted(SCENARIOS))
    world.restore()
    try:
        outcome = SCENARIOS[wanted or drawn](world, chance)
        return {"seed": seed, "scenario": wanted or drawn, "outcome": outcome}
    except FindingError as error:
        return {"seed": seed, "scenario": wanted or drawn, "outcome": "FINDING", "what": str(error)}
    except Exception:  # the machine's own mistake is one, too
        return {
            "seed": seed,
            "scenario": wanted or drawn,
            "outcome": "FINDING",
            "what": traceback.format_exc(),
        }


def work(directory: Path, seeds: range, until: float, wanted: str | None) -> list[dict[str, str | int]]:
    """Trials in a world of its own until the time is over."""
    world, done = World(directory), []
    world.build()
    for seed in seeds:
        if time.monotonic() > until:
            break
        done.append(trial(world, seed, wanted))
        if done[-1]["outcome"] == "FINDING":
            print(json.dumps(done[-1]), flush=True)
    return done


def table(done: list[dict[str, str | int]]) -> str:
    """Trials by scenario and outcome."""
    counts = Counter((str(one["scenario"]), str(one["outcome"])) for one in done)
    rows = [f"{scenario:18} {outcome:26} {count:6}" for (scenario, outcome), count in sorted(counts.items())]
    return "\n".join([*rows, f"{'all':45} {len(done):6}"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", type=int, metavar="SEED", help="one trial, by the seed of its finding")
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), help="no other one")
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    print(f"seed {options.seed}", flush=True)
    first = options.seed * 1_000_000
    seeds = [range(first + worker, first + 1_000_000, WORKERS) for worker in range(WORKERS)]
    if options.only is not None:
        seeds = [range(options.only, options.only + 1)]
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(WORKERS) as pool:
        places = [Path(directory, str(number)) for number in range(len(seeds))]
        running = [
            pool.submit(work, place, drawn, until, options.scenario)
            for place, drawn in zip(places, seeds, strict=True)
        ]
        done = [one for future in running for one in future.result()]
    print(table(done))
    found = [one for one in done if one["outcome"] == "FINDING"]
    if options.only is None:
        counts = Counter(f"{one['scenario']}: {one['outcome']}" for one in done)
        result = {
            "date": str(date.today()),
            "seed": options.seed,
            "minutes": options.minutes,
            "trials": len(done),
            "outcomes": dict(sorted(counts.items())),
            "findings": found,
        }
        RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
