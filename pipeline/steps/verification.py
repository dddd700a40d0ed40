"""Looks for damage in everything that is stored, and says what was made from it and what mends it."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from pipeline.recipe.post_training import JOBS
from pipeline.steps.stages import asset_of, kind_of
from pipeline.store import keys, last_versions, variant_names
from pipeline.store.cleanup.gc import published
from pipeline.store.cleanup.old_runs import intact, whole_lineage
from pipeline.store.damage import Damage, Look, inspect, remedy
from pipeline.store.errors import PipelineError
from pipeline.store.files import MANIFEST
from pipeline.store.keys import RUNS, Key
from pipeline.store.last_versions import RecipeName
from pipeline.store.manifest import Version
from pipeline.store.store import Store, StoreError
from pipeline.store.training_runs import checkpoint_name
from pipeline.store.variant_names import BASE
from trainer.system import yaml_file
from trainer.system.durable import read_json
from trainer.system.errors import reason
from trainer.system.wording import counted, shell_word

CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class Damaged:
    """A damaged version or checkpoint. `place`: its path in the store; `made_from_it`: paths of versions, and
    names of checkpoints; `mend`: a command, or what to do first.
    """

    place: str
    damage: Sequence[Damage]
    made_from_it: Sequence[str]
    mend: str


@dataclass
class Verification:
    """What was looked at, and what is damaged."""

    looked_at: int = 0
    files: int = 0
    read: int = 0
    damaged: list[Damaged] = field(default_factory=list)

    def __str__(self) -> str:
        if self.damaged:
            return f"{len(self.damaged):,} of {self.looked_at:,} versions and checkpoints are damaged"
        return (
            f"nothing is damaged in {self.looked_at:,} versions and checkpoints: manifests, the sizes of "
            f"{counted(self.files, 'files')}, and the hashes of {self.read:,} that were read now"
        )


def stored(store: Store) -> list[Path]:
    """The directories of all versions and checkpoints. Raises PipelineError where no store is."""
    store.files.versions()
    if not store.root.is_dir():
        raise PipelineError(f"{store.root} is not a directory, so it holds no store: set GROUNDWORK_STORE")
    return [*published(store.files), *sorted((store.root / RUNS).glob("[!.]*/checkpoints/step-*"))]


def longest_unread(store: Store, minutes: float) -> Iterator[Path]:
    """The directories of `stored`, the longest unread ones first, until so many minutes are over."""
    end = time.monotonic() + 60 * minutes
    for path in sorted(stored(store), key=store.hashes.last_read):
        if time.monotonic() > end:
            return
        yield path


def verify(store: Store, places: Iterable[Path], deep: bool = False) -> Verification:
    """Looks at the manifest and the size of every file in `places`, and for versions that recipes used last
    and that are gone; hashes files that were never hashed in this place or have changed since, and with
    `deep` all of them.

    What is found is remembered: the next run that uses a damaged version makes it again.
    """
    result = Verification()
    sound: list[Version] = []
    damaged: dict[Path, tuple[Version | None, Sequence[Damage]]] = {}
    runs: set[Path] = set()
    for path in places:
        result.looked_at += 1
        if path.parent.name == "checkpoints":
            runs.add(path.parents[1])
        try:
            version = _opened(store, path)
        except (StoreError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if path.exists():  # not removed meanwhile
                why = reason(error.__cause__ or error if isinstance(error, StoreError) else error)
                damaged[path] = None, [Damage(path / MANIFEST, f"is missing or damaged ({why})")]
            continue
        look = Look.ALL if deep else Look.UNREAD
        seen = inspect(version, store.hashes, look)
        if seen.damage and version.key == CHECKPOINT:
            # Training may have taken its optimizer's state off the manifest since that was read.
            with suppress(OSError, ValueError):
                seen = inspect(_opened(store, path), store.hashes, look)
        result.files, result.read = result.files + seen.files, result.read + seen.read
        sound.append(version)
        if seen.damage and path.exists():
            damaged[path] = version, seen.damage
    users = last_versions.users(store.files)
    for key, name in users:
        path = store.root / key / name
        if (key.is_data or key == keys.TOKENIZER) and not store.files.is_version(path):
            damaged[path] = None, [Damage(path, "is gone, although a recipe uses it")]
    if damaged:
        mending = _Mending(store, sound, users)
        result.damaged = [mending.of(path, *entry) for path, entry in damaged.items()]
    result.damaged += [broken for run in sorted(runs) if (broken := _broken_config(store, run))]
    for path in last_versions.damaged(store.root):
        what = Damage(path, "is not a record of what a recipe used last")
        place = path.relative_to(store.root).as_posix()
        result.damaged.append(Damaged(place, [what], (), last_versions.REMEDY))
    return result


def _broken_config(store: Store, run: Path) -> Damaged | None:
    """The damage of a run whose settings cannot be read. No hash covers these, since a run may be continued
    with others. An earlier program may have had other settings, so only their lineage is looked at.
    """
    path = run / "config.yaml"
    if not path.exists():
        return None
    try:
        settings = yaml_file.parse(path.read_text(encoding="utf-8"))
        if isinstance(settings, dict):
            whole_lineage(path, settings)
            return None
        problem = "holds no settings"
    except (OSError, ValueError, AttributeError, TypeError, yaml.YAMLError) as error:
        problem = f"cannot be read ({reason(error)})"
    place = run.relative_to(store.root).as_posix()
    made = list(map(checkpoint_name, sorted(run.glob("checkpoints/step-*"))))
    mend = "put config.yaml back from a copy; the next run of its recipe and settings writes it again, too"
    return Damaged(place, [Damage(path, problem)], made, mend)


def _opened(store: Store, path: Path) -> Version:
    inside = path.relative_to(store.root)
    if inside.parts[0] != RUNS:
        return store.open(store.key_of(path.parent), path.name)
    listed = read_json(path / MANIFEST)["files"]
    files = {
        name: {"path": name, "bytes": entry["size"], "sha256": entry["sha256"]}
        for name, entry in listed.items()
    }
    part = {"name": CHECKPOINT, "fingerprint": "", "counts": {}, "files": files}
    return Version(Key(CHECKPOINT), path, {"parts": [part], "inputs": {}, "data_version": ""}, store.files)


@dataclass(frozen=True)
class _Mending:
    """Knows what was made from what, and which recipe uses it."""

    store: Store
    versions: Sequence[Version]
    users: Mapping[tuple[Key, str], RecipeName]

    def of(self, path: Path, version: Version | None, damage: Sequence[Damage]) -> Damaged:
        place = path.relative_to(self.store.root)
        checkpoints = [name for name, lineage in self._checkpoints() if place.as_posix() in lineage]
        made = sorted(self._made_from(version)) if version else []
        command = self._command(path, self.store.key_of(path.parent), checkpoints)
        return Damaged(place.as_posix(), damage, [*made, *checkpoints], command)

    def _made_from(self, version: Version) -> set[str]:
        """The places of the versions that have this one among their inputs, and of what was made of those."""
        places: set[Path] = set()
        todo = [version]
        while todo:
            source = todo.pop()
            names = {source.key: source.data_version}
            if source.key == keys.DEDUP:
                names |= {Key(keys.DEDUP, name=part.name): part.data_version for part in source.parts}
            made = [made for made in self.versions if names.items() & made.manifest["inputs"].items()]
            todo += [version for version in made if version.path not in places]
            places |= {version.path for version in made}
        return {path.relative_to(self.store.root).as_posix() for path in places}

    def _checkpoints(self) -> Iterator[tuple[str, set[str]]]:
        """The name of each checkpoint, and the paths of the versions in its lineage."""
        for saved in (version for version in self.versions if version.key == CHECKPOINT):
            try:
                text = (saved.path / "lineage.json").read_text(encoding="utf-8")
                assets = json.loads(text)["assets"].values()
                paths = {asset["path"] for asset in assets}
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                continue
            yield checkpoint_name(saved.path), paths

    def _command(self, path: Path, key: Key, checkpoints: Sequence[str]) -> str:
        removal = self.store.files.removal(path)
        if key.stage == RUNS:
            return (
                f"{removal}; if it is the last one of its run, `{self._trains(path)}` "
                "then trains on from the one before"
            )
        if key == keys.DEDUP_EVIDENCE:
            return f"{removal}; the next change of a corpus verifies its clusters again"
        if key.stage == keys.IMPORTED:
            return f"{removal}, then `python -m pipeline benchmark --import` again"
        if key.stage in (keys.CHECKPOINT_EVALUATION, keys.BENCHMARKS):
            tags = json.dumps({"dagster/partition": key.name})
            return f"dagster job execute -j evaluate --tags {shell_word(tags)}"
        recipe = self.users.get((key, path.name))
        if recipe is not None:
            return remedy(key) if key == keys.TOKENIZER else _run(recipe, key)
        if checkpoints:
            return f"python -m pipeline reproduce {checkpoints[-1]} -o OUT, since no recipe uses it any more"
        if key.is_data:
            return "python -m pipeline gc --delete, since nothing uses it any more"
        return f"{removal}, since no recipe uses it any more"

    def _trains(self, checkpoint: Path) -> str:
        """The command that continues the run of a checkpoint."""
        run = checkpoint.parents[1]
        if recipe := self.users.get((keys.PRETRAINED_MODEL, run.name)):
            return _run(recipe, keys.PRETRAINED_MODEL)
        with suppress(PipelineError, OSError), intact(run / "config.yaml") as config:  # it has not ended
            return f"dagster job execute -j {JOBS.get(config['training']['objective'], 'pretrain')}"
        return "dagster job execute -j pretrain"


def _run(recipe: RecipeName, key: Key) -> str:
    """The command that makes a version of `key` again."""
    kind = kind_of(asset_of(key))
    job = kind.page.job if kind and kind.page else "pretrain"
    variant, section = variant_names.split(recipe.variant, JOBS)
    command = f"GROUNDWORK_RECIPE={shell_word(recipe.file)} dagster job execute -j {JOBS.get(section, job)}"
    if variant not in ("", BASE):
        tags = json.dumps({"dagster/partition": variant})
        command = f"{command} --tags {shell_word(tags)}"
    return f"{command}, with the overrides {json.dumps(recipe.changes)}" if recipe.changes else command
