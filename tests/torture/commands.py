"""Commands that are killed at any change that they make, and then given again."""

import hashlib
import random
import re
import shutil
import signal
import time

from pipeline.store.keys import RECIPES
from tests.torture.branches import COMMON, TRUNK
from tests.torture.world import SAME, SENTENCE, Content, FindingError, World, differences, orphans, outcome_of

TEXT = "An assert statement is a convenient way to insert debugging assertions into a program"
FORGET = ["forget", "plain", "--reason", "asked for", "--yes"]
# By its name, a command, those that go before it, and the most changes that it makes.
COMMANDS: dict[str, tuple[list[str], list[list[str]], int]] = {
    "merge": (["merge", "--last", "2", TRUNK], [], 90),
    "keep": (["keep", TRUNK], [], 4),
    "reproduce": (["reproduce", TRUNK, "-o", "out"], [], 9),
    "documents": (["export", "--format", "parquet", "-o", "out"], [], 20),
    "shards": (["export", "--format", "megatron", "-o", "out"], [], 20),
    "trace": (["trace", TEXT, "--min-tokens", "8"], [], 60),
    "near": (["trace", "--near", TEXT], [], 60),
    "forget": (FORGET, [], 10),
    "gc --forgotten": (["gc", "--forgotten"], [FORGET], 300),
}
DATA = (".parquet", ".safetensors", ".bin", ".idx", ".sa")  # what tells no time


def killed_command(world: World, chance: random.Random) -> str:
    """The command again ends in the files of an undisturbed one, and `verify` finds nothing."""
    name = chance.choice(sorted(COMMANDS))
    number = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
    command, before, changes = COMMANDS[name]
    wanted = _undisturbed(world, name)
    _prepare(world, before)
    moment, whom = chance.randrange(1, changes + 1), chance.choice(["self", "group"])
    world.fault(number.name, name)
    process = world.python("tests.torture.crash", str(moment), str(number.value), whom, *command)
    ended = world.ended(process)
    until = time.monotonic() + 30
    while left := orphans(process.pid):
        if time.monotonic() > until:
            raise FindingError(f"orphans of {name}: {left}")
        time.sleep(0.2)
    again = world.ended(world.python("pipeline", *command))
    # A directory that was complete before the signal came is not written again.
    outcome = outcome_of(again, "already exists: name another directory")
    if outcome == SENTENCE and ended.returncode == 0:
        outcome = SAME
    world.succeeded(world.python("pipeline", "verify"))
    if differing := differences(_content(world), wanted):
        raise FindingError(f"{name}, change {moment}, {number.name} to {whom}: other files: {differing}")
    return outcome


def _undisturbed(world: World, name: str) -> Content:
    """What a command makes that nobody disturbs."""
    if name not in world.references:
        command, before, _ = COMMANDS[name]
        _prepare(world, [*before, command])
        world.references[name] = _content(world)
        world.restore()
    return world.references[name]


def _prepare(world: World, commands: list[list[str]]) -> None:
    """A trained run in the store, on which the commands work."""
    trained = world.directory / "alone" / "two checkpoints"
    if not trained.exists():
        world.succeeded(world.train(trained, *COMMON, "training.shared_states=none"))
    shutil.copytree(trained, world.store / "runs" / TRUNK)
    for command in commands:
        world.succeeded(world.python("pipeline", *command))


def _content(world: World) -> Content:
    """Each visible file of the store and of what was written beside it, with its hash if it tells no time."""
    found = {}
    for root in (world.store, world.place / "out"):
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            place = path.relative_to(root)
            hidden = any(part.startswith(".") for part in place.parts)
            # Which index a recipe used last is recorded by the command that makes it, and decides nothing.
            if hidden or place.parts[0] == RECIPES or place.name.startswith("file-hashes"):
                continue
            named = re.sub(r"\d{4}-\d\d-\d\dT[^/]*", "REQUEST", f"{root.name}/{place}")
            content = path.read_bytes() if path.suffix in DATA else b""
            found[named] = hashlib.sha256(content).hexdigest()
    return found
