"""The model card: what the model is, is made from, and how good it is, with the hub's front matter."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.sources.hub.catalog import licenses
from pipeline.steps.lineage.checkpoints import TrainedModel
from pipeline.steps.model import benchmark, front_matter, tuned_model_text
from pipeline.steps.model.funnel import BYTES, DOCUMENTS, TOKENS, of_lineage
from pipeline.steps.model.markdown import fenced, table
from pipeline.steps.training.effort import Effort
from pipeline.store import keys
from pipeline.store.fingerprint import HASH_SHOWN
from trainer.config import ModelConfig, TrainingConfig
from trainer.system.wording import shell_word

FUNNEL = (*DOCUMENTS, *BYTES, *TOKENS)
CONTINUES = "It continues text; it was not taught to\nanswer questions or to follow instructions."
ANSWERS = "It was taught by\nconversations to answer, and its facts are no better than those of its size."
SOURCES = {
    "python_docs": "docstrings of Python and its packages",
    "python_questions": "questions about the functions of Python's packages",
    "files": "files",
    "warc": "web archives",
    "benchmark": "texts of a benchmark",
    "stored": "raw documents of an earlier run",
    "python": "a source of the author's own",
}


def model_card(lineage: dict[str, Any], evaluation: Mapping[str, Any], effort: Effort | None = None) -> str:
    """The README.md of an export. All of it is from the checkpoint's lineage, never from what is in use."""
    recipe, training, base = lineage["recipe"], lineage["recipe"]["training"], base_name(lineage)
    model = ModelConfig.model_validate(training["model"])
    tokens = f"{lineage['training']['tokens']:,} {'more tokens' if base else 'tokens'}"
    begun, this = (f", begun from `{base}`", "this ") if base else ("", "")
    prompt = next(iter(training["samples"]["prompts"]), "")
    if tuning := evaluation.get("tuning"):
        does, usage, written = ANSWERS, tuned_model_text.usage(tuning), tuned_model_text.section(tuning)
    else:
        does, usage, written = CONTINUES, _usage(prompt), _samples(evaluation)
    opened = _opened_here(prompt, bool(tuning)) if model.attention_sinks else _opened_by_transformers(usage)
    measured = "held-out loss and these benchmarks" if evaluation.get("benchmarks") else "held-out loss"
    name = " ".join([recipe["name"], *([lineage["variant"]] if "variant" in lineage else [])])
    library = "groundwork" if model.attention_sinks else "transformers"
    return f"""---
{front_matter.of_model(lineage, evaluation, name, library)}
---

# {name}

A decoder-only language model of {TrainedModel(lineage).parameters:,} parameters{begun}, trained on
{tokens} with a context of {training["seq_len"]:,}. {does}{_base_paragraph(lineage)}

{opened}

{_data(lineage)}

## Training

{_settings(lineage, effort)}

Seen in {this}training:

{_seen(lineage)}

![Training and validation loss](loss.png)

![Validation loss by corpus, learning rate, throughput, gradient norm](training.png)

## Evaluation

All {evaluation["held_out_bytes"]:,} bytes of held-out text, none of it seen in {this}training, in
bits per byte and, for each token, as perplexity (less is better):

{table(("", "bits per byte", "perplexity"), bits_per_byte(evaluation))}

{_benchmarks(evaluation.get("benchmarks"))}{written}

## Limits

The model repeats what its text says, mistakes and prejudices included, and makes up what it does not know.
The rules that look for personal data miss some. Nothing but {measured} was measured.

{_origin(lineage)}"""


def _data(lineage: dict[str, Any]) -> str:
    """The section on the text: where it comes from, and what was left out of it and replaced in it."""
    recipe = lineage["recipe"]
    sources = "\n".join(
        f"- {corpus['name']}: {', license '.join(_source(lineage, corpus))}" for corpus in recipe["corpora"]
    )
    funnel = of_lineage(lineage).items()
    transforms = ", ".join(entry["name"] for entry in recipe.get("transforms", ()))
    apart = f", except the author's own transforms ({transforms}), which ran first" if transforms else ""
    alone = ", ".join(corpus["name"] for corpus in recipe["corpora"] if not corpus.get("dedup", True))
    not_compared = f"\nDocuments of {alone} were not compared with others." if alone else ""
    return f"""## Data

{sources}

{table(("corpus", *FUNNEL), ([name, *(f"{row[column]:,}" for column in FUNNEL)] for name, row in funnel))}

![Documents and bytes after each stage](funnel.png)

E-mail addresses, telephone and card numbers, IP addresses, keys and other personal data were replaced by
placeholders before anything else saw the text{apart}. Documents of low quality and duplicates, exact and near
(Jaccard similarity of {recipe["dedup"]["threshold"]:g} or more), were left out.{not_compared}"""


