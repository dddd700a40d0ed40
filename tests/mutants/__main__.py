"""`python -m tests.mutants --n 200 --seed 1` changes one place of the code at a time, runs the default tests
that execute it, and prints the mutants that no test notices. `--only NAME` tries one again.

A mutant has a minute of tests: those of the mirrored folder first, then the fastest. mypy, which `make test`
runs, too, has the last word.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

from performance.harness.sidebyside import record
from tests.mutants.equivalent import why_same
from tests.mutants.measured import Measured, measure, mirrored
from tests.mutants.mutants import ROOT, Mutant, of_file
from tests.mutants.worker import Worker

PATIENCE = 3.0  # times the seconds that the tests took, for a mutant that hangs
SOON = 2.0  # seconds; slower tests come last
UNRUN, SURVIVED, UNDECIDED, KILLED, SAME = "not run", "survived", "undecided", "killed", "equivalent"


def draw(files: list[str], n: int, seed: int) -> list[Mutant]:
    """One mutant on each of `n` lines, all lines being equally likely."""
    lines: dict[tuple[str, int], list[Mutant]] = {}
    for mutant in (mutant for file in files for mutant in of_file(file)):
        lines.setdefault((mutant.file, mutant.line), []).append(mutant)
    chance = random.Random(seed)
    return [chance.choice(lines[line]) for line in chance.sample(list(lines), min(n, len(lines)))]


def chosen(mutant: Mutant, measured: Measured, budget: float) -> tuple[list[str], float]:
    """The tests to run, in their order, and how long they took."""
    covering, beside = measured.tests(mutant), measured.beside(mutant.file)
    changed = {
        file
        for file in measured.changed
        if file.startswith(mirrored(mutant.file)) or any(test.startswith(f"{file}::") for test in covering)
    }
    tests = sorted(changed)
    seconds = sum(taken for test, taken in measured.seconds.items() if test.partition("::")[0] in changed)
    far = {test: (test not in covering) + (test not in beside) for test in covering | beside}
    # Coverage misses what a process does that an earlier test has started: hence those beside, too.
    for test in sorted(far, key=lambda test: (far[test], measured.seconds[test])):
        if seconds == 0 or seconds + measured.seconds[test] <= budget:
            tests.append(test)
            seconds += measured.seconds[test]
    # A file's tests come one after the other, for the sake of their fixtures.
    order = {file: number for number, file in reversed(list(enumerate(t.partition("::")[0] for t in tests)))}

    def turn(test: str) -> tuple[bool, bool, int, float]:
        taken = measured.seconds.get(test, 0.0)
        return "::" in test, taken > SOON, order[test.partition("::")[0]], taken

    return sorted(tests, key=turn), seconds


def judge(mutant: Mutant, worker: Worker, measured: Measured, budget: float) -> dict[str, object]:
    tests, seconds = chosen(mutant, measured, budget)
    outcome, by = UNRUN, ""
    began = time.monotonic()
    if tests:
        failing = worker.failing(tests, PATIENCE * seconds + 60, mutant)
        if failing is None and worker.failing(tests[:1], 300) is None:
            raise RuntimeError(f"no test can begin in {worker}, even without {mutant.name}")
        by = "import" if failing is None else "".join(failing[:1])
        outcome = KILLED if by else SURVIVED if measured.tests(mutant) else UNRUN
    if (why := why_same(mutant)) and outcome != KILLED:
        outcome, by = SAME, why
    if outcome in (UNRUN, SURVIVED) and not worker.is_typed(mutant):
        outcome, by = KILLED, "mypy"
    row = {"name": mutant.name, "before": mutant.before, "after": mutant.after, "outcome": outcome, "by": by}
    row |= {"tests": len(tests), "seconds": round(time.monotonic() - began, 1)}
    if outcome != KILLED:
        print(f"{mutant.file}:{mutant.line}: {outcome}: {mutant.before} → {mutant.after}", flush=True)
        print(f"    --only '{mutant.name}'", flush=True)
    return row


def without_mutants(tests: list[str], worker: Worker, measured: Measured) -> list[str]:
    """Those of the tests which noticed a mutant that fail without one, and so have noticed nothing."""
    ran = sorted(test for test in set(tests) if "::" in test)
    seconds = sum(measured.seconds.get(test, 1.0) for test in ran)
    failing = worker.failing(ran, PATIENCE * seconds + 300, first=False) if ran else []
    return ran if failing is None else failing


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", metavar="NAME", action="append", help="this mutant, by its printed name")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--measure", action="store_true", help="which tests execute which lines, anew")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tests for a mutant")
    parser.add_argument(
        "--log", type=Path, help="a line of JSON for each mutant; one that is there is not tried again"
    )
    options = parser.parse_args()
    if options.measure:
        measure()
    measured = Measured()
    if options.only:
        files = {name.partition(":")[0] for name in options.only}
        drawn = [one for file in files for one in of_file(file) if one.name in options.only]
    else:
        print(f"seed {options.seed}", flush=True)
        drawn = draw(measured.files, options.n, options.seed)
    logged = options.log.read_text().splitlines() if options.log and options.log.exists() else []
    known = {row["name"]: row for row in map(json.loads, logged)}
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(options.workers) as pool:
        idle: Queue[Worker] = Queue()
        for number in range(options.workers):
            idle.put(Worker(Path(directory, str(number))))

        def with_a_worker(mutant: Mutant) -> dict[str, object]:
            if mutant.name in known:
                return known[mutant.name]
            worker = idle.get()
            try:
                row = judge(mutant, worker, measured, options.budget)
            finally:
                idle.put(worker)
            if options.log:
                with options.log.open("a") as log:
                    log.write(json.dumps(row) + "\n")
            return row

        rows = list(pool.map(with_a_worker, drawn))
        failing = set(without_mutants([row["by"] for row in rows], idle.get(), measured))
    for row in rows:
        if row["by"] in failing:
            row["outcome"] = UNDECIDED
            print(f"{row['by']} fails without the mutant, too: --only '{row['name']}'")
    survivors = [row for row in rows if row["outcome"] not in (KILLED, SAME)]
    killed = sum(row["outcome"] == KILLED for row in rows)
    same = len(rows) - killed - len(survivors)
    print(f"{len(rows)} mutants: {killed} killed, {same} equivalent, {len(survivors)} survive")
    if not options.only:
        head = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
        result = {
            "commit": subprocess.run(head, check=True, capture_output=True, text=True).stdout.strip(),
            "seed": options.seed,
            "n": len(rows),
            "killed": killed,
            "equivalent": [row for row in rows if row["outcome"] == SAME],
            "survivors": survivors,
        }
        record("mutants", result, ["coverage", "pytest"])
    return 1 if len(survivors) > 0.05 * len(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
