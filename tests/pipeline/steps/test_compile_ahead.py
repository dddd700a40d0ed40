"""What is compiled ahead is what a run calls later."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.steps import compile_ahead
from tests.integration.project import ROOT

USES = """
import json, sys
from pathlib import Path
from tests.pipeline.steps.make import judge, deduplicate, tokenizer
from pipeline.stages import quality
from pipeline.stages.dedup import DedupParams
from pipeline.stages.bpe import TokenizerParams
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import ENGINE, TEXTS, prepare

store = Store(Path(sys.argv[1]) / "store")
prepare(store, Path(sys.argv[1]) / "first.jsonl", TEXTS[:15])
deduplicate(store, ENGINE, ["first"], DedupParams())
tokenizer(store, ENGINE, "test", ["first"], TokenizerParams(vocab_size=300), 0.1)
"""


@pytest.mark.parametrize(("compiled", "processes"), [([], 2), ([-60], 2), ([60], 0), ([-60, 60], 0)], ids=str)
def test_kernels_are_compiled_ahead_on_a_fresh_machine_and_after_an_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[int], processes: int
) -> None:
    changed, cache, started = 1_700_000_000, tmp_path / "pii" / "__pycache__", list[str]()
    cache.mkdir(parents=True)
    for number, seconds in enumerate(compiled):
        (cache / f"{number}.nbi").touch()
        os.utime(cache / f"{number}.nbi", (changed, changed + seconds))
    for name, at in (("old.py", changed - 999), ("new.py", changed), ("of_a_wrong_clock.py", 9_999_999_999)):
        (tmp_path / "pii" / name).touch()
        os.utime(tmp_path / "pii" / name, (at, at))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(compile_ahead, "STAGES", tmp_path)
    monkeypatch.setattr(compile_ahead, "_processes", {})
    monkeypatch.setattr(compile_ahead, "_started", started.append)
    compile_ahead.start.__wrapped__()
    assert len(started) == processes


@pytest.mark.slow
def test_a_run_finds_every_kernel_compiled(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}

    def compiled(*arguments: str) -> set[str]:
        subprocess.run([sys.executable, *arguments], check=True, env=environment, cwd=ROOT)
        return {path.name for path in cache.rglob("*.nbc")}

    scrubbing = compiled("-m", "pipeline.steps.compile_kernels", "scrubbing")
    modules = {path.stem for path in (ROOT / "pipeline/stages/pii").glob("*.py")}
    assert scrubbing and {name.partition(".")[0] for name in scrubbing} <= modules
    ahead = compiled("-m", "pipeline.steps.compile_kernels", "later")
    assert ahead > scrubbing
    assert compiled("-c", USES, str(tmp_path)) == ahead
    assert "compiling kernels" in planned(tmp_path, tmp_path / "fresh")
    assert {path.name for path in (tmp_path / "fresh").rglob("*.nbc")} == ahead
    assert "compiling" not in planned(tmp_path, cache)


def planned(directory: Path, cache: Path) -> str:
    """What `start` says of its plan with this cache."""
    cache.mkdir(exist_ok=True)
    (directory / "notes").mkdir(exist_ok=True)
    (directory / "notes/all.txt").write_text("The cat sat on the mat, and the dog looked at it.\n" * 3_000)
    command = [sys.executable, "-m", "pipeline", "start", str(directory / "notes"), "--hours=0.1", "--plan"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(command, check=True, env=environment, cwd=ROOT, text=True, capture_output=True)
    return done.stderr
