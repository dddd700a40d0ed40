"""A copy of the checkout in which one mutant after the other is made, tested and undone."""

import json
import os
import shutil
import signal
import subprocess
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.corpora import CORPORA
from tests.mutants import plugin
from tests.mutants.mutants import ROOT, Mutant

MARK = "GROUNDWORK_MUTANT"


class Worker:
    def __init__(self, directory: Path):
        self._directory = directory
        self._code, self._kernels = directory / "code", directory / "kernels"
        subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, self._code], check=True)
        samples = CORPORA.parent
        Path(directory, samples.name).symlink_to(samples)  # tests look for them beside their checkout
        self._python = self._own_environment()
        self.update()
        self._kernels.mkdir()
        for kernels in ("scrubbing", "later"):
            command = [self._python, "-m", "pipeline.steps.compile_kernels", kernels]
            self._ended(command, {"NUMBA_CACHE_DIR": self._kernels}, 600)
        if not self.is_typed():
            raise RuntimeError("mypy finds errors without any mutant")

    def update(self) -> None:
        """The checkout as it is now, uncommitted changes included."""
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        files = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for file in filter(None, files.split("\0")):
            if (ROOT / file).exists():
                (self._code / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, self._code / file)

    def _own_environment(self) -> Path:
        """Python with the same packages but for this one: an editable installation would bring in the code of
        the checkout.
        """
        place = self._directory / "environment"
        venv.create(place, symlinks=True)
        paths = sysconfig.get_paths(vars={"base": str(place), "platbase": str(place)})
        others = sysconfig.get_paths()["purelib"]
        Path(paths["purelib"], "mutants.pth").write_text(f"{self._code}\n{others}\n")
        python, own = Path(paths["scripts"], "python"), Path(sysconfig.get_path("scripts"))
        for script in own.iterdir():  # such as `dagster`, whose first line names its Python
            text = script.read_bytes() if script.is_file() else b""
            if text.startswith(f"#!{own}".encode()):
                other = python.with_name(script.name)
                other.write_bytes(text.replace(f"{own}/".encode(), f"{python.parent}/".encode(), 1))
                other.chmod(0o755)
        return python

    def failing(
        self, tests: list[str], seconds: float, mutant: Mutant | None = None, first: bool = True
    ) -> list[str] | None:
        """Those of `tests` that fail with `mutant`, or only the first; None where no test can begin."""
        kernels = self._kernels_without(mutant.file) if mutant else self._kernels
        chosen, failed = self._directory / "chosen.json", self._directory / "failed.json"
        chosen.write_text(json.dumps(tests))
        failed.write_text("[]")
        command = [self._python, "-m", "pytest", "-p", plugin.__name__, "-p", "no:cacheprovider"]
        command += [
            "-m",
            "not slow",
            f"--basetemp={self._directory / 'temporary'}",
            *(["-x"] if first else []),
        ]
        command += sorted({test.partition("::")[0] for test in tests})
        variables = {plugin.CHOSEN: chosen, plugin.FAILED: failed, "NUMBA_CACHE_DIR": kernels}
        with self._holding(mutant):
            status = self._ended(command, variables, seconds)
        found: list[str] = json.loads(failed.read_text())
        if status == "late":
            return [*found, "time"]
        return found if found or status in (0, 5) else None

    def is_typed(self, mutant: Mutant | None = None) -> bool:
        """Whether mypy, which is among the default tests, accepts the code."""
        with self._holding(mutant):
            return self._ended([self._python, "-m", "mypy"], {}, 900) == 0

    @contextmanager
    def _holding(self, mutant: Mutant | None) -> Iterator[None]:
        if mutant is None:
            yield
            return
        file = self._code / mutant.file
        source, made = file.read_bytes(), file.stat().st_mtime_ns
        file.write_bytes(source[: mutant.start] + mutant.text.encode() + source[mutant.stop :])
        try:
            yield
        finally:
            file.write_bytes(source)
            os.utime(file, ns=(made, made))  # by which Python and numba know what they have compiled

    def _kernels_without(self, file: str) -> Path:
        """Compiled kernels, but for those with which numba may have compiled `file`: it would not notice."""
        folder = Path(file).parent
        if folder.parts[:2] != ("pipeline", "stages"):
            return self._kernels
        remaining = self._directory / "remaining"
        shutil.rmtree(remaining, ignore_errors=True)
        prefix = f"{folder.name}_" if len(folder.parts) > 2 else ""
        shutil.copytree(
            self._kernels, remaining, ignore=lambda _, names: {n for n in names if n.startswith(prefix)}
        )
        return remaining

    def _ended(self, command: list[object], variables: dict[str, object], seconds: float) -> int | str:
        """The exit status, or "late". No process that was started lives on."""
        temporary = self._directory / "tmp"
        temporary.mkdir(exist_ok=True)
        environment = os.environ | {name: str(value) for name, value in variables.items()}
        environment |= {MARK: str(self._directory), "TMPDIR": str(temporary), "PYTHONPATH": str(self._code)}
        environment["NUMBA_OPT"] = "0"  # kernels are compiled in two thirds of the time
        arguments = [str(argument) for argument in command]
        process = subprocess.Popen(
            arguments, cwd=self._code, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return "late"
        finally:
            self._kill()
            process.wait()
            shutil.rmtree(temporary, ignore_errors=True)

    def _kill(self) -> None:
        mark = f"{MARK}={self._directory}".encode()
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:  # it has ended, or is another user's
                pass
