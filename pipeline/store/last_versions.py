"""Which version of each key a recipe used last.

<root>/recipes/<recipe>/<key>           the name of the version's directory
<root>/recipes/<recipe>/recipe.json     the recipe's file, settings that a run changed, where the store was
<root>/recipes/<recipe>/.<fact>         what the first run found out for the later ones
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from pipeline.store import variant_names
from pipeline.store.bucket.objects import NONE_YET
from pipeline.store.errors import PipelineError
from pipeline.store.files import Files
from pipeline.store.keys import RECIPES, TOKENIZER, Key
from pipeline.store.variant_names import BASE
from pipeline.store.variant_seeds import all_variants
from trainer.system import yaml_file
from trainer.system.durable import read_json, write_atomically

DESCRIPTION = "recipe.json"
# Runs that changed settings of a recipe: the data of so many different changes stays in the store.
CHANGES_KEPT = 10
VERSION_NAME = re.compile(r"[0-9a-f]{16}")
REMEDY = "run a job of the recipe again, which writes it again; if the recipe is gone, delete the directory"


@dataclass(frozen=True)
class RecipeName:
    """A recipe. `directory` is unique for the file, the variant and the settings that a run changed. `store`:
    where the store was when the recipe was recorded there last.
    """

    directory: str
    file: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""
    store: str = field(default="", compare=False)


class LastVersions:
    """The versions one recipe used last. Several runs may write at once: the last wins for each key."""

    def __init__(self, files: Files, recipe: RecipeName):
        self.recipe = recipe
        self._files = files
        self._seen: dict[Path, str] = {}  # ETags, where the store is in a bucket

    @cached_property
    def _path(self) -> Path:
        self._seen = self._files.pull_folder(self._files.root / RECIPES)
        return self._files.root / RECIPES / self.recipe.directory

    def _write(self, path: Path, text: str) -> None:
        write_atomically(path, text)
        self._files.push(path)

    def get(self, key: Key) -> str | None:
        """The name of the version of `key`, if the recipe has used one and the record is not damaged."""
        return _name_in(self._path / key)

    def since(self, key: Key) -> int:
        """Since when the recipe uses this version, in nanoseconds since 1970."""
        return (self._path / key).stat().st_mtime_ns

    def use(self, key: Key, name: str) -> None:
        """Records that the recipe uses a version from now on."""
        if self.get(key) != name:
            if not (self._path / DESCRIPTION).exists():
                self.describe()
            if key == TOKENIZER:
                self._freeze(self._path / key, name)
            else:
                self._write(self._path / key, name + "\n")

    def _freeze(self, path: Path, name: str) -> None:
        """Records a tokenizer. When two machines make one at once, the second to end fails."""
        write_atomically(path, name + "\n")
        replaced = self._files.push(path, self._seen.get(path, NONE_YET))
        etag = self._files.pull(path)
        if not replaced and _name_in(path) != name:
            raise PipelineError(
                f"{path}: another run has made the tokenizer of this recipe meanwhile: run again, which uses "
                "that one"
            )
        self._seen[path] = etag or NONE_YET

    def of_file(self, key: Key) -> Iterator[str]:
        """The names of the versions of `key` that the same file used last, under whatever name of the recipe
        and with whatever changes; first the one of `get`.
        """
        if own := self.get(key):
            yield own
        for path in sorted(self._path.parent.glob(f"*/{DESCRIPTION}")):
            other, name = _described_in(path), _name_in(path.parent / key)
            if name and other and other.file == self.recipe.file and path.parent != self._path:
                yield name

    def describe(self) -> None:
        """Records at the beginning of each run whose versions these are, and by the file's time when it was.
        A store that may only be read can still serve a run that makes nothing.
        """
        path = self._path / DESCRIPTION
        described = {"recipe": self.recipe.file, "changes": self.recipe.changes, "store": _place(self._files)}
        described |= {"variant": self.recipe.variant} if self.recipe.variant else {}
        try:
            self._write(path, json.dumps(described, indent=1, sort_keys=True))
        except OSError:
            if not path.exists() or _described_in(path) != self.recipe:
                raise


def recorded(files: Files, changes_kept: int = CHANGES_KEPT) -> Iterable[tuple[Key, str]]:
    """Key and version name of everything that a recipe used last. Leaves out recipes whose file is gone,
    variants that their file no longer has and, of the runs with changed settings, all but the newest of each
    recipe. Where the store was moved, the file may have moved with it: such a recipe is left out only after a
    run of one of the same name in the new place.

    Raises PipelineError when a record is damaged, or when what it is a record of is missing.
    """
    files.pull_folder(files.root / RECIPES)
    for path in damaged(files.root):
        how = "damaged" if path.exists() else "missing"
        raise PipelineError(f"{path} is {how}, so it cannot be told which versions a recipe uses: {REMEDY}")
    return users(files, changes_kept)


def users(files: Files, changes_kept: int = CHANGES_KEPT) -> dict[tuple[Key, str], RecipeName]:
    """Maps each key and version name to a recipe that used it last, preferably one without changes."""
    found: dict[tuple[Key, str], RecipeName] = {}
    for recipe in _in_effect(files, changes_kept):
        directory = files.root / RECIPES / recipe.directory
        for path in _records(directory):
            if name := _name_in(path):
                key = Key.from_path(path.relative_to(directory).as_posix())
                found.setdefault((key, name), recipe)
    return found


def naming(root: Path, place: str) -> Iterator[Path]:
    """The records of the version at a place in the store, or of all versions of a key."""
    key, _, name = place.rpartition("/")
    yield from (root / RECIPES).glob(f"*/{place}")
    yield from (record for record in (root / RECIPES).glob(f"*/{key}") if _name_in(record) == name)


def damaged(root: Path) -> Iterator[Path]:
    """The records that cannot be read, or that are missing."""
    for directory in sorted(path for path in (root / RECIPES).glob("*") if path.is_dir()):
        records, description = [*_records(directory)], directory / DESCRIPTION
        if (records or description.exists()) and _described_in(description) is None:
            yield description
        yield from (record for record in records if _name_in(record) is None)


def _records(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.name != DESCRIPTION and not path.name.startswith("."):
            yield path


def _in_effect(files: Files, changes_kept: int) -> Iterator[RecipeName]:
    changed: dict[str, list[tuple[int, RecipeName]]] = {}
    paths = {path: _described_in(path) for path in sorted((files.root / RECIPES).glob(f"*/{DESCRIPTION}"))}
    place = _place(files)
    here = [_called(one) for one in paths.values() if one and one.store == place]
    for path, recipe in paths.items():
        if recipe is None:
            continue
        moved = recipe.store not in ("", place) and _called(recipe) not in here
        # where machines share a store, a recipe may be on another of them
        if _is_gone(recipe) and not (moved or files.shared):
            continue
        if recipe.changes:
            changed.setdefault(recipe.file, []).append((-path.stat().st_mtime_ns, recipe))
        else:
            yield recipe
    for recipes in changed.values():
        newest = sorted(recipes, key=lambda recipe: recipe[0])
        yield from (recipe for _, recipe in newest[:changes_kept])


def _place(files: Files) -> str:
    return str(files.root.resolve())


def _called(recipe: RecipeName) -> tuple[str, Mapping[str, Any]]:
    """What stays the same when a recipe is moved."""
    return recipe.directory.rpartition("-")[0], recipe.changes


def _is_gone(recipe: RecipeName) -> bool:
    """Whether the file of a recipe no longer exists, or no longer has this variant or section."""
    file = Path(recipe.file)
    if not file.is_absolute():  # it ships with the program
        return False
    try:
        if not file.exists() or not recipe.variant:
            return not file.exists()
        settings = yaml_file.parse(file.read_text(encoding="utf-8"))
        variants = all_variants(settings.get("variants") or {}, settings.get("seeds", 1))
        sections = settings.get("post_training") or {}
        variant, section = variant_names.split(recipe.variant, sections)
        return variant not in {BASE, *variants} or section not in {"", *sections}
    except (OSError, ValueError, yaml.YAMLError, AttributeError, TypeError):
        return False  # somebody is editing it, or only somebody else may read it


def _name_in(path: Path) -> str | None:
    """The name of a version that a record holds; None if there is no record or it is damaged."""
    name = path.read_text(encoding="utf-8", errors="replace").strip() if path.is_file() else ""
    return name if VERSION_NAME.fullmatch(name) else None


def _described_in(path: Path) -> RecipeName | None:
    """The recipe whose records lie beside its description; None if that is missing or damaged."""
    try:
        described = read_json(path)
        variant = described.get("variant", "")
        store = described.get("store", "")
        return RecipeName(path.parent.name, described["recipe"], described["changes"], variant, store)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
