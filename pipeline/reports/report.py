"""One page on a recipe and its model, to be sent to others: its text, what was removed and why, how good the
model is, and what laws ask of training data. The page is report.html; here is what it shows.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from jinja2 import Environment, FileSystemLoader

from pipeline.reports import dedup, regulators, rejections
from pipeline.reports.entries import with_reasons
from pipeline.reports.images import as_text
from pipeline.reports.tables import NUMBER
from pipeline.steps.corpus.quality import reasons
from pipeline.steps.lineage.checkpoints import Checkpoint
from pipeline.steps.lineage.record import described_commit
from pipeline.steps.model import benchmark, evaluate, training_plots
from pipeline.steps.model.funnel import BYTES, DOCUMENTS, TOKENS, draw, left_of
from pipeline.steps.model.model_card import bits_per_byte
from pipeline.steps.training import plan
from pipeline.store import keys
from pipeline.store.manifest import breakdown
from pipeline.store.store import Store, StoreError
from trainer.system.run_history import RunHistory

NOT_MADE = "Not made"  # begins a section without facts
EMPTY_SECTION = re.compile(rf"<h2>([^<]+)</h2>\s*<p>{NOT_MADE}")
CHARACTERS = 300  # of a document
OF_EACH_RULE = 2
NOT_TEXT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")  # HTML may not contain them


@dataclass(frozen=True)
class Page:
    """The page as HTML. `missing` has the titles of the sections whose facts the store does not have."""

    html: str
    missing: Sequence[str]


def report(
    store: Store, title: str, corpora: Sequence[str], job: str = "", of: Checkpoint | None = None
) -> Page:
    """The page, which loads nothing and on which all data is escaped. A section says so where the store
    lacks what it shows, and that the `job` makes it. `of` is the checkpoint that the page is about; without
    it, that of the store's recipe.
    """
    found: dict[str, Any] = {}
    for facts in (trained, scored):
        with suppress(StoreError):
            found[facts.__name__] = facts(store, of or plan.last_checkpoint(store))
    for counted in (funnel, removed):
        with suppress(StoreError):
            found[counted.__name__] = counted(store, corpora)
    pages = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, finalize=_shown)
    pages.tests["figure"] = lambda cell: bool(NUMBER.fullmatch(str(_shown(cell))))
    pages.globals["NOT_MADE"] = NOT_MADE
    page = pages.get_template("report.html").render(title=title, today=date.today(), job=job, **found)
    return Page(NOT_TEXT.sub("\ufffd", page), EMPTY_SECTION.findall(page))


def _shown(value: object) -> object:
    return f"{value:,}" if type(value) is int else value


def trained(_: Store, checkpoint: Checkpoint) -> dict[str, Any]:
    """The model, where its text comes from and how much of it was trained on, the code, the laws."""
    corpora = checkpoint.lineage["recipe"]["corpora"]
    return {
        "checkpoint": checkpoint,
        "parameters": checkpoint.parameters,
        "mixture": [
            (name, tokens, f"{tokens / checkpoint.tokens:.1%}", f"{checkpoint.epochs(name):.2f}")
            for name, tokens in checkpoint.corpus_tokens.items()
        ],
        "sources": [(corpus["name"], *regulators.source(checkpoint.lineage, corpus)) for corpus in corpora],
        "code": described_commit(checkpoint.lineage["git_commit"]),
        "laws": regulators.laws(checkpoint),
    }


def scored(store: Store, checkpoint: Checkpoint) -> dict[str, Any]:
    """How training went, how the model writes, and its scores, with intervals."""
    run, evaluation = RunHistory(checkpoint.run), evaluate.read(store.current(keys.EVALUATION))
    benchmarks, compressors = evaluation.get("benchmarks") or {}, evaluation["compressors"]
    rows = benchmark.table(benchmarks)
    curve = run.directory.loss_curve  # which a run has after 20 seconds, or at its end
    return {
        "finished": store.current(keys.PRETRAINED_MODEL).manifest["finished"],
        "evaluation": evaluation,
        "loss": as_text(curve.read_bytes()) if curve.exists() else "",
        "plots": as_text(training_plots.draw(run)),
        "xz": "".join(f", xz -9 {bits:.3f}" for name, bits in compressors.items() if name == "xz -9"),
        "held_out": bits_per_byte(evaluation, "{}"),
        "benchmarks": [[*row.values()] for row in rows],
        "columns": [*rows[0]] if rows else [],
        "explained": benchmark.EXPLAINED,
        "verdict": benchmark.verdict(benchmarks)[1],
    }


def funnel(store: Store, corpora: Sequence[str]) -> dict[str, Any]:
    """What was left of each corpus after each stage."""
    found = left_of(corpora, lambda key: store.current(key).counts)
    names = DOCUMENTS + BYTES + TOKENS
    rows = [(stage, *(row[stage] for row in found.values())) for stage in names]
    return {"drawing": as_text(draw(found)), "corpora": ["", *found], "rows": rows}


def removed(store: Store, corpora: Sequence[str]) -> dict[str, Any]:
    """What quality rejected, what was replaced, and duplicates, with examples."""
    verdicts = [(name, reason) for name in corpora for reason in reasons(store.current(keys.quality(name)))]
    counts = {name: store.current(keys.scrubbed(name)).counts for name in corpora}
    return {
        "verdicts": [
            (name, one.rule or "kept", one.documents, f"{one.share:.1%}", f"{one.share_of_bytes:.1%}")
            for name, one in verdicts
        ],
        "rejected": [
            (f"{rule}, {place[0]}: {evidence}", text)
            for rule in dict.fromkeys(one.rule for _, one in verdicts if one.rule)
            for place, rows in rejections.Draw(OF_EACH_RULE).rows(
                rejections.verdicts(store, corpora), pc.field("rule") == rule
            )
            for _, evidence, text in with_reasons(store, place, rows, CHARACTERS)
        ],
        "replaced": [
            (name, regulators.listed(breakdown(n, "spans")), n["spans_in_url"], n["spans_in_metadata"])
            for name, n in counts.items()
        ],
        "duplicates": regulators.listed(breakdown(store.current(keys.DEDUP).counts, "removed")),
        "pairs": dedup.near_pairs(store, corpora),
    }
