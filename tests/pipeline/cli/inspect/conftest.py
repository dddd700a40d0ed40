"""Two projects whose decisions inspect shows: a small one, and one of many documents."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli import main
from pipeline.recipe.recipe import RECIPES
from pipeline.sources.files import FilesConfig
from pipeline.stages.dedup import DedupParams
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES
from pipeline.store.engines.local import LocalEngine
from pipeline.store.store import Store
from tests.pipeline.steps.make import collect, deduplicate, judge, scrub
from tests.rows import jsonl

Inspect = Callable[..., tuple[int, str]]
PLAIN, ENGINE = PROFILES["plain"], LocalEngine(1)
JUDGED = PLAIN.model_copy(update={"min_words": 30, "languages": ("en",)})
STRICT = {"min_words": 45, "max_mean_word_length": 5.1}
TEXT = " ".join(f"word{number}" for number in range(200))
SENTENCES = {
    "en": "The committee met again to hear what the engineers had found",
    "de": "Der Ausschuss hörte noch einmal, was die Leute gefunden hatten",
}
CORPORA = {
    "notes": [
        {"id": "short", "text": "Ask jane.doe@example.org.\x1b[2J"},
        {"id": "long", "text": TEXT + " and more"},
    ],
    "letters": [
        {"id": "brief", "text": "Dear all."},
        {"id": "copy", "text": TEXT + " and more"},
        {"id": "almost", "text": TEXT},
    ],
}


def scrubbed(
    store: Store, path: Path, *documents: dict[str, str], part_bytes: int = 1_000_000, **scrubbing: Any
) -> None:
    """Stores a corpus of these documents, named as the file, up to scrubbing."""
    jsonl(path, *documents)
    source = FilesConfig(paths=(path.name,)).anchored(path.parent)
    collect(store, ENGINE, path.stem, source, part_bytes=part_bytes)
    scrub(store, ENGINE, path.stem, PiiParams(**scrubbing))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe of two corpora and a store in which they went through dedup."""
    directory = tmp_path_factory.mktemp("project")
    recipe = yaml.safe_load((RECIPES / "default.yaml").read_text())
    recipe["corpora"] = [
        {"name": name, "source": {"kind": "files", "paths": [f"{name}.jsonl"]}} for name in CORPORA
    ]
    recipe |= {"raw": {"part_bytes": 1_000_000}, "quality": "plain", "scrub": {}, "dedup": {}}
    (directory / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    store = Store(directory / "store")
    for name, documents in CORPORA.items():
        scrubbed(store, directory / f"{name}.jsonl", *documents)
        judge(store, ENGINE, name, PLAIN)
    deduplicate(store, ENGINE, list(CORPORA), DedupParams())
    return directory


@pytest.fixture
def inspect(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inspect:
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(project / "recipe.yaml"))
    monkeypatch.setenv("GROUNDWORK_STORE", str(project / "store"))

    def run(*arguments: str) -> tuple[int, str]:
        status = main(["inspect", *arguments])
        said = capsys.readouterr()
        return status, said.err if status else said.out

    return run


PART_BYTES = 4_000


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two corpora of several parts, judged by a recipe, and one of them by a variant that scrubs nothing."""
    directory = tmp_path_factory.mktemp("many")
    names = ("talks", "mails")
    recipe = yaml.safe_load((RECIPES / "default.yaml").read_text())
    recipe["corpora"] = [
        {"name": name, "source": {"kind": "files", "paths": [f"{name}.jsonl"]}} for name in names
    ]
    recipe |= {"raw": {"part_bytes": PART_BYTES}, "scrub": {}, "dedup": {}}
    recipe["quality"] = {"profile": "plain", "min_words": 30, "languages": ["en"]}
    recipe["variants"] = {
        "strict": {"quality": STRICT},
        "lax": {"scrub": {"kinds": []}},
        "unmade": {"quality": {"min_words": 77}},
    }
    (directory / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    store = Store(directory / "store")
    for corpus in names:
        texts = [
            " ".join([SENTENCES["de" if number % 5 == 0 else "en"]] * (1 + number % 6))
            + "".join(f" {corpus}-{number}-{word}" for word in range(number % 7))
            for number in range(60)
        ]
        texts[7] += " jane.doe@example.org"
        rows = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
        path = directory / f"{corpus}.jsonl"
        if corpus == "talks":
            scrubbed(store, path, *rows, part_bytes=PART_BYTES, kinds=())
            judge(store, ENGINE, corpus, JUDGED)
        scrubbed(store, path, *rows, part_bytes=PART_BYTES)
        judge(store, ENGINE, corpus, JUDGED)
    return directory


@pytest.fixture
def inspect_many(many: Path, monkeypatch: pytest.MonkeyPatch, inspect: Inspect) -> Inspect:
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(many / "recipe.yaml"))
    monkeypatch.setenv("GROUNDWORK_STORE", str(many / "store"))
    return inspect
