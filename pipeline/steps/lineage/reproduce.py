"""A checkpoint -> what makes it again: its recipe with all pinned that can be, hashes, and commands."""

import json
import math
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from pipeline.plugins.settings import OWN_MODEL
from pipeline.recipe.loading import RECIPE_VARIABLE
from pipeline.recipe.post_training import JOBS
from pipeline.sources import SourceConfig
from pipeline.sources.listing import is_url
from pipeline.steps.corpus.ingest import Raw
from pipeline.steps.lineage.checkpoints import Checkpoint, LineageError, checkpoint
from pipeline.steps.lineage.record import ROOT
from pipeline.store import keys, variant_names
from pipeline.store.atomic import output_directory
from pipeline.store.errors import PipelineError
from pipeline.store.fingerprint import file_sha256
from pipeline.store.forgotten import forgotten, requests
from pipeline.store.keys import FORGOTTEN, RUNS
from pipeline.store.store import Store, StoreError
from pipeline.store.training_runs import UnknownRunError
from trainer.config import TrainingConfig
from trainer.config.model_files import TOKENIZER, TOKENIZER_CONFIG
from trainer.system.durable import read_json
from trainer.system.history import SHOWN, STORE_VARIABLE, differing, flat
from trainer.system.machine import differences, processor
from trainer.system.paths import at_home

COMPARED = ("hf/model.safetensors", "optimizer.safetensors")
SUMS, LOSSES, SETTINGS = "SHA256SUMS", "LOSSES.json", "SETTINGS.json"
# Settings of a recipe that name files, by paths that may start at the recipe.
PATHS = ("path", "paths", "language_model", "fasttext")
MEAN = "mean"  # the run with a mean of what was made again
# The largest difference of losses in nats that rounding may make. It is a guess for other processors: on one
# and two threads of one, 204,800 tokens of the default recipe ended 5e-7 apart.
TOLERANCE = 0.05
TOKENIZER_FILES = (TOKENIZER, TOKENIZER_CONFIG)


def write(store: Store, checkpoint: Checkpoint, *, out: Path, relative_to: Path) -> list[str]:
    """Fills the directory `out` and returns the commands, notes among them as comments.

    Raises OutputError when there is something at `out`, and PipelineError for a mean of checkpoints of which
    nothing is known any more. Relative paths are resolved against `relative_to`, because a lineage does not
    hold its recipe's directory.
    """
    with output_directory(out) as directory:
        return list(_fill(store, [checkpoint], directory, out=out.absolute(), relative_to=relative_to))


def _fill(
    store: Store, wanted: Sequence[Checkpoint], directory: Path, *, out: Path, relative_to: Path
) -> Iterator[str]:
    """Fills `directory`, later `out`, for checkpoints of one run, the newest last. Yields the commands."""
    newest = wanted[-1]
    if newest.saved:
        _write_sums(newest, directory)
    if newest.merged:
        yield from _mean(store, newest, directory, out=out, relative_to=relative_to)
        return
    lineages, recipe = _lineages(newest), pinned(wanted, relative_to)
    notes = [
        note
        for lineage in lineages
        for corpus in _corpora(recipe, lineage)
        for note in _source_notes(store, lineage, corpus, out)
    ]
    if _outlived_its_corpora(lineages[0]):
        made = store.root / lineages[0]["assets"][keys.TOKENIZER]["path"]
        (directory / "tokenizer").mkdir()
        for name in TOKENIZER_FILES:
            shutil.copy(store.files.fetch(made / name), directory / "tokenizer" / name)
        recipe["tokenizer"] = {"from": "tokenizer"}
    if requests(store.files):  # what this store forgot is not read into another
        kept = shutil.ignore_patterns("certificate.*", ".*")
        shutil.copytree(store.root / FORGOTTEN, directory / "home" / "store" / FORGOTTEN, ignore=kept)
    (directory / "recipe.yaml").write_text(
        yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True), encoding="utf-8"
    )
    yield from _commands(newest, notes, out, relative_to)


def _write_sums(checkpoint: Checkpoint, directory: Path) -> None:
    files = read_json(checkpoint.path / "manifest.json")["files"]
    sums = [f"{files[name]['sha256']}  {name}\n" for name in COMPARED if name in files]
    (directory / SUMS).write_text("".join(sums), encoding="utf-8")
    losses = json.dumps(_losses(checkpoint.path), indent=1)
    (directory / LOSSES).write_text(losses + "\n", encoding="utf-8")
    settings = json.dumps(_settings(checkpoint.lineage), indent=1)
    (directory / SETTINGS).write_text(settings + "\n", encoding="utf-8")


