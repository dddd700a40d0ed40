"""Which version of each key a recipe used last.

<root>/recipes/<recipe>/<key>           the name of the version's directory
<root>/recipes/<recipe>/recipe.json     the recipe's file, and the settings that a run changed
<root>/recipes/<recipe>/.<fact>         what the first run found out for the later ones
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.system.durable import write_atomically

RECIPES = "recipes"
DESCRIPTION = "recipe.json"
# Of a recipe with runs that changed its settings, so many of the changes keep their data in the store.
CHANGES_KEPT = 10


@dataclass(frozen=True)
class RecipeName:
    """A recipe as the store knows it. `directory` is unique for the file and the settings that a run
    changed.
    """

    directory: str
    file: str
    changes: Mapping[str, Any] = field(default_factory=dict)


class LastVersions:
    """The versions that one recipe used last. Several runs may write at once: for each key the last one
    wins.
    """

    def __init__(self, root: Path, recipe: RecipeName):
        self.recipe = recipe
        self._path = root / RECIPES / recipe.directory

    def get(self, key: str) -> str | None:
        """The name of the version of `key`, if the recipe has used one."""
        path = self._path / key
        return path.read_text(encoding="utf-8").strip() if path.is_file() else None

    def since(self, key: str) -> int:
        """Since when the recipe uses this version, in nanoseconds since 1970."""
        return (self._path / key).stat().st_mtime_ns

    def use(self, key: str, name: str) -> None:
        """Records that the recipe uses a version from now on."""
        if self.get(key) != name:
            if not (self._path / DESCRIPTION).exists():
                self.describe()
            write_atomically(self._path / key, name + "\n")

    def fact(self, name: str) -> str | None:
        """What was recorded under this name for all runs of the recipe, if anything was."""
        path = self._path / f".{name}"
        return path.read_text(encoding="utf-8").strip() if path.is_file() else None

    def record_fact(self, name: str, text: str) -> None:
        write_atomically(self._path / f".{name}", text + "\n")

    def of_file(self, key: str) -> Iterator[str]:
        """The names of the versions of `key` that the same file used last, under whatever name of the recipe
        and with whatever changes; first the one of `get`.
        """
        if own := self.get(key):
            yield own
        for path in sorted(self._path.parent.glob(f"*/{DESCRIPTION}")):
            same = json.loads(path.read_text(encoding="utf-8"))["recipe"] == self.recipe.file
            if same and path.parent != self._path and (path.parent / key).is_file():
                yield (path.parent / key).read_text(encoding="utf-8").strip()

    def describe(self) -> None:
        """Records at the beginning of each run whose versions these are."""
        path = self._path / DESCRIPTION
        described = {"recipe": self.recipe.file, "changes": self.recipe.changes}
        write_atomically(path, json.dumps(described, indent=1, sort_keys=True))


def recorded(root: Path, changes_kept: int = CHANGES_KEPT) -> Iterator[tuple[str, str]]:
    """Key and version name of everything that a recipe used last. Leaves out recipes whose file is gone and,
    of the runs with changed settings, all but the newest of each recipe.
    """
    for directory in _in_effect(root, changes_kept):
        yield from _used(directory)


def users(root: Path) -> dict[tuple[str, str], RecipeName]:
    """Of each key and version name that a recipe used last, one such recipe, preferably without changes."""
    found: dict[tuple[str, str], RecipeName] = {}
    for directory in _in_effect(root, CHANGES_KEPT):
        described = json.loads((directory / DESCRIPTION).read_text(encoding="utf-8"))
        recipe = RecipeName(directory.name, described["recipe"], described["changes"])
        found = dict.fromkeys(_used(directory), recipe) | found
    return found


def _used(directory: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.name != DESCRIPTION and not path.name.startswith("."):
            yield path.relative_to(directory).as_posix(), path.read_text(encoding="utf-8").strip()


def _in_effect(root: Path, changes_kept: int) -> Iterator[Path]:
    changed: dict[str, list[Path]] = {}
    for path in sorted((root / RECIPES).glob(f"*/{DESCRIPTION}")):
        described = json.loads(path.read_text(encoding="utf-8"))
        if Path(described["recipe"]).is_absolute() and not Path(described["recipe"]).exists():
            continue
        if described["changes"]:
            changed.setdefault(described["recipe"], []).append(path)
        else:
            yield path.parent
    for paths in changed.values():
        newest = sorted(paths, key=lambda path: -path.stat().st_mtime_ns)
        yield from (path.parent for path in newest[:changes_kept])
