"""Buckets whose requests go wrong, and Ray nodes that die, hang or lag."""

import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

from tests.azurite import azurite
from tests.google_server import google
from tests.ray_cluster import RayCluster, started
from tests.s3_server import BUCKET, CloudServer, objects_of, proxied, serving
from tests.torture.processes import disturbed
from tests.torture.world import CHANGES, SAME, Ended, World, outcome_of, worst

WHOLE = "whole"
CLOUDS = {"s3": serving, "gs": google, "az": azurite}


def bad_bucket(world: World, chance: random.Random, *, cloud: str) -> str:
    """Some requests of a run to its bucket go wrong, and it may be killed. Then a run on another machine
    ends in the same bytes.
    """
    if cloud == "az" and not shutil.which("azurite-blob"):
        return "not possible here"
    server, prefix = _whole(world, cloud), f"{chance.getrandbits(64):x}"
    for key in server.keys(f"{WHOLE}/"):
        objects_of(server).copy(key, f"{prefix}{key.removeprefix(WHOLE)}")
    overrides, share = chance.choice(CHANGES[1:]), chance.choice([0.02, 0.05, 0.1])
    ways = ("500", "503", "reset", "half", "slow", "old")
    with proxied(server, share=share, ways=ways, seed=chance.getrandbits(32)) as (bad, proxy):
        process = _run(world, bad, overrides, prefix, "one")
        disturb = chance.random() < 0.3
        ended = disturbed(world, process, chance, "in a bucket") if disturb else world.ended(process)
    for way, path in proxy.faults:
        below = Path(unquote(path).partition("?")[0].partition(f"/{BUCKET}/")[2])
        if below.is_relative_to(prefix):
            world.fault(f"bucket {cloud}: {way}", world.stage(world.store / below.relative_to(prefix)))
    outcome = outcome_of(ended) if ended else SAME
    ended = world.succeeded(_run(world, server, overrides, prefix, "another"))
    return worst(outcome, world.judge(overrides, _fetched(world, server, prefix, ended)))


def _whole(world: World, cloud: str) -> CloudServer:
    """A server whose bucket holds the store of the unchanged recipe below WHOLE."""
    if cloud not in world.buckets:
        server = world.services.enter_context(CLOUDS[cloud]())
        world.succeeded(_run(world, server, {}, WHOLE, "first"))
        world.buckets[cloud] = server
    return world.buckets[cloud]


def _run(
    world: World, server: CloudServer, overrides: dict[str, object], prefix: str, cache: str
) -> "subprocess.Popen[str]":
    """Starts a run on a machine with an empty cache."""
    environment = server.environment | {"GROUNDWORK_CACHE": str(world.place / cache)}
    return world.start(overrides, store=f"{server.scheme}://{BUCKET}/{prefix}", environment=environment)


def _fetched(world: World, server: CloudServer, prefix: str, ended: Ended) -> Ended:
    """As if the run had made what is in the bucket in a directory."""
    url = f"{server.scheme}://{BUCKET}/{prefix}".removeprefix("s3://")
    place, root = world.place / "fetched", world.place / "another" / quote(url, safe="")
    for key in server.keys(f"{prefix}/"):
        path = place / key.removeprefix(f"{prefix}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(objects_of(server).get(key).bytes())
    return Ended(ended.args, 0, ended.stdout.replace(str(root), str(place)), ended.stderr)


def lost_node(world: World, chance: random.Random) -> str:
    """A node of the Ray cluster on which a run works dies, hangs or lags."""
    overrides = chance.choice(CHANGES[1:])
    with started() as cluster:
        process = world.start(overrides, "--ray", cluster.address)
        time.sleep(chance.uniform(3, 15))
        way = chance.choice(["dies", "hangs", "lags"])
        world.fault(f"Ray node: {way}", world.last_stage())
        if way == "dies":
            cluster.kill_node()
            cluster.add_node()
        else:
            _pause(cluster, 15 if way == "hangs" else chance.uniform(0.5, 2))
        ended = world.ended(process)
    return worst(outcome_of(ended), world.judge(overrides, ended if ended.returncode == 0 else None))


def _pause(cluster: RayCluster, seconds: float) -> None:
    """Stops the newest node for so long; the head gives one up after three seconds."""
    pids = cluster.newest_pids()
    for number, pause in ((signal.SIGSTOP, seconds), (signal.SIGCONT, 0)):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        time.sleep(pause)
