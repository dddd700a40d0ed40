"""What can go wrong. Each scenario draws its faults from `chance` alone, disturbs the world and returns the
outcome, or raises FindingError.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from pipeline.recipe.recipe import load_recipe
from tests.torture.world import CHANGES, Ended, FindingError, World, differences, documents


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def cut(path: Path, chance: random.Random) -> None:
    os.truncate(path, chance.randrange(path.stat().st_size + 1))


def append(path: Path, chance: random.Random) -> None:
    with path.open("ab") as file:
        file.write(chance.randbytes(chance.randrange(1, 200)))


def zeros(path: Path, chance: random.Random) -> None:
    size = path.stat().st_size
    at = chance.randrange(size + 1)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(min(4096, size - at)))


def delete(path: Path, chance: random.Random) -> None:
    path.unlink()


def delete_folder(path: Path, chance: random.Random) -> None:
    shutil.rmtree(path.parent)


def date(path: Path, chance: random.Random) -> None:
    """As after a jump of the clock."""
    seconds = time.time() + chance.uniform(-1e9, 1e9)
    os.utime(path, (seconds, seconds))


DAMAGES = [flip, cut, append, zeros, delete, delete_folder, date]


def some_file(folder: Path, chance: random.Random) -> Path:
    """One with content, unlike locks, which nothing can damage."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return chance.choice(sorted(path for path in found if path.stat().st_size))


def damaged_store(world: World, chance: random.Random) -> str:
    """Any file of the store, a run of a changed recipe, and one of the unchanged recipe."""
    for _ in range(chance.randrange(1, 4)):
        damage = chance.choice(DAMAGES)
        damage(some_file(world.store, chance), chance)
    return max(world.judge(chance.choice(CHANGES)), world.judge({}))


def rotten_store(world: World, chance: random.Random) -> str:
    """A bit that a disk flips leaves size and time as they are: `verify --deep` names it, a run mends it."""
    path = some_file(world.store / chance.choice(["corpora", "dedup", "token_shards"]), chance)
    before = path.stat()
    flip(path, chance)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    seen = world.command("verify", "--deep")
    if seen.status != 2 or "DAMAGED" not in seen.printed:
        raise FindingError(f"verify --deep does not see {path}: {seen.printed[-500:]}{seen.said[-500:]}")
    return max(world.judge(chance.choice(CHANGES)), world.judge({}))


def stale_partial(world: World, chance: random.Random) -> str:
    """What a machine that lost its power may leave under temporary names."""
    folders = sorted(path.parent for path in world.store.rglob("manifest.json"))
    for _ in range(3):
        version = chance.choice(folders)
        left = version.with_name(f".{version.name}.{chance.choice(['partial', 'tmp', 'damaged-1'])}")
        if not left.exists():
            shutil.copytree(version, left)
            damage = chance.choice([flip, cut, delete])
            damage(some_file(left, chance), chance)
    return max(world.judge(chance.choice(CHANGES)), world.judge({}))


def disturbed(world: World, process: "subprocess.Popen[str]", chance: random.Random) -> Ended | None:
    """Sends a signal at some moment. Returns how a run ended if the signal did not end it."""
    time.sleep(chance.uniform(0, 8))
    number = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
    if process.poll() is not None:
        return world.ended(process)
    if number == signal.SIGSTOP:
        os.killpg(process.pid, number)
        time.sleep(chance.uniform(0, 3))
        os.killpg(process.pid, signal.SIGCONT)
        return world.ended(process)
    process.send_signal(number)
    world.ended(process)
    return None


def killed(world: World, chance: random.Random) -> str:
    """A run that is killed, terminated or stopped for a while, perhaps twice, and then run again."""
    overrides = chance.choice(CHANGES[1:])
    for _ in range(chance.randrange(1, 3)):
        if ended := disturbed(world, world.start(overrides), chance):
            world.judge(overrides, ended)
    return world.judge(overrides)


def crossed(world: World, chance: random.Random) -> str:
    """Two or three runs with other settings at once; one of them may be killed and is then run again."""
    chosen = [chance.choice(CHANGES) for _ in range(chance.randrange(2, 4))]
    processes = []
    for overrides in chosen:
        processes.append(world.start(overrides))
        time.sleep(chance.uniform(0, 3))
    if chance.random() < 0.4:
        processes[0].kill()
    outcomes = []
    for overrides, process in zip(chosen, processes, strict=True):
        ended = world.ended(process)
        outcomes.append(world.judge(overrides, ended if ended.status >= 0 else None))
    return max(outcomes)


def collected(world: World, chance: random.Random) -> str:
    """`gc --delete` beside a run, after others have left versions behind."""
    world.judge(chance.choice(CHANGES))
    overrides = chance.choice(CHANGES)
    process = world.start(overrides)
    for _ in range(2):
        time.sleep(chance.uniform(0, 3))
        world.command("gc", "--delete")
    return max(world.judge(overrides, world.ended(process)), world.judge({}))


def damaged_source(world: World, chance: random.Random) -> str:
    """A damaged file of a corpus is set aside, in whole or in part, or named. Then the file is as before."""
    path = some_file(world.sources, chance)
    before, whole = path.stat(), path.read_bytes()
    damage = chance.choice([flip, cut, append, zeros])
    damage(path, chance)
    ended = world.ended(world.start({}))
    if ended.status not in (0, 2) or (ended.status == 2 and ended.said.count("error:") != 1):
        raise FindingError(f"exit status {ended.status}: {ended.said[-500:]}")
    if ended.status == 0 and path.suffix in (".gz", ".bz2", ".xz"):
        texts = {row["text"] for row in documents()}
        raw = Path(json.loads(ended.printed)[f"corpora/{path.name.split('.')[0]}/raw"])
        for part in (raw / "documents").rglob("*.parquet"):
            if strange := set(pq.read_table(part, columns=["text"])["text"].to_pylist()) - texts:
                raise FindingError(f"{damage.__name__} of {path.name}: scrambled: {min(strange)[:200]!r}")
    path.write_bytes(whole)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    world.judge({})
    return "same bytes" if ended.status == 0 else "a sentence with a remedy"


