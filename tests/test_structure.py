"""Dependencies point one way: assets -> flows -> stages and store; the trainer stands alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Whoever is named on the left must not import what starts with a name on the right.
FORBIDDEN = {
    "trainer": ("pipeline", "dagster"),
    "pipeline/stages": (
        "dagster",
        "pipeline.assets",
        "pipeline.flows",
        "pipeline.store.versions",
        "pipeline.sources",
        "pipeline.store.engine",
        "torch",
    ),
    "pipeline/sources": (
        "dagster",
        "pipeline.assets",
        "pipeline.flows",
        "pipeline.store.versions",
        "pipeline.store.engine",
        "torch",
    ),
    "pipeline/flows": ("dagster", "pipeline.assets", "torch"),
    "pipeline/store/versions.py": ("dagster", "pipeline.assets", "pipeline.flows", "pipeline.stages"),
    "pipeline/store/engine.py": ("dagster", "pipeline.assets", "pipeline.flows", "pipeline.store.versions"),
}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def is_below(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


@pytest.mark.parametrize("where", FORBIDDEN)
def test_imports_do_not_go_against_the_grain(where: str) -> None:
    place = ROOT / where
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    assert files
    wrong = {
        (path.relative_to(ROOT).as_posix(), module)
        for path in files
        for module in imports(path)
        if any(is_below(module, package) for package in FORBIDDEN[where])
    }
    assert not wrong


def test_loading_the_graph_imports_no_heavy_library() -> None:
    heavy = {
        "torch",
        "transformers",
        "datasets",
        "huggingface_hub",
        "matplotlib",
        "numba",
        "gigatoken",
        "scipy",
        "pandas",
        "fsspec",
    }
    code = f"import sys, pipeline.definitions; print(sorted({heavy} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ended.stdout.strip() == "[]"