def _origin(lineage: dict[str, Any]) -> str:
    """The section on the code that made the model, and on its lineage."""
    commit, used = lineage["git_commit"], lineage["training"]["libraries"]
    code = f"commit `{commit}`" if commit else "which was not in a git checkout"
    libraries = ", ".join(f"{name} {version}" for name, version in sorted(used.items()))
    also = f", and those of `{base_name(lineage)}`" if TrainedModel(lineage).base else ""
    return f"""## Where it comes from

Made with Groundwork, {code}, with {libraries}.
`lineage.json` holds the recipe, and the version, parameters and counts of every stage of every corpus{also}.
"""


def base_name(lineage: Mapping[str, Any]) -> str | None:
    """The name of the model that training started from: on the hub, else in its own lineage, else that of its
    directory. Never a path, which would show where the author keeps files. None: training from scratch.
    """
    source, known = lineage["recipe"]["training"].get("pretrained"), TrainedModel(lineage).base
    if source is None and known is None:
        return None
    if source and source["repo"]:
        return str(source["repo"])
    return str(known.lineage["recipe"]["name"]) if known else Path(source["path"]).name


def _base_paragraph(lineage: Mapping[str, Any]) -> str:
    """The weights that training started from, and those that they came from in turn; empty from scratch."""
    sentences: list[str] = []
    model = TrainedModel(lineage)
    for one in (model, *model.bases):
        if not (base := base_name(one.lineage)):
            break
        weights, known = one.lineage.get("pretrained", {}), one.base
        revision, content = weights.get("revision"), weights.get("sha256", "")[:HASH_SHOWN]
        which = f" at revision {revision}" if revision else f" (sha256 {content}...)" if content else ""
        if known:
            corpora = ", ".join(name for name, seen in known.corpus_tokens.items() if seen)
            how = f"by {known.lora} " if known.lora else ""
            before = f"which had been trained {how}on {known.tokens:,} tokens of {corpora}"
        else:
            before = "whose own training is not recorded here"
        sentences.append(f"Training{' of that' if sentences else ''} started from `{base}`{which}, {before}.")
    return "\n\n" + "\n".join(sentences) if sentences else ""


def _source(lineage: Mapping[str, Any], corpus: Mapping[str, Any]) -> list[str]:
    """Where a corpus comes from, and its licenses if they are known."""
    revision = lineage["assets"][keys.raw(corpus["name"])]["inputs"].get("revision")
    return [source(revision, corpus), *filter(None, [", ".join(licenses(corpus))])]


def source(revision: str | None, corpus: Mapping[str, Any]) -> str:
    """Where a corpus comes from, without the place of files. `revision` is that of a data set on the hub."""
    place = corpus["source"]
    if place["kind"] != "hub":
        return SOURCES[place["kind"]]
    parts = (place["config"], place["split"], f"revision {revision}" if revision else None)
    link = f"[{place['name']}](https://huggingface.co/datasets/{place['name']})"
    return f"{link} ({', '.join(filter(None, parts))})"


