"""Which trainings went on from a state of another, and how many tokens each of them trained itself."""

from collections.abc import Iterator, Sequence
from typing import Any

from trainer.system.history import MERGED, RunHistory


def went_on_from(run: RunHistory) -> dict[str, str]:
    """For the page of a model: the state of another run that its training began with, if there is one."""
    trunks = run.trunks
    return {"went on from": described(trunks[-1])} if trunks else {}


def described(trunk: dict[str, Any]) -> str:
    """The state of another run, as it is among the trunks of one."""
    return f"{trunk['run']} at step {trunk['step']:,}, after {trunk['tokens']:,} tokens"


def lines(runs: Sequence[RunHistory]) -> list[str]:
    """A tree of the runs: below each one those that went on from it. At the end, the tokens that were trained
    in all, those of a shared state once. Empty if none of the runs went on from another.
    """
    runs = [run for run in runs if MERGED not in run.config.get("lineage", {})]  # a mean trains nothing
    trunks = {run.name: found[-1] for run in runs if (found := run.trunks)}
    if not trunks:
        return []
    known = {run.name for run in runs}
    tokens = {run.name: run.tokens[-1] if run.tokens else 0 for run in runs}
    own = {name: count - trunks.get(name, {"tokens": 0})["tokens"] for name, count in tokens.items()}

    def below(run: RunHistory, indent: str) -> Iterator[str]:
        trunk = trunks.get(run.name)
        begun = f"went on from {described(trunk)}, and " if trunk else ""
        yield f"{indent}{run.title}: {begun}trained {own[run.name]:,} tokens"
        for child in runs:
            if child.name != run.name and trunks.get(child.name, {}).get("run") == run.name:
                yield from below(child, indent + "    ")

    roots = [run for run in runs if trunks.get(run.name, {}).get("run") not in known]
    told = [line for run in roots for line in below(run, "")]
    saved = sum(tokens.values()) - sum(own.values())
    return [*told, f"In all {sum(own.values()):,} tokens were trained; {saved:,} more were shared."]
