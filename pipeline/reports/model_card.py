"""The model card: what the model is, what it was made from, how well it does. Markdown with the hub's front matter."""

from collections.abc import Mapping
from typing import Any

from pipeline.recipe import Recipe
from pipeline.store import Store

FUNNEL = ("documents", "kept by quality", "kept by dedup", "train tokens", "validation tokens")


def model_card(store: Store, recipe: Recipe, result: Mapping[str, Any], evaluation: Mapping[str, Any]) -> str:
    """The text of README.md in an export."""
    model = recipe.training.model
    compressors = "\n".join(f"| {name} | {bits:.3f} |" for name, bits in evaluation["compressors"].items())
    samples = "\n\n".join(f"```text\n{sample['text']}\n```" for sample in evaluation["samples"])
    return f"""---
library_name: transformers
pipeline_tag: text-generation
tags: [groundwork]
---

# {recipe.name}

A decoder-only language model: {model.n_layers} layers, width {model.d_model}, {model.n_heads} heads, vocabulary {recipe.tokenizer.vocab_size},
context {recipe.training.seq_len}, trained on {result["tokens"]:,} tokens. It continues text; it was not taught to follow instructions.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model, tokenizer = AutoModelForCausalLM.from_pretrained("."), AutoTokenizer.from_pretrained(".")
inputs = tokenizer("[BOT]{recipe.training.samples.prompts[0] if recipe.training.samples.prompts else ""}", return_tensors="pt")
print(tokenizer.decode(model.generate(inputs.input_ids, max_new_tokens=60)[0]))
```

## Data

{_funnel(store, recipe)}

Personal data was replaced by placeholders before anything else saw the text. The rules, the thresholds and the version of every stage are in
`lineage.json`.

## Evaluation

All {evaluation["held_out_bytes"]:,} bytes of held-out text, none of it seen in training:

| | bits per byte |
|---|---|
| this model | {evaluation["bits_per_byte"]:.3f} |
{compressors}

![Training and validation loss](loss.png)

## Samples

{samples}
"""


def _funnel(store: Store, recipe: Recipe) -> str:
    rows = [f"| {' | '.join(('corpus', *FUNNEL))} |", "|---|" + "---:|" * len(FUNNEL)]
    for name, numbers in funnel(store, recipe).items():
        rows.append(f"| {name} | {' | '.join(f'{numbers[column]:,}' for column in FUNNEL)} |")
    return "\n".join(rows)


def funnel(store: Store, recipe: Recipe) -> dict[str, dict[str, int]]:
    """What became of the documents of each corpus, stage by stage."""
    table = {}
    for name in recipe.corpus_names:
        shards = store.current(f"token_shards/{name}").counts
        values = (
            store.current(f"corpora/{name}/raw").counts["documents"],
            store.current(f"corpora/{name}/quality").counts["kept"],
            shards["train_documents"] + shards["validation_documents"],
            shards["train_tokens"],
            shards["validation_tokens"],
        )
        table[name] = dict(zip(FUNNEL, values, strict=True))
    return table