def _settings(lineage: Mapping[str, Any], effort: Effort | None) -> str:
    training = lineage["recipe"]["training"]
    optimizer, schedule = training["optimizer"], training["schedule"]
    known = TrainingConfig.model_validate(training)
    model, curriculum = known.model, known.curriculum
    batches = dict.fromkeys(f"{stage.global_batch_tokens:,}" for stage in curriculum.stages)
    rates = f"peak learning rate {optimizer['lr']:g}"
    if optimizer["kind"] == "muon":
        rates = f"peak learning rate {optimizer['muon_lr']:g}, AdamW's {optimizer['lr']:g}"
    rows = {
        "layers, width": f"{model.n_layers}, {model.d_model}",
        "attention heads": f"{model.n_heads}, {model.n_kv_heads} of keys and values"
        + (", QK-norm" if model.qk_norm else "")
        + (", sinks" if model.attention_sinks else ""),
        "feed-forward width": f"{model.d_ff:,}",
        "vocabulary": f"{lineage['assets'][keys.TOKENIZER]['counts']['entries']:,}, byte-level BPE",
        "optimizer": f"{optimizer['kind']}, {rates}, weight decay {optimizer['weight_decay']:g}",
        "schedule": f"{schedule['kind']}, {schedule['warmup_tokens']:,} tokens of warmup",
        "batch": f"{', then '.join(batches)} tokens",
        "steps": f"{curriculum.steps:,}",
        "seed": str(training["seed"]),
    }
    if training["stages"]:
        rows["stages"] = ", ".join(
            f"{stage.name} {stage.tokens / training['max_tokens']:.0%}" for stage in curriculum.stages
        )
    if adapted := TrainedModel(lineage).lora:
        rows["trained by"] = f"{adapted}, beside the weights of `{base_name(lineage)}`; merged"
    if averaged := TrainedModel(lineage).mean:
        rows["weights"] = averaged
    # Only with a price: times differ from run to run, and the exports of equal runs should not.
    if effort and effort.usd is not None:
        rows["training took"] = str(effort)
    return table(("setting", "value"), rows.items(), numbers=False)


def _seen(lineage: dict[str, Any]) -> str:
    """A table: how many tokens of each corpus the model has seen, and how often."""
    trained = TrainedModel(lineage)
    rows = (
        [name, f"{tokens:,}", f"{trained.epochs(name):.2f}"] for name, tokens in trained.corpus_tokens.items()
    )
    return table(("corpus", "tokens", "epochs"), rows)


def bits_per_byte(evaluation: Mapping[str, Any], marked: str = "**{}**") -> list[list[str]]:
    """What the model, `marked`, and compressors need for the held-out text, and the model by corpus."""
    compressors = [[name, f"{bits:.3f}", ""] for name, bits in evaluation["compressors"].items()]
    return [
        _scores(marked.format("this model"), evaluation),
        *compressors,
        *(_scores(f"this model, {name}", found) for name, found in evaluation["per_corpus"].items()),
    ]


def _benchmarks(benchmarks: Mapping[str, Any] | None) -> str:
    if not benchmarks:
        return ""
    rows = benchmark.table(benchmarks, marked="**{}**")
    shown = table(list(rows[0]), (row.values() for row in rows))
    return (
        f"## Benchmarks\n\n{shown}\n\n{benchmark.EXPLAINED} In bold: the accuracy that is compared with "
        f"chance. {benchmark.verdict(benchmarks)[1]}\n\n"
    )


def _scores(name: str, scores: Mapping[str, Any]) -> list[str]:
    bits = scores["bits_per_byte"]
    shown = benchmark.LOSES_TEXT if bits is None else f"{bits:.3f}"
    return [name, shown, f"{scores['perplexity']:,.1f}"]


def _samples(evaluation: Mapping[str, Any]) -> str:
    samples = (f"`{sample['prompt']}`\n\n{fenced(sample['text'])}" for sample in evaluation["samples"])
    return "## Samples\n\n" + ("\n\n".join(samples) or "None were asked for.")


def _opened_by_transformers(usage: str) -> str:
    return f"""```python
from transformers import AutoModelForCausalLM, AutoTokenizer

here = "."  # this directory, or its name on the hub
model, tokenizer = AutoModelForCausalLM.from_pretrained(here), AutoTokenizer.from_pretrained(here)
{usage}
```"""


def _opened_here(prompt: str, answers: bool) -> str:
    command = "chat ." if answers else f"generate --model . --prompt {shell_word(prompt)}"
    return f"""Its attention has sinks, as that of gpt-oss. No dense model of `transformers` or llama.cpp has
them, so Groundwork's own trainer reads this directory:

```sh
python -m trainer {command}
```"""


def _usage(prompt: str) -> str:
    return (
        f'inputs = tokenizer({json.dumps(prompt, ensure_ascii=False)}, return_tensors="pt")\n'
        "print(tokenizer.decode(model.generate(**inputs, max_new_tokens=60)[0]))"
    )
