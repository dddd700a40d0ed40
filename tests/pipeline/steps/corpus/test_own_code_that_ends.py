"""Code of the user's that ends its process, or that does to it what the rest of a run must not feel."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.plugins import loading
from pipeline.plugins.settings import FilterParams, TransformParams
from pipeline.sources.user_code import PythonConfig
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES
from pipeline.steps.training.process_group import ignore_stop_signals
from pipeline.store import keys
from pipeline.store.engines.local import LocalEngine, WorkerLostError
from pipeline.store.manifest import Version
from pipeline.store.store import Store
from tests.integration.project import ROOT, until
from tests.pipeline.plugins.code import write
from tests.pipeline.steps.make import collect, judge, scrub, transform
from tests.rows import stored_rows

MODULE = """
    import asyncio, ctypes, locale, os, signal, sys, threading, time
    from pathlib import Path

    from pipeline.plugins import Document, document_filter, document_transform

    HERE = Path(__file__).parent

    def deep(_):  # through C, whose stack ends
        return sorted([0], key=deep)

    def endless_recursion():
        sys.setrecursionlimit(10**9)
        deep(0)

    ENDS = {
        "exit": lambda: os._exit(3),
        "exit0": lambda: os._exit(0),
        "crash": lambda: ctypes.string_at(0),
        "abort": os.abort,
        "recursion": endless_recursion,
        "memory": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "term": lambda: os.kill(os.getpid(), signal.SIGTERM),
    }

    def run_in(place):
        with open(HERE / f"{place}.process", "w") as file:
            file.write(str(os.getpid()))
        if (HERE / place).exists():
            ENDS[(HERE / place).read_text()]()

    class Notes:
        def fingerprint(self):
            return "1"

        def documents(self):
            for number in range(60):
                if number == 40:
                    run_in("source")
                yield Document(str(number), f"Note {number} says a thing. " * 50, metadata={"n": number})

    @document_transform
    def louder(document):
        if document.metadata["n"] == 40:
            run_in("transform")
        return document.text.upper()

    @document_filter
    def fine(document):
        if document.metadata["n"] == 40:
            run_in("filter")
        return True

    @document_filter(signals={"size": int})
    class Sized:
        def signals(self, document):
            return {"size": len(document.text)}

        def keep(self, signals, least=0):
            run_in("keep")
            return signals["size"] > least

    def for_ever():
        while True:
            time.sleep(1)

    def cancelled():
        raise asyncio.CancelledError

    DOES = [
        lambda: threading.Thread(target=for_ever).start(),
        lambda: print("a line of a program that talks a lot " * 1000),
        lambda: sys.stdout.buffer.write(bytes(range(256)) * 10) and sys.stdout.flush(),
        lambda: os.chdir("/"),
        lambda: locale.setlocale(locale.LC_ALL, "C"),
        lambda: os.fork(),
        lambda: sys.stdout.close(),
        lambda: sys.exit(0),
        cancelled,
    ]

    @document_transform
    def careless(document):
        if document.metadata["n"] < len(DOES):
            DOES[document.metadata["n"]]()
        return document.text.lower()
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    loading.load.cache_clear()
    write(tmp_path, "own_ends", MODULE)


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    engine = LocalEngine(workers=1)
    yield engine
    engine.close()


def make(store: Store, engine: LocalEngine) -> list[Version]:
    louder = TransformParams(python="own_ends:louder", version="1")
    own = [FilterParams(python=f"own_ends:{name}", version="1") for name in ("fine", "Sized")]
    collect(store, engine, "notes", PythonConfig(object="own_ends:Notes", version="1"), 8000)
    transform(store, engine, "notes", [louder])
    scrub(store, engine, "notes", PiiParams(), "corpora/notes/transformed")
    judge(store, engine, "notes", PROFILES["none"].model_copy(update={"filters": tuple(own)}))
    every = (
        keys.raw("notes"),
        keys.transformed("notes"),
        keys.filtered("notes", "fine"),
        keys.quality("notes"),
    )
    return [store.current(key) for key in every]


