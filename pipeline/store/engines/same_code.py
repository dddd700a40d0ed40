"""What decides the bytes a machine writes: Python, source files, libraries. Nodes compare theirs."""

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import site
import sys
import sysconfig
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pipeline.store.fingerprint import file_sha256
from pipeline.store.manifest import RECORDED_TOOLS

OWN = ("pipeline", "trainer")
LEFT_OUT = {*OWN, "sitecustomize", "usercustomize"}  # hashed whole, and those of a machine's administrator
PYTHON = "python"
# By name of a source file (`package/path.py`) or library: version ("" of a file) and sha256.
Installed = Mapping[str, tuple[str, str]]


def refusal(run: Installed, node: str) -> str | None:
    """What this machine, called `node`, has otherwise than that of the run, in a sentence."""
    here = {name: _library(name) if version else ("", _sha256(name)) for name, (version, _) in run.items()}
    others = [name for name in run if here[name] != run[name]]
    if not others:
        return None
    name, (there, _), (version, _) = others[0], run[others[0]], here[others[0]]
    versions = f" ({version or 'none'} instead of {there})" if version != there else ""
    more = f", and {len(others) - 1} more" if len(others) > 1 else ""
    return (
        f"node {node} has another {name} than the machine of the run{versions}{more}: install the same code "
        "and environment on all of them, and run again"
    )


def source_files() -> Installed:
    """The hashes of source files: of pipeline and trainer all, of other code those that this process has
    loaded from the path of modules, but for the standard library and installed packages. Takes 40 ms, and 18
    when called again.
    """
    installed = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    places = tuple(f"{one}/" for one in [*installed, *site.getsitepackages(), site.getusersitepackages()])
    importable = {str(Path(place).absolute()) for place in sys.path}  # in tasks, too, which get the same path
    found = {}
    for name, module in list(sys.modules.items()):
        path, top = getattr(module, "__file__", None) or "", name.partition(".")[0]
        if top not in LEFT_OUT and not path.startswith(places) and Path(path).is_file():
            below = path.split("/")[-1 - name.count(".") - ("/__init__." in path) :]
            if below[0].partition(".")[0] == top and path.removesuffix("/" + "/".join(below)) in importable:
                found["/".join(below)] = path
    for package in OWN:
        root = Path(str(sys.modules[package].__file__)).parent
        for directory, _, names in os.walk(root):
            if not directory.endswith("__pycache__"):
                below_root = os.path.relpath(directory, root.parent)
                found |= {f"{below_root}/{name}": f"{directory}/{name}" for name in names}
    return {name: ("", _first_sha256(path)) for name, path in sorted(found.items())}


@cache
def _first_sha256(path: str) -> str:
    """The hash of the code that this process has loaded, whatever becomes of its file."""
    return file_sha256(Path(path))


def _sha256(name: str) -> str:
    """The hash of a source file as it is on this machine now."""
    try:
        spec = importlib.util.find_spec(name.partition("/")[0].removesuffix(".py"))
    except (ImportError, ValueError):
        return ""
    places = [*(spec.submodule_search_locations or ()), spec.origin] if spec else []
    paths = [Path(place).parent / name for place in places if place]
    return next((file_sha256(path) for path in paths if path.is_file()), "")


@cache
def libraries() -> Installed:
    """Python, the packages that manifests name, and those of which this process has loaded some. 0.4 s."""
    packages = importlib.metadata.packages_distributions()
    loaded = {name.partition(".")[0] for name in sys.modules} - LEFT_OUT
    names = {name for top in loaded for name in packages.get(top, ())} | {PYTHON, *RECORDED_TOOLS[1:]}
    return {name: _library(name) for name in sorted(names)}


@cache
def _library(name: str) -> tuple[str, str]:
    """The hash is over the hashes that the installer recorded."""
    if name == PYTHON:
        return platform.python_version(), ""
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return "", ""
    lines = (found.read_text("RECORD") or "").splitlines()
    # scripts and .dist-info differ by place and installer, which may add bytecode without a hash
    kept = [line for line in lines if ",sha256=" in line and ".dist-info/" not in line and line[:3] != "../"]
    return found.version, hashlib.sha256("\n".join(sorted(kept)).encode()).hexdigest()
