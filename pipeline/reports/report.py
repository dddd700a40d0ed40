"""One page on a recipe and its model, to be sent to others: its text, what was removed and why, how good the
model is, and what laws ask of training data.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from string import Template

import pyarrow.compute as pc

from pipeline.recipe.recipe import Recipe
from pipeline.reports import dedup, regulators, rejections
from pipeline.reports.evidence import judged
from pipeline.reports.html import Html, element, joined, picture, quote, table
from pipeline.reports.text_shares import text_shares
from pipeline.steps.corpus.quality import reasons
from pipeline.steps.lineage.record import described_commit
from pipeline.steps.model import benchmark, evaluate, training_plots
from pipeline.steps.model import funnel as stages
from pipeline.steps.model.model_card import bits_per_byte
from pipeline.steps.training import plan
from pipeline.store import keys
from pipeline.store.manifest import breakdown
from pipeline.store.store import Store, StoreError
from trainer.config import ModelConfig
from trainer.system.history import RunHistory

PAGE = Path(__file__).with_suffix(".html")
CHARACTERS = 300  # of a document
OF_EACH_RULE, SAMPLES = 2, 2
STAGES = stages.DOCUMENTS + stages.BYTES + stages.TOKENS
NOT_YET = joined(["Not made yet: run ", element("code", "dagster job execute -j pretrain"), "."])


def report(store: Store, recipe: Recipe) -> str:
    """The page. A section says so where the store does not have what it shows."""
    found: dict[str, Html] = {}
    for section in (head, curves, funnel, removed, mixture, scores, lineage, laws):
        try:
            found[section.__name__] = section(store, recipe.corpus_names)
        except StoreError:
            found[section.__name__] = element("p", NOT_YET)
    name = f"{recipe.name}, variant {recipe.variant}" if recipe.variant else recipe.name
    page = Template(PAGE.read_text(encoding="utf-8"))
    return page.substitute(found, name=joined([name]), today=date.today().isoformat())


def head(store: Store, _: Sequence[str]) -> Html:
    """The model in a few numbers."""
    one, found = plan.last_checkpoint(store), evaluate.read(store.current(keys.EVALUATION))
    model = ModelConfig.model_validate(one.lineage["recipe"]["training"]["model"])
    parameters = model.parameters(one.lineage["assets"][keys.TOKENIZER]["counts"]["entries"])
    fit = f"{found['bits_per_byte']:.3f} bits per byte, xz -9 {found['compressors']['xz -9']:.3f}"
    rows = [
        ["Model", f"{parameters:,} parameters, trained on {one.tokens:,} tokens"],
        ["Held-out text", f"{found['held_out_bytes']:,} bytes: {fit}"],
        ["Trained", store.current(keys.PRETRAINED_MODEL).manifest["finished"]],
    ]
    return table(("Checkpoint", f"{one.name} of run {one.run.name}"), rows)


def curves(store: Store, _: Sequence[str]) -> Html:
    """How training went, and how the model writes."""
    run, evaluation = RunHistory(plan.last_checkpoint(store).run), store.current(keys.EVALUATION)
    loss = picture(run.directory.loss_curve.read_bytes(), "Training and validation loss")
    plots = picture(
        training_plots.draw(run), "Validation loss by corpus, learning rate, speed, gradient norm"
    )
    samples = evaluate.read(evaluation)["samples"][:SAMPLES]
    return joined([loss, plots, *(quote(f"Goes on from: {one['prompt']}", one["text"]) for one in samples)])


def funnel(store: Store, corpora: Sequence[str]) -> Html:
    """What was left of each corpus after each stage."""
    found = stages.funnel(corpora, lambda key: store.current(key).counts)
    rows = [[stage, *(row[stage] for row in found.values())] for stage in STAGES]
    drawing = picture(stages.draw(found), "Documents and bytes after each stage")
    return joined([drawing, table(("", *found), rows)])


def removed(store: Store, corpora: Sequence[str]) -> Html:
    """What quality rejected, what was replaced, and duplicates, with examples."""
    verdicts = [(name, one) for name in corpora for one in reasons(store.current(keys.quality(name)))]
    text = {name: text_shares(store, name, keys.quality(name)) for name in corpora}
    rows = [
        [
            name,
            one.rule or "kept",
            one.documents,
            f"{one.share:.1%}",
            f"{text[name].get(one.rule or '', 0):.1%}",
        ]
        for name, one in verdicts
    ]
    rejected = [
        quote(f"{rule}, {place[0]}: {evidence}", text)
        for rule in dict.fromkeys(one.rule for _, one in verdicts if one.rule)
        for place, rows in rejections.sample(
            rejections.verdicts(store, corpora), pc.field("rule") == rule, OF_EACH_RULE, 0
        )
        for _, evidence, text in judged(store, place, rows, CHARACTERS)
    ]
    counts = {name: store.current(keys.scrubbed(name)).counts for name in corpora}
    replaced = [
        [name, regulators.listed(breakdown(n, "spans")), n["spans_in_url"], n["spans_in_metadata"]]
        for name, n in counts.items()
    ]
    decisions = store.current(keys.DEDUP)
    pairs = [
        quote(f"{what}, Jaccard similarity {one['jaccard']:.3f}", one[what])
        for one in dedup.near_pairs(store, corpora)
        for what in ("removed", "kept")
    ]
    return joined(
        [
            element("h3", "Documents that a quality rule rejected"),
            table(("corpus", "rule", "documents", "share", "share of text"), rows),
            *rejected,
            element("h3", "Personal data and secrets that were replaced"),
            table(("corpus", "in text", "in addresses", "in metadata"), replaced),
            element("h3", "Duplicates of other documents"),
            element("p", f"Removed: {regulators.listed(breakdown(decisions.counts, 'removed'))}."),
            element("div", *pairs, kind="pairs"),
        ]
    )


def mixture(store: Store, _: Sequence[str]) -> Html:
    """How much of each corpus the model was trained on, and how often."""
    one = plan.last_checkpoint(store)
    rows = [
        [name, tokens, f"{tokens / one.tokens:.1%}", f"{one.epochs(name):.2f}"]
        for name, tokens in one.corpus_tokens.items()
    ]
    return table(("corpus", "tokens", "share", "epochs"), rows)


def scores(store: Store, _: Sequence[str]) -> Html:
    """Held-out text; benchmarks and evaluation texts with their intervals."""
    evaluation = evaluate.read(store.current(keys.EVALUATION))
    held_out = table(("held-out text", "bits per byte", "perplexity"), bits_per_byte(evaluation, "{}"))
    if not (found := evaluation.get("benchmarks")):
        return joined([held_out, element("p", "The recipe names no benchmark and no evaluation text.")])
    rows = [row | _interval(found[row["benchmark"]]["bits_per_byte"]) for row in benchmark.table(found)]
    said = f"{benchmark.EXPLAINED} *: compared with chance. {benchmark.verdict(found)[1]}"
    return joined([held_out, table(list(rows[0]), [list(row.values()) for row in rows]), element("p", said)])


def _interval(bits: Mapping[str, float] | None) -> dict[str, str]:
    return {"bits per byte": "{value:.3f} ({low:.3f}-{high:.3f})".format(**bits)} if bits else {}


def lineage(store: Store, _: Sequence[str]) -> Html:
    """Where each corpus comes from, the code, and how to make all of it again."""
    one = plan.last_checkpoint(store)
    corpora = one.lineage["recipe"]["corpora"]
    rows = [[corpus["name"], *regulators.source(one.lineage, corpus)] for corpus in corpora]
    libraries = ", ".join(f"{name} {version}" for name, version in sorted(one.libraries.items()))
    code = f"Code: {described_commit(one.lineage['git_commit'])}. Libraries: {libraries}."
    again = element(
        "p", "The command that makes it again: ", element("code", f"python -m pipeline reproduce {one.name}")
    )
    return joined(
        [table(("corpus", "source", "revision", "licence", "data version"), rows), element("p", code), again]
    )


def laws(store: Store, _: Sequence[str]) -> Html:
    """What laws ask for."""
    return regulators.fields(plan.last_checkpoint(store))
