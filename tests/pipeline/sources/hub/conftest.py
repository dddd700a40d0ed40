"""A server on this machine that speaks the protocol of the hub."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.sources.hub_server import CARD, Hub, parquet
from tests.servers import serving

READ = """
import json, sys
from pydantic import TypeAdapter
from pipeline.sources import SourceConfig, open_source
from pipeline.sources.source import SourceError

def read(config):
    source = open_source("c", TypeAdapter(SourceConfig).validate_python(config))
    rejects = []
    try:
        units = source.units()
        rows = {
            unit.name: [row for batch in source.read(unit, rejects) for row in batch.to_pylist()]
            for unit in units
        }
    except SourceError as error:
        return {"error": str(error)}
    units = [[unit.name, unit.fingerprint, unit.bytes, unit.revision] for unit in units]
    lost = sum(r.lost_bytes for r in rejects)
    rejects = [[r.file, r.row, str(r.reason)] for r in rejects]
    return {"units": units, "rows": rows, "rejects": rejects, "lost_bytes": lost}

for line in sys.stdin:
    print(json.dumps(read(json.loads(line))), flush=True)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Hub]:
    with serving(Hub()) as server:
        yield server


@pytest.fixture
def hub(server: Hub) -> Hub:
    """With one commit, whose name no other test has."""
    server.begin()
    server.files[server.commits[0]] = {
        "README.md": CARD,
        "data/train-00000.parquet": parquet(
            id=["x", "y"], text=["first text", "second text"], score=[0.5, 0.25]
        ),
        "data/train-00001.parquet": parquet(id=["z", "w"], text=["third text", None], score=[0.1, 0.2]),
        "data/test-00000.parquet": parquet(id=["t"], text=["held out"], score=[0.0]),
    }
    return server


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A directory for the hub's libraries, and the processes that read, by their settings."""
    started: dict[str, subprocess.Popen[str]] = {}
    yield tmp_path_factory.mktemp("hf"), started
    for reader in started.values():
        reader.communicate()


@pytest.fixture
def read(hub: Hub, readers: tuple[Path, dict[str, Any]]) -> Any:
    """Reads a data set in a process with the settings given in capitals; one process for each set of them."""
    home, started = readers

    def _read(config: dict[str, Any] | None = None, **settings: str) -> Any:
        key = json.dumps(settings)
        if key not in started:
            inherited = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
            usual = {
                "HF_ENDPOINT": hub.url,
                "HF_HOME": str(home),
                "HF_HUB_DISABLE_XET": "1",
                "USE_TORCH": "0",
            }
            started[key] = subprocess.Popen(
                [sys.executable, "-c", READ],
                env={**inherited, **usual, **settings},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        reader = started[key]
        assert reader.stdin and reader.stdout
        reader.stdin.write(json.dumps({"kind": "hub", "name": "org/set", **(config or {})}) + "\n")
        reader.stdin.flush()
        return json.loads(reader.stdout.readline())

    return _read