def _settings(lineage: dict[str, Any]) -> dict[str, str]:
    """What decides a checkpoint, besides its data and the machine, and is the same when it is made again."""
    decisive = TrainingConfig.model_validate(lineage["training"]["config"]).decisive
    own = {name: value for name, value in decisive.items() if name not in ("pretrained", "averaging")}
    return flat({"tokens": lineage["training"]["tokens"], "training": own})


def _mean(
    store: Store, checkpoint: Checkpoint, directory: Path, *, out: Path, relative_to: Path
) -> Iterator[str]:
    """As `_fill`: the checkpoints of each run in a folder of its own, and the mean of what they give."""
    parents = [_parent(store, checkpoint, merged["checkpoint"]) for merged in checkpoint.merged]
    for run in dict.fromkeys(parent.run for parent in parents):
        (folder := directory / run.name).mkdir()
        wanted = sorted((parent for parent in parents if parent.run == run), key=lambda parent: parent.step)
        yield from _fill(store, wanted, folder, out=out / run.name, relative_to=relative_to)
    again = [_made_again(parent, out / parent.run.name) for parent in parents]
    shares = [merged["share"] for merged in checkpoint.merged]
    weights = f" --weights {','.join(map(str, shares))}" if len({*shares}) > 1 else ""
    yield f"# makes {checkpoint.name}, the mean of these, again in {out / MEAN}"
    yield f"cd {shlex.quote(str(ROOT))}"
    yield (
        f"{shlex.quote(sys.executable)} -m trainer merge {' '.join(again)}{weights} "
        f"--output {shlex.quote(str(out / MEAN))}"
    )
    if checkpoint.saved:
        yield _comparison(checkpoint, out)


def _parent(store: Store, mean: Checkpoint, name: str) -> Checkpoint:
    """A checkpoint that a mean was made of. Raises PipelineError if nothing is known of its run."""
    try:
        return checkpoint(store, name)
    except (LineageError, UnknownRunError):
        parents = " ".join(merged["checkpoint"] for merged in mean.merged)
        raise PipelineError(
            f"{mean.name} is the mean of other checkpoints, and the run of {name} is not in this store: "
            f"reproduce each where its run is, and merge what comes out as in `python -m pipeline merge "
            f"{parents}`"
        ) from None


def pinned(wanted: Sequence[Checkpoint], relative_to: Path) -> dict[str, Any]:
    """The recipe at the corpora's revisions, which saves and keeps the steps of the checkpoints."""
    one = wanted[-1]
    base, *tuned = _lineages(one)
    recipe: dict[str, Any] = yaml.safe_load(yaml.safe_dump(base["recipe"]))
    recipe.pop("post_training", None)
    if tuned:
        recipe["post_training"] = {_section(lineage): lineage["post_training"] for lineage in tuned}
    recipe = _with_whole_paths(recipe, relative_to)
    for lineage in (base, *tuned):
        for corpus in _corpora(recipe, lineage):
            read = lineage["assets"][keys.raw(corpus["name"])]["inputs"]
            if "revision" in read:
                corpus["source"]["revision"] = read["revision"]
    machine = one.lineage["training"].get("machine", {})
    if machine.get("device") == "cpu":  # elsewhere threads decide no sum
        recipe["training"]["threads"] = machine["threads"]
    saves = recipe["post_training"][_section(tuned[-1])]["training"] if tuned else recipe["training"]
    end = one.lineage["training"]["config"]["max_tokens"]  # which is saved in any case
    every = math.gcd(*(each.tokens for each in wanted if each.tokens < end)) or one.tokens
    saves["checkpoint"] = {"every_tokens": every, "keep_every_tokens": every}
    half_life = (saves.get("averaging") or {}).get("half_life_tokens")
    saves["averaging"] = half_life and {"half_life_tokens": half_life}  # the checkpoint is no mean of others
    return recipe


def _lineages(checkpoint: Checkpoint) -> list[dict[str, Any]]:
    """The lineage of the pretraining, and of each section of `post_training` up to the checkpoint."""
    found = [checkpoint.lineage]
    while "post_training" in found[0]:
        found.insert(0, found[0]["pretrained"]["lineage"])
    return found


def _section(lineage: dict[str, Any]) -> str:
    """The section of `post_training` that a lineage is of."""
    return variant_names.split(lineage["variant"], JOBS)[1]


def _corpora(recipe: dict[str, Any], lineage: dict[str, Any]) -> list[dict[str, Any]]:
    """The corpora of a recipe, or of the section of it that a lineage is of."""
    section = recipe["post_training"][_section(lineage)] if "post_training" in lineage else recipe
    return section["corpora"]


