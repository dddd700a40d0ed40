"""A data set on the hub gets new revisions: what follows is made again for that corpus only, and only as far
as its text changed.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.store import last_versions
from tests.integration.project import ROOT, Project, python_topics
from tests.pipeline.sources.hub_server import CARD, Hub, parquet

LOOK = """
import json, sys
import dagster as dg
from pipeline.definitions import defs
from tests.integration.location import Location

with dg.DagsterInstance.get() as instance:
    location = Location(instance, defs)
    location.retokenize()
    print("ready", flush=True)
    for _ in sys.stdin:
        requests = location.tick().run_requests or []
        print(json.dumps([sorted(location.retokenize(request)) for request in requests]), flush=True)
"""


@dataclass
class Watched:
    """A project of two corpora, one from the hub, and a process that runs it: the hub's libraries take their
    settings when imported.
    """

    project: Project
    hub: Hub
    process: "subprocess.Popen[str]"

    def look(self) -> list[set[str]]:
        """Ticks the sensor and runs what it asks for: what each run materialized."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return [set(made) for made in json.loads(self.process.stdout.readline())]

    def fingerprints(self) -> dict[str, str]:
        """The version of each asset that the recipe used last."""
        return dict(last_versions.recorded(self.project.store.files))


def publish(
    hub: Hub, documents: list[dict[str, str]], compression: str = "snappy", card: bytes = CARD
) -> None:
    """A new revision that holds these documents."""
    train = parquet(
        compression, **{name: [document[name] for document in documents] for name in ("id", "text")}
    )
    hub.files[f"{len(hub.files) + 1:040x}"] = {
        "README.md": card,
        "data/train-0.parquet": train,
        "data/test-0.parquet": parquet(text=["x"]),
    }


@pytest.fixture
def watched(make_project: Callable[[Path], Project], tmp_path: Path) -> Iterator[Watched]:
    """Taken to token shards at the first revision."""
    project = make_project(tmp_path)
    project.recipe["corpora"][0]["source"] = {"kind": "hub", "name": "org/set"}
    with Hub() as hub:
        publish(hub, python_topics())
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        inherited = {
            name: value for name, value in project.environment().items() if not name.startswith("HF_")
        }
        settings = {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_DISABLE_XET": "1",
            "PYTHONPATH": str(ROOT),
        }
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", LOOK],
                env={**inherited, **settings},
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert process.stdout and process.stdout.readline() == "ready\n", (tmp_path / "log").read_text()[
            -2000:
        ]
        yield Watched(project, hub, process)
        process.communicate()
        hub.shutdown()


@pytest.mark.slow
def test_a_new_revision_is_followed_as_far_as_the_text_changed_and_for_that_corpus_only(
    watched: Watched,
) -> None:
    first = watched.fingerprints()
    documents = python_topics()
    publish(watched.hub, documents, card=CARD + b"Better words.")
    assert watched.look() == []  # no file of the split changed

    publish(watched.hub, documents, compression="gzip")
    (made,) = watched.look()
    assert "corpora/topics/raw" in made and not any(key.startswith("corpora/stdlib/") for key in made)
    same_text = watched.fingerprints()
    # read again, and there it stopped
    assert {key for key in first if first[key] != same_text[key]} == {"corpora/topics/raw"}
    assert watched.look() == []

    documents[20]["text"] += "\nA sentence that was not there before."
    publish(watched.hub, documents)
    (made,) = watched.look()
    assert not any(key.startswith("corpora/stdlib/") for key in made)
    changed = {key for key in first if same_text[key] != watched.fingerprints()[key]}
    assert {"corpora/topics/raw", "corpora/topics/quality", "dedup", "token_shards/topics"} <= changed
    assert not {"tokenizer", "corpora/stdlib/raw"} & changed
    assert watched.look() == []
