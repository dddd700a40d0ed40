"""Which trainings went on from a state of another, and how many tokens each of them trained itself."""

from collections.abc import Iterator, Sequence
from typing import Any

from trainer.system.run_history import MERGED, RunHistory


def described(trunk: dict[str, Any]) -> str:
    """The state of another run, as it is among the trunks of one."""
    return f"{trunk['run']} at step {trunk['step']:,}, after {trunk['tokens']:,} tokens"


def lines(runs: Sequence[RunHistory]) -> list[str]:
    """A tree of the runs: below each one those that went on from it. At the end, the tokens that were trained
    in all, those of a shared state once. Empty if none of the runs went on from another.
    """
    runs = [run for run in runs if MERGED not in run.config.get("lineage", {})]  # a mean trains nothing
    histories = {run.name: run.trunks for run in runs}
    trunks = {name: history[-1] for name, history in histories.items() if history}
    if not trunks:
        return []
    # A run that was overtaken may go on from its own branch: it stays the root of both.
    begun = {name for name, history in histories.items() if name in (trunk["run"] for trunk in history)}
    above = {name: trunk["run"] for name, trunk in trunks.items() if name not in begun}
    tokens = {run.name: run.tokens[-1] if run.tokens else 0 for run in runs}
    own = {run.name: tokens[run.name] - run.reused_tokens for run in runs}

    def below(run: RunHistory, indent: str) -> Iterator[str]:
        trunk = trunks.get(run.name)
        begun = f"went on from {described(trunk)}, and " if trunk else ""
        yield f"{indent}{run.title}: {begun}trained {own[run.name]:,} tokens"
        for child in runs:
            if above.get(child.name) == run.name:
                yield from below(child, indent + "    ")

    roots = [run for run in runs if above.get(run.name) not in histories]
    told = [line for run in roots for line in below(run, "")]
    saved = sum(tokens.values()) - sum(own.values())
    return [*told, f"In all {sum(own.values()):,} tokens were trained; {saved:,} more were shared."]
