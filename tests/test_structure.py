"""Every import goes down: docs/architecture.md shows the floors, this file holds the code to them."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOP = {
    *(
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "Makefile",
        "README.md",
        "pyproject.toml",
        "workspace.yaml",
    ),
    *("dagster_home", "docs", "examples", "performance", "pipeline", "tests", "trainer"),
}
# From the top floor down. A room imports from lower floors only, never from a neighbor on its own floor.
FLOORS = {
    "pipeline": (
        {"__main__", "component", "dagster_command", "definitions"},
        {"assets", "cli"},
        {"reports", "start"},
        {"dagster_internals", "steps"},
        {"recipe"},
        {"sources", "stages"},
        {"plugins"},
        {"store"},
    ),
    "pipeline.steps": (
        {"checks", "recipe_versions"},
        {"export", "mixture_search"},
        {"model"},
        {"forget", "reproduce", "trace", "verification"},
        {"training"},
        {"lineage"},
        {"stages"},
        {"compile_kernels"},
        {"plain_files"},
        {"dedup", "tokens"},
        {"corpus"},
        {"compile_ahead", "stage"},
    ),
    "trainer": (
        {"__main__"},
        {"tools"},
        {"run"},
        {"checkpoint"},
        {"hf", "optim"},
        {"parallel"},
        {"data", "model"},
        {"config"},
        {"system"},
    ),
}
# What the pipeline knows of the trainer. `trainer.data` is there for lineage, which asks the trainer's own
# order of samples which documents a checkpoint has seen.
TRAINER_FOR_THE_PIPELINE = ("trainer.config", "trainer.data", "trainer.system")
# Whoever is named on the left must not import what starts with a name on the right.
FORBIDDEN = {
    "trainer": ("pipeline", "dagster"),
    "pipeline/store": ("dagster", "torch"),
    "pipeline/stages": ("dagster", "torch", "trainer"),
    "pipeline/plugins": ("dagster", "torch", "trainer"),
    # the user's modules import this one, and load as fast as it does
    "pipeline/plugins/__init__.py": ("pipeline", "numpy", "pyarrow", "pydantic"),
    "pipeline/sources": ("dagster", "torch", "trainer"),
    "pipeline/recipe": ("dagster", "torch"),
    "pipeline/steps": ("dagster", "torch"),
    "pipeline/reports": ("torch",),
}
# A kernel is given batches and parameters; it neither finds nor keeps anything but its own machine code.
STORE_FOR_STAGES = tuple(f"pipeline.store.{name}" for name in ("params", "errors", "fingerprint", "kernels"))

OURS = ("pipeline", "trainer", "tests")
MOST_LINES = 400  # of a file


def modules(package: str) -> dict[str, Path]:
    """Each module of a package by its dotted name."""
    found = {}
    for path in sorted((ROOT / package.replace(".", "/")).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def import_nodes(path: Path) -> list[ast.Import | ast.ImportFrom]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(path: Path) -> set[str]:
    found = set()
    for node in import_nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def is_below(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def room(module: str, package: str) -> str:
    """The folder of the package, or the file beside the folders, that a module belongs to."""
    return module.removeprefix(package).removeprefix(".").partition(".")[0]


def test_nothing_new_stands_at_the_top_of_the_tree() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout
    # without git, as in an archive of the sources, what lies there
    names = {name.partition("/")[0] for name in tracked.splitlines()} or {
        path.name for path in ROOT.iterdir()
    }
    assert {name for name in names if not name.startswith(".")} - {"__pycache__", "build"} == TOP


@pytest.mark.parametrize("package", FLOORS)
def test_every_room_has_a_floor(package: str) -> None:
    rooms = {room(module, package) for module in modules(package)} - {""}
    assert rooms == set().union(*FLOORS[package])


@pytest.mark.parametrize("package", FLOORS)
def test_every_import_goes_to_a_lower_floor(package: str) -> None:
    floor = {name: number for number, names in enumerate(FLOORS[package]) for name in names}
    backwards = {
        (module, imported)
        for module, path in modules(package).items()
        for imported in imports(path)
        if is_below(imported, package) and room(imported, package) != room(module, package)
        if module != package and floor[room(imported, package)] <= floor[room(module, package)]
    }
    assert not backwards


@pytest.mark.parametrize("package", FLOORS)
def test_no_import_goes_in_a_circle(package: str) -> None:
    paths = modules(package)

    def named(imported: str) -> str | None:
        return next((name for name in (imported, imported.rpartition(".")[0]) if name in paths), None)

    below = {
        module: {name for name in map(named, imports(path)) if name and name != module}
        for module, path in paths.items()
    }
    while leaves := {module for module, others in below.items() if not others & below.keys()}:
        below = {module: others for module, others in below.items() if module not in leaves}
    assert not below


def test_the_pipeline_knows_only_the_trainers_settings_data_and_system() -> None:
    wrong = {
        (module, imported)
        for module, path in modules("pipeline").items()
        for imported in imports(path)
        if is_below(imported, "trainer")
        and not any(is_below(imported, allowed) for allowed in TRAINER_FOR_THE_PIPELINE)
    }
    assert not wrong


def test_kernels_know_nothing_of_versions_or_parts() -> None:
    wrong = {
        (module, imported)
        for module, path in modules("pipeline").items()
        if room(module, "pipeline") in ("stages", "plugins")
        for imported in imports(path)
        if is_below(imported, "pipeline.store")
        and not any(is_below(imported, allowed) for allowed in STORE_FOR_STAGES)
    }
    assert not wrong


@pytest.mark.parametrize("where", FORBIDDEN)
def test_what_stands_alone_imports_nothing_of_what_it_must_not_know(where: str) -> None:
    wrong = {
        (path.relative_to(ROOT).as_posix(), module)
        for path in ([ROOT / where] if where.endswith(".py") else sorted((ROOT / where).rglob("*.py")))
        for module in imports(path)
        if any(is_below(module, package) for package in FORBIDDEN[where])
    }
    assert not wrong


@pytest.mark.parametrize("package", OURS)
def test_a_module_of_ours_has_one_name_everywhere(package: str) -> None:
    renamed = {
        f"{module}: {alias.name} as {alias.asname}"
        for module, path in modules(package).items()
        for node in import_nodes(path)
        for alias in node.names
        if alias.asname and _first_folder(node, alias) in OURS
    }
    assert not renamed


def _first_folder(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    named = node.module if isinstance(node, ast.ImportFrom) else alias.name
    return (named or "").partition(".")[0]


@pytest.mark.parametrize("package", ["pipeline", "trainer"])
def test_no_file_is_longer_than_its_one_idea(package: str) -> None:
    lines = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in modules(package).values()
    }
    assert {file for file, count in lines.items() if count > MOST_LINES} == set()


def test_benchmarks_use_only_what_modules_have() -> None:
    """Nobody runs a benchmark for months, and mypy does not read them."""
    known = modules("pipeline") | modules("trainer")
    wrong = set()
    for path in sorted((ROOT / "performance").rglob("*.py")):
        used, names = set(), {}
        for node in import_nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module in known:
                names |= {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
                used |= {(node.module, alias.name) for alias in node.names}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used.add((names.get(node.value.id, ""), node.attr))
        wrong |= {
            f"{path.relative_to(ROOT)}: {module}.{name}"
            for module, name in used
            if module in known and f"{module}.{name}" not in known and name not in _names_in(known[module])
        }
    assert not wrong


@cache
def _names_in(path: Path) -> set[str]:
    """The names that a module defines or imports."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    defined = {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assigned = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    imported = {alias.asname or alias.name for node in import_nodes(path) for alias in node.names}
    return defined | assigned | imported


def test_only_the_ray_engine_and_the_nodes_of_a_training_know_the_cluster() -> None:
    for_a_cluster = {
        module
        for module, path in modules("pipeline").items()
        if any(is_below(imported, "ray") for imported in imports(path))
    }
    engine = {f"pipeline.store.engines.{name}" for name in ("ray", "ray_cluster", "ray_worker")}
    assert for_a_cluster == {*engine, "pipeline.steps.training.ray_nodes"}


def test_only_the_store_joins_paths_below_a_version() -> None:
    joined = re.compile(r"\.path / .*\.path\b|\bversion\.path /")
    wrong = {
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for module, path in modules("pipeline").items()
        if not is_below(module, "pipeline.store")
        for line in path.read_text(encoding="utf-8").splitlines()
        if joined.search(line)
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
        "ray",
    }
    code = f"import sys, pipeline.definitions; print(sorted({heavy} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ended.stdout.strip() == "[]"