def edited(world: World, chance: random.Random) -> str:
    """What a run makes of edited corpora, in this store and in a fresh one, is the same."""
    for _ in range(chance.randrange(1, 4)):
        name = chance.choice(["plain.jsonl", "texts"])
        if name == "texts":
            folder = world.sources / name
            path = some_file(folder, chance)
            edit = chance.randrange(3)
            if edit == 0:
                path.unlink()
            elif edit == 1:
                path.write_text("Changed. " * 40)
            else:
                path.rename(folder / f"new{chance.random()}.txt")
            continue
        rows = (world.sources / name).read_text().splitlines()
        at = chance.randrange(len(rows))
        new = json.dumps(
            {"id": f"new{chance.random()}", "text": chance.choice(documents())["text"] + " New."}
        )
        rows[at : at + chance.randrange(2)] = [new] * chance.randrange(2)
        (world.sources / name).write_text("".join(f"{row}\n" for row in rows))
    there = world.ended(world.start({}))
    if there.status:
        raise FindingError(f"exit status {there.status}: {there.said[-500:]}")
    wanted = {key: files for key, files in world.content(there).items() if _is_before_tokenizer(key)}
    afresh = world.ended(world.start({}, store=world.place / "other"))
    if afresh.status:
        raise FindingError(f"afresh: exit status {afresh.status}: {afresh.said[-500:]}")
    found = {key: files for key, files in world.content(afresh).items() if _is_before_tokenizer(key)}
    if differing := differences(wanted, found):
        raise FindingError(f"incremental is not full: {differing}")
    return "same bytes"


def _is_before_tokenizer(key: str) -> bool:
    return key.startswith("corpora/") or key == "dedup"


def mounted(world: World, options: Sequence[str]) -> bool:
    return subprocess.run(["mount", *options], capture_output=True, check=False).returncode == 0


def full_disk(world: World, chance: random.Random) -> str:
    """The store is on a disk that fills up; with room again, the run ends in the same bytes."""
    overrides, aside = chance.choice(CHANGES[1:]), world.place / "aside"
    world.store.rename(aside)
    world.store.mkdir()
    used = int(
        subprocess.run(["du", "-sk", aside], capture_output=True, text=True, check=True).stdout.split()[0]
    )
    size = used + chance.randrange(400)
    if not mounted(world, ["-t", "tmpfs", "-o", f"size={2 * used + 100_000}k", "tmpfs", str(world.store)]):
        return "not possible here"
    try:
        subprocess.run(["cp", "-a", f"{aside}/.", world.store], check=True)
        mounted(world, ["-o", f"remount,size={size}k", str(world.store)])
        ended = world.ended(world.start(overrides))
        if ended.status not in (0, 2) or (ended.status == 2 and "No space left" not in ended.said):
            raise FindingError(f"exit status {ended.status}: {ended.said[-500:]}")
        mounted(world, ["-o", f"remount,size={2 * used + 100_000}k", str(world.store)])
        world.judge(overrides)
        return "same bytes" if ended.status == 0 else "a sentence with a remedy"
    finally:
        subprocess.run(["umount", "-l", world.store], check=True)


def read_only_store(world: World, chance: random.Random) -> str:
    """The store cannot be written for a while."""
    overrides = chance.choice(CHANGES)
    if not mounted(world, ["--bind", str(world.store), str(world.store)]):
        return "not possible here"
    try:
        mounted(world, ["-o", "remount,bind,ro", str(world.store)])
        ended = world.ended(world.start(overrides))
        if ended.status not in (0, 2) or (ended.status == 2 and ended.said.count("error:") != 1):
            raise FindingError(f"exit status {ended.status}: {ended.said[-500:]}")
    finally:
        subprocess.run(["umount", "-l", world.store], check=True)
    world.judge(overrides)
    return "same bytes" if ended.status == 0 else "a sentence with a remedy"


ODD: list[Any] = [
    0,
    -1,
    1,
    2,
    10**30,
    1e300,
    1e-300,
    float("nan"),
    True,
    None,
    "",
    "1e6",
    "/",
    "\0",
    [],
    {},
    [0],
]


def odd_setting(world: World, chance: random.Random) -> str:
    """A recipe with an odd value somewhere: refused in a sentence before anything runs, or carried out."""
    settings = yaml.safe_load(world.recipe.read_text())
    known = load_recipe(world.recipe).model_dump(mode="json")
    section = chance.choice(["raw", "scrub", "quality", "dedup", "tokenizer", "shards", "mixture", "engine"])
    changed = settings.get(section, {}) if isinstance(settings.get(section, {}), dict) else {}
    settings[section] = {**changed, chance.choice(sorted(known[section])): chance.choice(ODD)}
    world.recipe.write_text(yaml.safe_dump(settings))
    ended = world.ended(world.start({}))
    if ended.status not in (0, 2) or (ended.status == 2 and ended.said.count("error:") != 1):
        raise FindingError(f"{section}: {settings[section]}: exit status {ended.status}: {ended.said[-500:]}")
    return "carried out" if ended.status == 0 else "a sentence"


Scenario = Callable[[World, random.Random], str]
SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        damaged_store,
        rotten_store,
        stale_partial,
        killed,
        crossed,
        collected,
        damaged_source,
        edited,
        full_disk,
        read_only_store,
        odd_setting,
    )
}
