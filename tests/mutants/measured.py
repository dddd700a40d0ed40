"""Which tests execute which line: one run of the default tests under coverage.py, kept for later runs."""

import ast
import json
import os
import subprocess
import sys
from functools import cache, cached_property
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path

from tests.mutants import plugin
from tests.mutants.mutants import PACKAGES, ROOT, Mutant

KEPT = ROOT / ".pytest_cache" / "mutants"
# What no default test runs, as it needs an S3 server.
ELSEWHERE = ("pipeline/store/bucket/",)
DATA, SECONDS, SOURCES = KEPT / "coverage", KEPT / "seconds.json", KEPT / "sources.json"
SETTINGS = f"""[run]
core = ctrace
data_file = {DATA}
parallel = true
include = {",".join(f"{ROOT / package}/*" for package in PACKAGES)}
context = ${{{plugin.RUNNING}-}}
patch = _exit
"""


def sources() -> dict[str, str]:
    """A hash of each file of the packages, except for those that import what is not installed here."""
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    texts = {str(path.relative_to(ROOT)): path.read_bytes() for path in files}
    return {
        file: blake2b(text).hexdigest()
        for file, text in texts.items()
        if _can_run(text) and not file.startswith(ELSEWHERE)
    }


def mirrored(file: str) -> str:
    """The folder of the tests of a file of the packages."""
    return f"tests/{Path(file).parent}/"


def _can_run(source: bytes) -> bool:
    nodes = list(ast.walk(ast.parse(source)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return all(_installed(name.partition(".")[0]) for name in names)


@cache
def _installed(package: str) -> bool:
    return find_spec(package) is not None


def measure() -> None:
    """Takes half an hour on two cores."""
    from coverage import Coverage

    KEPT.mkdir(parents=True, exist_ok=True)
    for old in KEPT.iterdir():
        old.unlink()
    settings = KEPT / "settings"
    settings.write_text(SETTINGS)
    before = sources()
    command = [sys.executable, "-m", "pytest", "-p", plugin.__name__, "-p", "no:cacheprovider"]
    command += ["-m", "not slow", "-n", "2", "--dist", "loadfile"]
    measured = {"COVERAGE_PROCESS_START": str(settings), plugin.MEASURED: str(SECONDS)}
    subprocess.run(command, cwd=ROOT, env=os.environ | measured, check=False)
    Coverage(config_file=str(settings)).combine()
    SOURCES.write_text(json.dumps(before))


class Measured:
    """What `measure` has kept. It measures first, if nothing is kept or a tenth of the files have changed."""

    def __init__(self) -> None:
        now = sources()
        before = json.loads(SOURCES.read_text()) if SOURCES.exists() else {}
        self.files = list(now)
        self._same = {file for file in now if now[file] == before.get(file)}
        if len(self._same) < 0.9 * len(now):
            measure()
            self._same = set(now)
        self.seconds: dict[str, float] = json.loads(SECONDS.read_text())

    def tests(self, mutant: Mutant) -> set[str]:
        """Of the default tests, those that execute the statement of `mutant`."""
        lines = range(mutant.first, mutant.last + 1) if mutant.ran and mutant.file in self._same else None
        return self._named(
            {
                name
                for line, names in self._lines(mutant.file).items()
                if lines is None or line in lines
                for name in names
            }
        )

    @cache  # noqa: B019
    def _lines(self, file: str) -> dict[int, list[str]]:
        return self._data.contexts_by_lineno(str(ROOT / file))

    @cached_property
    def _data(self):  # type: ignore[no-untyped-def]
        from coverage import CoverageData

        data = CoverageData(str(DATA))
        data.read()
        return data

    def _named(self, contexts: set[str]) -> set[str]:
        """Tests; those of a file for what its tests share."""
        shared = {context for context in contexts if context and "::" not in context}
        return {test for test in self.seconds if test in contexts or test.partition("::")[0] in shared}

    def beside(self, file: str) -> set[str]:
        """The tests in the folder that mirrors that of `file`."""
        return {test for test in self.seconds if test.startswith(mirrored(file))}

    @cached_property
    def changed(self) -> set[str]:
        """Test files that were written after the measurement. All of their tests are run."""
        since = SECONDS.stat().st_mtime
        paths = (ROOT / "tests").rglob("test_*.py")
        return {str(path.relative_to(ROOT)) for path in paths if path.stat().st_mtime > since}