def _with_whole_paths(settings: Any, directory: Path, name: str = "") -> Any:
    """The settings of a recipe, those below `name`, with whole paths in place of those that start at its
    `directory`.
    """
    if isinstance(settings, list):
        return [_with_whole_paths(one, directory, name) for one in settings]
    if isinstance(settings, dict):  # what code of one's own does with its `params` is not known here
        return {
            key: value if key == "params" else _with_whole_paths(value, directory, key)
            for key, value in settings.items()
        }
    if name not in PATHS or not isinstance(settings, str) or is_url(settings) or settings == OWN_MODEL:
        return settings
    return str(directory / at_home(settings))


def _source_notes(store: Store, lineage: dict[str, Any], corpus: dict[str, Any], out: Path) -> Iterator[str]:
    """Notes on whether the source of a corpus holds what it did then. If it does not, and the store still has
    the documents of then, the corpus reads those.
    """
    name, source = corpus["name"], corpus["source"]
    raw = lineage["assets"][keys.raw(name)]
    if any(path.endswith("?...") for path in source.get("paths", ())):
        yield (
            f"# corpus {name} was read from URLs with a query, which is not recorded: complete them in "
            f"{out / 'recipe.yaml'}"
        )
        return
    if raw["inputs"].get(FORGOTTEN) != forgotten(store.files, name).inputs.get(FORGOTTEN):
        yield (
            f"# corpus {name}: documents were removed since then (`forget`), and are not read again: the "
            "bytes will differ"
        )
        return
    if "revision" in raw["inputs"]:
        return
    try:
        read = TypeAdapter(SourceConfig).validate_python(source)
        now = Raw(name, read, raw["params"]["part_bytes"]).observe(store)
    except PipelineError as error:
        state = f"cannot be looked at now ({error})"
    else:
        if now == raw["inputs"]["source"]:
            yield f"# corpus {name}: its source holds the same as then"
            return
        state = "has changed since"
    stored = store.root / raw["path"]
    with suppress(StoreError):  # brings it here, if the store is in a bucket
        store.open(keys.raw(name), stored.name).directory()
    if (stored / "manifest.json").is_file():
        corpus["source"] = {"kind": "stored", "path": str(stored)}
        yield f"# corpus {name}: its source {state}; the documents of then are read from {stored}"
    else:
        yield (
            f"# corpus {name}: its source {state}, and the documents of then are not stored any more: the "
            "bytes will differ unless you bring the source back"
        )


def _outlived_its_corpora(lineage: dict[str, Any]) -> bool:
    """Whether the tokenizer was given, or trained on other versions of the corpora than the recipe's."""
    assets = lineage["assets"]
    made_from = assets[keys.TOKENIZER]["inputs"]
    return any(
        key not in assets or assets[key]["data_version"] != version for key, version in made_from.items()
    )


def _commands(checkpoint: Checkpoint, notes: list[str], out: Path, relative_to: Path) -> Iterator[str]:
    commit = checkpoint.lineage["git_commit"]
    yield f"# makes {checkpoint.name}, after {checkpoint.tokens:,} tokens, again in {out}"
    if commit is None:
        yield "# the code was not in a git checkout, so its version is unknown: this uses the code of now"
    elif commit.endswith("-dirty"):
        yield "# the code had uncommitted changes: expect the same bytes only if they make no difference"
    yield from notes
    own_code = list(_own_code(checkpoint.lineage["recipe"]))
    for python, version in own_code:
        yield f"# {python} must be the same code as then, version {version!r}"
    if checkpoint.lineage["recipe"]["training"].get("pretrained"):
        yield "# the pretrained weights must be the same as then"
    python = (
        checkpoint.libraries.get("python") or checkpoint.lineage["assets"][keys.TOKENIZER]["tools"]["python"]
    )
    code = shlex.quote(str(out / "code"))
    yield (
        f"git -C {shlex.quote(str(ROOT))} worktree add --detach {code} "
        f"{(commit or 'HEAD').removesuffix('-dirty')}"
    )
    yield f"make -C {code} setup PYTHON=python{python.rpartition('.')[0]}"
    yield f"cd {code}"
    home = shlex.quote(str(out / "home"))
    yield f"mkdir -p {home} && cp dagster_home/dagster.yaml {home}"
    variables = {
        "DAGSTER_HOME": out / "home",
        STORE_VARIABLE: out / "home" / "store",
        RECIPE_VARIABLE: out / "recipe.yaml",
        **({"PYTHONPATH": relative_to} if own_code else {}),  # modules beside the recipe
    }
    yield "export " + " ".join(f"{name}={shlex.quote(str(place))}" for name, place in variables.items())
    if checkpoint.tokens < checkpoint.lineage["recipe"]["training"]["max_tokens"]:
        yield (
            f"# trains on to the end; the checkpoint is there after {checkpoint.tokens:,} tokens, when you "
            "may stop it with Ctrl-C"
        )
    tuned = _lineages(checkpoint)[1:]
    for job in ["pretrain", *([JOBS[_section(tuned[-1])]] if tuned else [])]:
        yield f".venv/bin/dagster job execute -m pipeline.definitions -d . -j {job}"
    if checkpoint.saved:
        yield from _machines(checkpoint.lineage["training"].get("machine"))
        yield f"cd {shlex.quote(str(ROOT))}"
        yield _comparison(checkpoint, out)
    else:
        yield "# the checkpoint was deleted since then, so there is nothing to compare with"