@pytest.mark.parametrize(
    ("place", "kind", "says"),
    [
        pytest.param(
            "source",
            "exit",
            "corpora/notes/raw: the process that ran own_ends:Notes ended with status 3",
            marks=pytest.mark.slow,
        ),
        ("source", "memory", "corpora/notes/raw: the process that ran own_ends:Notes was killed, .*memory"),
        ("transform", "crash", "corpora/notes/transformed: .* own_ends:louder was ended by SIGSEGV"),
        ("transform", "exit0", "corpora/notes/transformed: .* own_ends:louder ended with status 0"),
        pytest.param(
            "filter",
            "recursion",
            "corpora/notes/filters/fine: .* own_ends:fine was ended by SIGSEGV",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "filter",
            "term",
            "corpora/notes/filters/fine: .* own_ends:fine was ended by SIGTERM",
            marks=pytest.mark.slow,
        ),
        ("keep", "abort", "corpora/notes/quality: .* own_ends:Sized was ended by SIGABRT"),
    ],
)
def test_code_that_ends_its_process_is_named_and_the_next_run_goes_on(
    place: str, kind: str, says: str, tmp_path: Path, engine: LocalEngine
) -> None:
    store = Store(tmp_path / "store")
    (tmp_path / place).write_text(kind)
    with pytest.raises(WorkerLostError, match=f"^{says}") as told:
        make(store, engine)
    assert re.search("run again", str(told.value)) and "\n" not in str(told.value)
    stage = {"source": "raw", "transform": "transformed", "filter": "filters/fine", "keep": "quality"}[place]
    assert not [*(store.root / "corpora/notes" / stage).glob("[!.]*/manifest.json")]
    (tmp_path / place).unlink()
    made = make(store, engine)
    assert [version.counts["documents"] for version in made] == [60] * 4


def test_a_worker_of_a_process_that_ignores_sigterm_does_not(tmp_path: Path, engine: LocalEngine) -> None:
    """A run that saves its last checkpoint ignores it, and what it starts would inherit that."""
    (tmp_path / "filter").write_text("term")
    with ignore_stop_signals(), pytest.raises(WorkerLostError, match="was ended by SIGTERM"):
        make(Store(tmp_path / "store"), engine)


def test_what_code_does_to_its_process_the_run_does_not_feel(tmp_path: Path) -> None:
    engine, store = LocalEngine(workers=1), Store(tmp_path / "store")
    collect(store, engine, "notes", PythonConfig(object="own_ends:Notes", version="1"), 8000)
    careless = TransformParams(python="own_ends:careless", version="1", max_failed_share=0.1)
    made = transform(store, engine, "notes", [careless])
    assert made.counts["documents"] == made.counts["changed"] == 58
    assert {row["error"] for row in stored_rows(made, "failures")} == {"SystemExit", "CancelledError"}
    process = int((tmp_path / "source.process").read_text())
    engine.close()  # and no thread keeps the worker
    until(lambda: not Path(f"/proc/{process}").exists(), 20)


@pytest.mark.parametrize(
    ("code", "call", "doing"),
    [
        ("import os; os._exit(1)", "load('ends:it')", "imported module 'ends'"),
        ("import ctypes; ctypes.string_at(0)", "load('ends:it')", "imported module 'ends'"),
        (
            "import os\nclass It:\n def fingerprint(self): os._exit(0)\n def documents(self): return []",
            "PythonSource('c', PythonConfig(object='ends:It', version='1')).units()",
            "asked ends:It for its fingerprint",
        ),
    ],
)
def test_code_that_ends_the_program_itself_is_named_last(
    tmp_path: Path, code: str, call: str, doing: str
) -> None:
    (tmp_path / "ends.py").write_text(code)
    program = "import sys; from pipeline.plugins.loading import load\n"
    program += "from pipeline.sources.user_code import PythonConfig, PythonSource\n"
    program += f"sys.path.append({str(tmp_path)!r})\n{call}"
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False
    )
    (said,) = ended.stderr.splitlines()
    assert (
        said == f"error: the program ended while it {doing}: correct the code, which must not end its process"
    )
