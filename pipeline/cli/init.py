"""init: writes the skeleton of a recipe for text of one's own."""

import argparse
import re
from pathlib import Path

from pipeline.cli.opening import UsageError
from pipeline.recipe.schema import SCHEMA

SKELETON = """\
# yaml-language-server: $schema={schema}
# A recipe for text of your own. Change `corpora`; the rest is a good first run, minutes on two cores.
# `python -m pipeline recipe --explain training.optimizer` explains a section, docs/recipe.md every setting.
name: {name}

corpora:
  - name: notes  # lower-case letters, digits and _; add an entry for each corpus
    source:
      kind: files  # or hub, warc, ...: docs/recipe.md
      paths: ["texts/**/*.txt"]  # from this file's folder; jsonl, csv, txt, md (also .gz, .zst, ...), parquet
      # max_documents: 1000  # only the first ones, to try something out
    # weight: 1  # share of the mixture; set it for every corpus or for none

# docs: manuals, articles, READMEs. default or fineweb: web pages. none: books, and text chosen by hand
# (default and docs reject more than 100,000 words). `python -m pipeline inspect` shows what was rejected.
quality: docs
dedup: {{threshold: 0.8}}  # similarity (Jaccard) from which the later of two documents is removed
tokenizer: {{vocab_size: 8192}}  # or {{from: gpt2}}: a name on the hub, or a directory with a tokenizer.json
shards: {{validation_fraction: 0.04}}  # share of the documents that is held out to measure the loss

training:
  # 7 million parameters. A larger model needs more tokens, about 20 for each parameter.
  model: {{n_layers: 4, d_model: 256, n_heads: 4, n_kv_heads: 4, d_ff: 688, qk_norm: true}}
  seq_len: 256  # tokens that the model sees at once
  global_batch_tokens: 2048  # tokens a step, a multiple of seq_len x micro_batch_size
  micro_batch_size: 8  # windows computed at once; lower it when memory runs out
  max_tokens: 702_464  # length of the training, a multiple of global_batch_tokens
  seed: 1
  # Muon for the matrices inside the blocks, AdamW (lr) for the rest, faster for embedding and head.
  optimizer:
    kind: muon
    muon_lr: 0.01
    lr: 0.002
    weight_decay: 0
    groups: [{{pattern: "*embed_tokens*", lr_multiplier: 25}}, {{pattern: "lm_head*", lr_multiplier: 1.5}}]
  # Warmup (a fiftieth of max_tokens, unless warmup_tokens says otherwise), a plateau, then a line to zero.
  schedule: {{kind: wsd, decay_fraction: 0.6, min_lr_ratio: 0}}
  checkpoint: {{every_tokens: 175_616, keep_last: 3}}  # when to save, and how many of the newest stay on disk
  # When to measure the loss, and on how much of the held-out text.
  evaluation: {{every_tokens: 175_616, max_tokens: 16_384}}
  samples: {{prompts: ["The", "It was"], temperature: 0.7}}  # beginnings of texts that the model continues
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path",
        metavar="PATH",
        nargs="?",
        type=Path,
        default=Path("recipe.yaml"),
        help="the file to write; default: %(default)s",
    )


def run(options: argparse.Namespace) -> None:
    path = options.path.absolute()
    name = re.sub(r"[^a-z0-9_-]+", "-", path.stem.lower()).strip("-_") or "mine"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(SKELETON.format(schema=SCHEMA, name=name))
    except FileExistsError:
        raise UsageError(f"{path} exists: name another file, or move that one away") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    print(f"{path} is written. Name your corpora in it, then:")
    print(f"  export GROUNDWORK_RECIPE={path}")
    print("  dagster job execute -j pretrain")