def _comparison(checkpoint: Checkpoint, out: Path) -> str:
    return (
        f"{shlex.quote(sys.executable)} -m pipeline reproduce --compare {shlex.quote(str(out))} "
        f"{_made_again(checkpoint, out)}"
    )


def _made_again(checkpoint: Checkpoint, out: Path) -> str:
    """Where the commands make a checkpoint again, for a shell."""
    if checkpoint.merged:
        run = shlex.quote(str(out / MEAN))
    else:
        # A tokenizer that is given instead of trained changes the name of the run, the only one there.
        name = "*" if _outlived_its_corpora(_lineages(checkpoint)[0]) else checkpoint.run.name
        run = f"{shlex.quote(str(out / 'home' / 'store' / RUNS))}/{name}"
    return f"{run}/checkpoints/{checkpoint.path.name}"


def _machines(then: dict[str, Any] | None) -> Iterator[str]:
    """Whether this machine gives the same bytes."""
    if then is None:
        yield "# which machine it was made on is not recorded: the bytes may differ in rounding"
        return
    if then["device"] != "cpu":
        yield "# made on a GPU, whose kernels add in no fixed order: the losses are compared"
    elif otherwise := differences(then, then | processor()):
        yield (
            f"# made on {then['processor']}, and this processor rounds otherwise "
            f"({'; '.join(otherwise)}): the losses are compared"
        )


def compare(out: Path, again: Path) -> str:
    """Whether a checkpoint that was made `again` is the one of which `out` holds the hashes: by the bytes, or
    else by its losses. Raises PipelineError when it is not.
    """
    try:
        sums = dict(line.split()[::-1] for line in (out / SUMS).read_text(encoding="utf-8").splitlines())
        then, now = read_json(out / LOSSES), _losses(again)
        same = [file_sha256(again / name) == sha256 for name, sha256 in sums.items()]
        made = wanted = _settings(read_json(again / "lineage.json"))
        if (out / SETTINGS).exists():
            wanted = read_json(out / SETTINGS)
    except (OSError, ValueError, KeyError) as error:
        raise PipelineError(
            f"cannot compare {again} with what {out} holds: {error}: name the directory that `reproduce` "
            "made and a checkpoint"
        ) from error
    if same and all(same):
        return f"the same bytes: {', '.join(sums)}"
    if other := differing([wanted, made]):
        told = ", ".join(f"{name} {wanted.get(name)} then, {made.get(name)} now" for name in other[:SHOWN])
        raise PipelineError(f"another training: {told}")
    both = [name for name in then if name in now]
    told = ", ".join(f"{name} {then[name]:.4f} then, {now[name]:.4f} now" for name in both)
    if then.keys() == now.keys() and all(abs(then[name] - now[name]) <= TOLERANCE for name in both):
        return f"the same up to rounding, not to the byte: {told}"
    raise PipelineError(f"another model: {told or 'it has no losses to compare'}")


def _losses(checkpoint: Path) -> dict[str, float]:
    """The losses in nats per token: that of the last step and, where it was evaluated, that of the held-out
    text.
    """
    state = read_json(checkpoint / "state.json")
    found = {"loss": state["loss"], "held-out loss": (state["evaluation"] or {}).get("loss")}
    return {name: loss for name, loss in found.items() if loss is not None}


def _own_code(recipe: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The user's functions and classes that a recipe names, each with its version."""
    yield from ((entry["python"], entry["version"]) for entry in recipe.get("transforms", ()))
    for rules in (recipe, *recipe["corpora"]):
        for entry in (rules.get("quality") or {}).get("filters", ()):
            if "python" in entry:
                yield entry["python"], entry["version"]
    sets = (recipe.get("decontamination") or {}).get("sets", ())
    for source in (one["source"] for one in (*recipe["corpora"], *sets)):
        if source["kind"] == "python":
            yield source["object"], source["version"]
