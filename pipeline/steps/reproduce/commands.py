"""The shell commands that make a checkpoint again, with notes as comments."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.recipe.loading import RECIPE_VARIABLE
from pipeline.recipe.post_training import JOBS
from pipeline.steps.lineage.checkpoints import Checkpoint
from pipeline.steps.lineage.record import ROOT
from pipeline.steps.reproduce.pinned_recipe import lineages_of, section_of
from pipeline.store import keys
from pipeline.store.keys import RUNS
from trainer.system.machine import differences, processor
from trainer.system.paths import STORE_VARIABLE
from trainer.system.wording import shell_word

MEAN = "mean"  # the run with a mean of what was made again


def training_commands(
    checkpoint: Checkpoint, notes: Sequence[str], out: Path, relative_to: Path
) -> Iterator[str]:
    """The commands that train to a checkpoint in `out`. The recipe's modules are in `relative_to`."""
    commit = checkpoint.lineage["git_commit"]
    yield f"# makes {checkpoint.name}, after {checkpoint.tokens:,} tokens, again in {out}"
    if commit is None:
        yield "# the code was not in a git checkout, so its version is unknown: this uses the current code"
    elif commit.endswith("-dirty"):
        yield "# the code had uncommitted changes: expect the same bytes only if they make no difference"
    yield from notes
    own_code = list(_own_code(checkpoint.lineage["recipe"]))
    for python, version in own_code:
        yield f"# {python} must be the same code as at that time, version {version!r}"
    if checkpoint.lineage["recipe"]["training"].get("pretrained"):
        yield "# the pretrained weights must be the same as at that time"
    python = (
        checkpoint.libraries.get("python") or checkpoint.lineage["assets"][keys.TOKENIZER]["tools"]["python"]
    )
    code = shell_word(out / "code")
    yield (
        f"git -C {shell_word(ROOT)} worktree add --detach {code} {(commit or 'HEAD').removesuffix('-dirty')}"
    )
    yield f"make -C {code} setup PYTHON=python{python.rpartition('.')[0]}"
    yield f"cd {code}"
    home = shell_word(out / "home")
    yield f"mkdir -p {home} && cp dagster_home/dagster.yaml {home}"
    variables = {
        "DAGSTER_HOME": out / "home",
        STORE_VARIABLE: out / "home" / "store",
        RECIPE_VARIABLE: out / "recipe.yaml",
        **({"PYTHONPATH": relative_to} if own_code else {}),  # modules beside the recipe
    }
    yield "export " + " ".join(f"{name}={shell_word(place)}" for name, place in variables.items())
    if checkpoint.tokens < checkpoint.lineage["recipe"]["training"]["max_tokens"]:
        yield (
            f"# trains on to the end; the checkpoint is there after {checkpoint.tokens:,} tokens, when you "
            "may stop it with Ctrl-C"
        )
    tuned = lineages_of(checkpoint)[1:]
    for job in ["pretrain", *([JOBS[section_of(tuned[-1])]] if tuned else [])]:
        yield f".venv/bin/dagster job execute -m pipeline.definitions -d . -j {job}"
    if checkpoint.saved:
        yield from _machines(checkpoint.lineage["training"].get("machine"))
        yield f"cd {shell_word(ROOT)}"
        yield _comparison(checkpoint, out)
    else:
        yield "# the checkpoint was deleted since then, so there is nothing to compare with"


def mean_commands(checkpoint: Checkpoint, parents: Sequence[Checkpoint], out: Path) -> Iterator[str]:
    """The commands that make a mean of checkpoints again, when its parents have been made again."""
    again = " ".join(place_of(parent, out / parent.run.name) for parent in parents)
    shares = [merged["share"] for merged in checkpoint.merged]
    weights = f" --weights {','.join(map(str, shares))}" if len({*shares}) > 1 else ""
    yield f"# makes {checkpoint.name}, the mean of these, again in {out / MEAN}"
    yield f"cd {shell_word(ROOT)}"
    yield f"{shell_word(sys.executable)} -m trainer merge {again}{weights} --output {shell_word(out / MEAN)}"
    if checkpoint.saved:
        yield _comparison(checkpoint, out)


def _comparison(checkpoint: Checkpoint, out: Path) -> str:
    return (
        f"{shell_word(sys.executable)} -m pipeline reproduce --compare {shell_word(out)} "
        f"{place_of(checkpoint, out)}"
    )


def place_of(checkpoint: Checkpoint, out: Path) -> str:
    """Where the commands make a checkpoint again, for a shell."""
    if checkpoint.merged:
        run = shell_word(out / MEAN)
    else:
        # A tokenizer that is given instead of trained changes the name of the run, the only one there.
        name = "*" if outlived_its_corpora(lineages_of(checkpoint)[0]) else checkpoint.run.name
        run = f"{shell_word(out / 'home' / 'store' / RUNS)}/{name}"
    return f"{run}/checkpoints/{checkpoint.path.name}"


def outlived_its_corpora(lineage: Mapping[str, Any]) -> bool:
    """Whether the tokenizer was given, or trained on other versions of the corpora than the recipe's."""
    assets = lineage["assets"]
    made_from = assets[keys.TOKENIZER]["inputs"]
    return any(
        key not in assets or assets[key]["data_version"] != version for key, version in made_from.items()
    )


def _machines(then: dict[str, Any] | None) -> Iterator[str]:
    """Whether this machine gives the same bytes."""
    if then is None:
        yield "# which machine it was made on is not recorded: the bytes may differ in rounding"
        return
    if then["device"] != "cpu":
        yield "# made on a GPU, whose kernels add in no fixed order: the losses are compared"
    elif otherwise := differences(then, then | processor()):
        yield (
            f"# made on {then['processor']}, and this processor rounds differently "
            f"({'; '.join(otherwise)}): the losses are compared"
        )


def _own_code(recipe: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The user's functions and classes that a recipe names, each with its version."""
    yield from ((entry["python"], entry["version"]) for entry in recipe.get("transforms", ()))
    for rules in (recipe, *recipe["corpora"]):
        for entry in (rules.get("quality") or {}).get("filters", ()):
            if "python" in entry:
                yield entry["python"], entry["version"]
    sets = (recipe.get("decontamination") or {}).get("sets", ())
    for source in (entry["source"] for entry in (*recipe["corpora"], *sets)):
        if source["kind"] == "python":
            yield source["object"], source["version"]
