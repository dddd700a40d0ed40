"""How well the tokenizer fits each corpus: a table and a chart."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.reports.images import as_text
from pipeline.steps.tokens.tokenizer import input_keys
from pipeline.steps.tokens.tokenizer_fit import Usage, longest_tokens, usage
from pipeline.store.manifest import Version
from pipeline.store.store import Store
from trainer.system import figures

REPORT = "fit-2"
LONGEST = 20


def report(
    store: Store, corpora: Sequence[str], version: Version, validation_fraction: float
) -> dict[str, Any]:
    """`png`, `rows`, the number of `unused` entries and the `longest` ones; empty without held-out text.

    Made once for each tokenizer on the same text.
    """
    state = [REPORT, [store.current(key).data_version for key in input_keys(corpora)], validation_fraction]
    made: dict[str, Any] = version.report(
        "fit", state, lambda: _report(version, usage(store, corpora, version, validation_fraction))
    )
    return made


def _report(version: Version, usages: Sequence[Usage]) -> dict[str, Any]:
    shown = [fit for fit in usages if fit.tokens]
    if not shown:
        return {}
    return {
        "png": as_text(draw(shown)),
        "rows": [
            {
                "corpus": fit.corpus,
                "bytes per token": round(fit.bytes_per_token, 3),
                "tokens per word": round(fit.fertility, 3),
                "vocabulary used": f"{fit.coverage:.1%}",
                "held-out documents": fit.documents,
                "held-out bytes": fit.text_bytes,
            }
            for fit in shown
        ],
        "unused": int((np.sum([fit.counts for fit in shown], axis=0) == 0).sum()),
        "longest": longest_tokens(version, LONGEST),
    }


def draw(shown: Sequence[Usage]) -> bytes:
    """A PNG: the share of each corpus's text in the most frequent entries."""
    colours = figures.colours(fit.corpus for fit in shown)
    drawing = figures.figure(6, 3.6)
    curves = drawing.add_subplot()
    for fit in shown:
        share = np.cumsum(np.sort(fit.counts)[::-1]) / fit.tokens
        colour = colours[fit.corpus]
        curves.plot(np.arange(1, len(share) + 1), share, color=colour, linewidth=1.6, label=fit.corpus)
    curves.set(
        title="What the most frequent entries make of it",
        xlabel="entries, most frequent first",
        ylabel="share of the tokens",
    )
    curves.set(xscale="log", ylim=(0, 1))
    curves.grid(alpha=0.25)
    curves.legend(frameon=False, fontsize=8)
    return figures.png(drawing)
