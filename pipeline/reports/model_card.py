"""The model card: what the model is, what it was made from, how well it does. Markdown with the hub's front matter."""

import json
from collections.abc import Mapping
from typing import Any

from pipeline.reports.funnel import DOCUMENTS, TOKENS, of_lineage

FUNNEL = (*DOCUMENTS, *TOKENS)


def model_card(lineage: Mapping[str, Any], result: Mapping[str, Any], evaluation: Mapping[str, Any]) -> str:
    """The text of README.md in an export. Everything comes from what the checkpoint was made from, never from what is in use now."""
    recipe, vocab_size = lineage["recipe"], lineage["assets"]["tokenizer"]["counts"]["entries"]
    training = recipe["training"]
    model, prompts = training["model"], training["samples"]["prompts"]
    prompt = (recipe["tokenizer"]["begin_of_text"] or "") + (prompts[0] if prompts else "")
    compressors = "\n".join(f"| {name} | {bits:.3f} |" for name, bits in evaluation["compressors"].items())
    samples = "\n\n".join(f"```text\n{sample['text']}\n```" for sample in evaluation["samples"])
    return f"""---
library_name: transformers
pipeline_tag: text-generation
tags: [groundwork]
---

# {recipe["name"]}

A decoder-only language model: {model["n_layers"]} layers, width {model["d_model"]}, {model["n_heads"]} heads, vocabulary {vocab_size},
context {training["seq_len"]}, trained on {result["tokens"]:,} tokens. It continues text; it was not taught to follow instructions.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model, tokenizer = AutoModelForCausalLM.from_pretrained("."), AutoTokenizer.from_pretrained(".")
inputs = tokenizer({json.dumps(prompt, ensure_ascii=False)}, return_tensors="pt")
print(tokenizer.decode(model.generate(inputs.input_ids, max_new_tokens=60)[0]))
```

## Data

{_funnel_table(lineage)}

![Documents and bytes after each stage](funnel.png)

Personal data was replaced by placeholders before anything else saw the text. The rules, the thresholds and the version of every stage are in
`lineage.json`.

## Evaluation

All {evaluation["held_out_bytes"]:,} bytes of held-out text, none of it seen in training:

| | bits per byte |
|---|---|
| this model | {evaluation["bits_per_byte"]:.3f} |
{compressors}

![Training and validation loss](loss.png)

![Validation loss by corpus, learning rate, throughput, gradient norm](training.png)

## Samples

{samples}
"""


def _funnel_table(lineage: Mapping[str, Any]) -> str:
    rows = [f"| {' | '.join(('corpus', *FUNNEL))} |", "|---|" + "---:|" * len(FUNNEL)]
    for name, numbers in of_lineage(lineage).items():
        rows.append(f"| {name} | {' | '.join(f'{numbers[column]:,}' for column in FUNNEL)} |")
    return "\n".join(rows)
