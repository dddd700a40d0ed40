"""Faults of files, disks, sources, recipes and command lines. Each scenario draws its faults from `chance`
alone, notes them, disturbs the world and returns the outcome, or raises FindingError.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline.cli import COMMANDS, module
from pipeline.recipe.loading import load_recipe
from tests.integration.project import python_topics
from tests.pipeline.store.test_damage import flip_in_silence
from tests.torture.world import CHANGES, SAME, FindingError, World, differences, outcome_of, worst


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
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
    """Any files of the store, a run of a changed recipe, and one of the unchanged recipe."""
    for _ in range(chance.randrange(1, 8)):
        damage, path = chance.choice(DAMAGES), some_file(world.store, chance)
        world.fault(f"file: {damage.__name__}", world.stage(path))
        damage(path, chance)
    return worst(world.judge(chance.choice(CHANGES)), world.judge({}))


def rotten_store(world: World, chance: random.Random) -> str:
    """Bits that a disk flips leave size and time as they are: `verify --deep` sees and a run mends them."""
    stages = [chance.choice(["corpora", "dedup", "token_shards"]) for _ in range(chance.randrange(1, 8))]
    flipped = {some_file(world.store / stage, chance) for stage in stages}
    for path in sorted(flipped):
        world.fault("file: flip of the disk", world.stage(path))
        flip_in_silence(path, chance.randrange(path.stat().st_size))
    seen = world.ended(world.python("pipeline", "verify", "--deep"))
    for path in flipped:
        version = next(above for above in path.parents if (above / "manifest.json").exists())
        if seen.returncode != 2 or f"{version.relative_to(world.store)}\n  DAMAGED" not in seen.stdout:
            raise FindingError(f"verify --deep does not see {path}: {seen.stdout[-500:]}{seen.stderr[-500:]}")
    return worst(world.judge(chance.choice(CHANGES)), world.judge({}))


def stale_partial(world: World, chance: random.Random) -> str:
    """What a machine that lost its power may leave under temporary names."""
    folders = sorted(path.parent for path in world.store.rglob("manifest.json"))
    for _ in range(3):
        version = chance.choice(folders)
        left = version.with_name(f".{version.name}.{chance.choice(['partial', 'tmp', 'damaged-1'])}")
        if not left.exists():
            shutil.copytree(version, left)
            chance.choice([flip, cut, delete])(some_file(left, chance), chance)
            world.fault("half-written version", world.stage(version))
    return worst(world.judge(chance.choice(CHANGES)), world.judge({}))


def damaged_source(world: World, chance: random.Random) -> str:
    """A damaged file of a corpus is set aside, in whole or in part, or named. Then the file is as before."""
    path = some_file(world.sources, chance)
    damage = chance.choice([flip, cut, append, zeros])
    world.fault(f"source: {damage.__name__}", "".join(path.suffixes[-2:]))
    damage(path, chance)
    ended = world.ended(world.start({}))
    outcome = outcome_of(ended)
    if ended.returncode == 0 and path.suffix in (".gz", ".bz2", ".xz"):
        texts = {row["text"] for row in python_topics()}
        raw = Path(json.loads(ended.stdout)[f"corpora/{path.name.split('.')[0]}/raw"])
        for part in (raw / "documents").rglob("*.parquet"):
            if strange := set(pq.read_table(part, columns=["text"])["text"].to_pylist()) - texts:
                raise FindingError(f"{damage.__name__} of {path.name}: scrambled: {min(strange)[:200]!r}")
    shutil.copy2(world.directory / "whole" / path.relative_to(world.place), path)
    world.judge({})
    return outcome


def edited(world: World, chance: random.Random) -> str:
    """What a run makes of edited corpora, in this store and in a fresh one, is the same."""
    for _ in range(chance.randrange(1, 4)):
        name = chance.choice(["plain.jsonl", "texts"])
        world.fault("edit of a source", Path(name).suffix or ".txt")
        new, text = f"new{chance.random()}", chance.choice(python_topics())["text"] + " New."
        if name == "texts":
            path = some_file(world.sources / name, chance)
            rename = partial(path.rename, path.with_stem(new))
            chance.choice([path.unlink, partial(path.write_text, text), rename])()
        else:
            path = world.sources / name
            rows = path.read_text().splitlines(keepends=True)
            at = chance.randrange(len(rows))
            added = [f"{json.dumps({'id': new, 'text': text})}\n"] * chance.randrange(2)
            path.write_text("".join([*rows[:at], *added, *rows[at + chance.randrange(2) :]]))
    found, wanted = (
        {name: sha for name, sha in made.items() if name.startswith(("corpora/", "dedup/"))}
        for made in (
            world.content(world.succeeded(world.start({}, store=store)))
            for store in (world.store, world.place / "other")
        )
    )
    if differing := differences(found, wanted):
        raise FindingError(f"incremental is not full: {differing}")
    return SAME


def mounted(*options: str | Path) -> bool:
    return subprocess.run(["mount", *options], capture_output=True, check=False).returncode == 0


def full_disk(world: World, chance: random.Random) -> str:
    """The store is on a disk that fills up; with room again, the run ends in the same bytes."""
    overrides, aside = chance.choice(CHANGES[1:]), world.place / "aside"
    world.store.rename(aside)
    world.store.mkdir()
    used = int(subprocess.check_output(["du", "-sk", aside], text=True).split()[0])
    roomy, tight = f"size={2 * used + 100_000}k", f"size={used + chance.randrange(400)}k"
    if not mounted("-t", "tmpfs", "-o", roomy, "tmpfs", world.store):
        return "not possible here"
    try:
        subprocess.run(["cp", "-a", f"{aside}/.", world.store], check=True)
        mounted("-o", f"remount,{tight}", world.store)
        ended = world.ended(world.start(overrides))
        world.fault("full disk", world.last_stage())
        outcome = outcome_of(ended, "No space left")
        mounted("-o", f"remount,{roomy}", world.store)
        world.judge(overrides)
        return outcome
    finally:
        subprocess.run(["umount", "-l", world.store], check=True)


def read_only_store(world: World, chance: random.Random) -> str:
    """The store cannot be written for a while."""
    overrides = chance.choice(CHANGES)
    if not mounted("--bind", world.store, world.store):
        return "not possible here"
    try:
        mounted("-o", "remount,bind,ro", world.store)
        world.fault("read-only disk", "store")
        ended = world.ended(world.start(overrides))
        outcome = outcome_of(ended)
    finally:
        subprocess.run(["umount", "-l", world.store], check=True)
    world.judge(overrides)
    return outcome


SECTIONS = ("raw", "scrub", "quality", "dedup", "tokenizer", "shards", "mixture", "engine")
ODD: list[Any] = [
    *(0, -1, 1, 2, 10**30, 1e300, 1e-300, float("nan"), True, None, "", "1e6", "/", "\0", [], {}, [0])
]


def odd_setting(world: World, chance: random.Random) -> str:
    """Recipes with an odd value somewhere: refused in a sentence before anything runs, or carried out."""
    written, outcomes = world.project.recipe, []
    known = load_recipe(world.project.write_recipe()).model_dump(mode="json")
    for _ in range(chance.randrange(1, 5)):
        section = chance.choice(SECTIONS)
        kept = written.get(section, {}) if isinstance(written.get(section, {}), dict) else {}
        changed = {**kept, chance.choice(sorted(known[section])): chance.choice(ODD)}
        world.project.recipe = written | {section: changed}
        world.fault("odd setting", section)
        outcomes.append(outcome_of(world.ended(world.start({})), well="carried out"))
    world.project.recipe = written
    world.judge({})
    return worst(*outcomes)


WORDS = ["", "-1", "0", "1", "2", "1e9", "nan", "é\n", "no such", "plain", "corpora/plain/raw", "dedup", "{}"]
PATHS = ["sources/plain.jsonl", "sources/texts", "sources", "recipe.yaml", "store", "out", "out/new", "."]


def odd_arguments(parser: argparse.ArgumentParser, chance: random.Random) -> list[str]:
    """Some of the parser's options and arguments, with words and paths that may suit them."""
    drawn: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction) or (not action.required and chance.random() < 0.5):
            continue
        if isinstance(action.choices, dict):
            name = chance.choice(sorted(action.choices))
            return [*drawn, name, *odd_arguments(action.choices[name], chance)]
        drawn += [chance.choice(action.option_strings)] if action.option_strings else []
        if action.nargs != 0:
            drawn.append(chance.choice([*(action.choices or ()), *WORDS, *PATHS]))
    return drawn


def odd_command(world: World, chance: random.Random) -> str:
    """Commands with arguments as a tired user may type them harm nothing."""
    outcomes = []
    for _ in range(chance.randrange(1, 5)):
        name = chance.choice(sorted(COMMANDS))
        parser = argparse.ArgumentParser()
        module(name).add_arguments(parser)
        given = odd_arguments(parser, chance)
        world.fault("odd command line", name)
        outcomes.append(outcome_of(world.ended(world.python("pipeline", name, *given)), well="carried out"))
    world.judge({})
    return worst(*outcomes)
