"""How well the tokenizer fits each corpus, as a table and a picture."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.reports.images import as_text
from pipeline.steps.tokens.tokenizer import input_keys
from pipeline.steps.tokens.tokenizer_fit import Usage, longest_tokens, usage
from pipeline.store.versions import Store, Version
from trainer.system import figures

REPORT = "fit-1"
LONGEST = 20


def report(
    store: Store, corpora: Sequence[str], version: Version, validation_fraction: float
) -> dict[str, Any]:
    """`png`, `rows`, `unused` entries and the `longest` ones; made once for each tokenizer on the same
    held-out text. Empty when there is none.
    """
    state = [REPORT, [store.current(key).data_version for key in input_keys(corpora)], validation_fraction]
    found: dict[str, Any] = version.report(
        "fit", state, lambda: _report(version, usage(store, corpora, version, validation_fraction))
    )
    return found


def _report(version: Version, usages: Sequence[Usage]) -> dict[str, Any]:
    found = rows(usages)
    if not found:
        return {}
    return {
        "png": as_text(draw(usages)),
        "rows": found,
        "unused": unused(usages),
        "longest": longest_tokens(version, LONGEST),
    }


def rows(usages: Sequence[Usage]) -> list[dict[str, Any]]:
    """One row for each corpus that has held-out text."""
    return [
        {
            "corpus": one.corpus,
            "bytes per token": round(one.bytes_per_token, 3),
            "tokens per word": round(one.fertility, 3),
            "vocabulary used": f"{one.coverage:.1%}",
            "held-out documents": one.documents,
            "held-out bytes": one.text_bytes,
        }
        for one in usages
        if one.tokens
    ]


def unused(usages: Sequence[Usage]) -> int:
    """Entries that occur in no corpus' sample."""
    return int((np.sum([one.counts for one in usages], axis=0) == 0).sum())


def draw(usages: Sequence[Usage]) -> bytes:
    """A PNG: bytes per token of each corpus, and how much of its text the most frequent entries make."""
    shown = [one for one in usages if one.tokens]
    by_corpus = figures.colours(one.corpus for one in shown)
    colours = [by_corpus[one.corpus] for one in shown]
    drawing = figures.figure(9, 3.6)
    bars, curves = drawing.subplots(1, 2)
    drawn = bars.barh([one.corpus for one in shown], [one.bytes_per_token for one in shown], color=colours)
    bars.bar_label(drawn, fmt=" %.2f")
    bars.invert_yaxis()
    bars.set(
        title="Bytes per token, held-out text",
        xlim=(0, 1.15 * max((one.bytes_per_token for one in shown), default=1.0)),
    )
    for one, colour in zip(shown, colours, strict=True):
        share = np.cumsum(np.sort(one.counts)[::-1]) / one.tokens
        curves.plot(np.arange(1, len(share) + 1), share, color=colour, linewidth=1.6, label=one.corpus)
    curves.set(
        title="What the most frequent entries make of it",
        xlabel="entries, most frequent first",
        ylabel="share of the tokens",
    )
    curves.set(xscale="log", ylim=(0, 1))
    curves.grid(alpha=0.25)
    if shown:
        curves.legend(frameon=False, fontsize=8)
    return figures.png(drawing)
