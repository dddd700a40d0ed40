"""How many documents and bytes of each corpus remain after each stage, from its source to tokens."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.steps.lineage.checkpoints import TrainedModel
from pipeline.store import keys
from pipeline.store.keys import Key
from trainer.system import figures

DOCUMENTS = ("documents", "kept by quality", "kept by dedup")
BYTES = ("bytes read", "bytes scrubbed", "bytes tokenized")
TOKENS = ("train tokens", "validation tokens")
Counts = Callable[[Key], Mapping[str, int]]  # of an asset


def of_lineage(lineage: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """The funnel of the versions that a checkpoint was made from, not of those in use now."""
    return left_of(TrainedModel(lineage).corpora, lambda key: lineage["assets"][key]["counts"])


def left_of(corpora: Sequence[str], counts: Counts) -> dict[str, dict[str, int]]:
    """Each corpus's documents and bytes after each stage and its tokens, as in DOCUMENTS, BYTES, TOKENS."""
    table = {}
    for name in corpora:
        raw, scrubbed, quality = (counts(stage(name)) for stage in (keys.raw, keys.scrubbed, keys.quality))
        shards = counts(keys.token_shards(name))
        left, size = (
            sum(shards[f"{split}_{what}"] for split in keys.SPLITS) for what in ("documents", "text_bytes")
        )
        documents = (raw["documents"], quality["kept"], left)
        text = (raw["text_bytes"], scrubbed["text_bytes"], size)
        tokens = (shards["train_tokens"], shards["validation_tokens"])
        table[name] = dict(zip(DOCUMENTS + BYTES + TOKENS, documents + text + tokens, strict=True))
    return table


def draw(table: Mapping[str, Mapping[str, int]]) -> bytes:
    """A PNG: documents and bytes after each stage, one bar each, stacked by corpus."""
    drawing = figures.figure(9, 3.4)
    tokens = sum(row[name] for row in table.values() for name in TOKENS)
    documents, text = drawing.subplots(1, 2)
    _stacked(documents, table, DOCUMENTS, 1, "documents")
    _stacked(text, table, BYTES, 1e6, f"MB of text, {tokens:,} tokens in the end")
    # below both, since a corner of the axes may hold the number of a bar
    drawing.legend(
        *documents.get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside lower center", ncols=6
    )
    return figures.png(drawing)


def _stacked(
    axes: Any, table: Mapping[str, Mapping[str, int]], stages: Sequence[str], unit: float, title: str
) -> None:
    ends = [0.0] * len(stages)
    colors = figures.colors(table)
    for corpus, row in table.items():
        widths = [row[stage] / unit for stage in stages]
        axes.barh(stages, widths, left=ends, color=colors[corpus], label=corpus)
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    for stage, end in enumerate(ends):
        share = end / ends[0] if ends[0] else 0.0
        number = f"{end:,.0f}" if unit == 1 else f"{end:,.2f}"
        axes.text(end, stage, f" {number}  {share:.0%}", va="center", fontsize=8)
    axes.invert_yaxis()
    axes.set(title=title, xlim=(0, 1.3 * max(ends[0], 1e-9)))
