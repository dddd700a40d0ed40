"""The recipe of what was chosen, as YAML with the reasons as comments, and the file that it is written to."""

import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from glob import escape
from pathlib import Path
from typing import Any

import yaml

from pipeline.recipe.post_training import ANSWER_TOKENS
from pipeline.recipe.recipe import named_like
from pipeline.recipe.reference import SCHEMA
from pipeline.stages.language import known
from pipeline.start.choose import Chosen, Reading
from pipeline.start.folder.look import FoundCorpus
from pipeline.start.horizon import DECAY
from pipeline.start.reasons import choices, notes
from pipeline.start.sizes import LR, MUON_LR
from pipeline.store.errors import PipelineError
from trainer.system.durable import write_atomically
from trainer.system.wording import counted, shell_word

MOST_LOST = 0.5  # share of the rows that have a text
USUAL = {"format": "text", "text_column": "text", "encoding": "utf-8"}  # which no recipe has to say
NEAR = 0.8  # ratio of two settings, above which only the speed of the machine has changed
MARK = "# Written by `python -m pipeline start`, which replaces this file as long as nobody changed it: "


class NotOursError(PipelineError):
    """A file that somebody else wrote or changed."""


def check_may_write(path: Path) -> None:
    """Raises NotOursError for a file that is not as `write` left it."""
    if path.exists() and not is_ours(path):
        run = f"GROUNDWORK_RECIPE={shell_word(path)} dagster job execute -j pretrain"
        raise NotOursError(
            f"{path}: was not written by `start`, or was changed since: name another file with -o, run it "
            f"with `{run}`, or replace it with --force"
        )


def write(path: Path, chosen: Chosen) -> None:
    """Writes the recipe of what was chosen, with a mark that tells whether it is changed later."""
    text = recipe_text(chosen, path.parent)
    marked = f"# yaml-language-server: $schema={SCHEMA}\n{MARK}{_digest(text)}\n{text}"
    write_atomically(path, marked)


def is_ours(path: Path) -> bool:
    """Whether a file is as `write` left it."""
    _, _, marked = path.read_text(encoding="utf-8", errors="replace").partition("\n")
    mark, _, rest = marked.partition("\n")
    return mark == MARK + _digest(rest)


def going_on(chosen: Chosen, path: Path) -> Chosen:
    """What was chosen, with the settings of the recipe that an earlier start left for the same folder and
    time, where another speed alone has made others: a training that was stopped then resumes.
    """
    if not (path.exists() and is_ours(path)):
        return chosen
    text = path.read_text(encoding="utf-8")
    written = yaml.safe_load(text)
    training, held_out = written["training"], written["shards"]["validation_fraction"]
    tokens, warmup = training["max_tokens"], training["schedule"]["warmup_tokens"]
    decay = training.get("optimizer", {}).get("weight_decay", 0.0)
    before = replace(
        chosen,
        validation_fraction=held_out,
        horizon=replace(chosen.horizon, tokens=tokens, warmup=warmup),
        length=replace(chosen.length, tokens=tokens, weight_decay=decay),
    )
    again = recipe_text(before, path.parent)
    same = again.partition("\n")[0] in text.splitlines() and yaml.safe_load(again) == written
    pairs = [
        (held_out, chosen.validation_fraction),
        (warmup, chosen.horizon.warmup),
        (decay, chosen.length.weight_decay),
    ]
    if not (same and all(map(_near, *zip(*pairs, strict=True)))):
        return chosen
    if _near(tokens, chosen.horizon.tokens):
        return before
    horizon = replace(before.horizon, tokens=chosen.horizon.tokens)
    return replace(before, horizon=horizon, length=replace(before.length, tokens=chosen.length.tokens))


def _near(before: float, now: float) -> bool:
    return min(before, now) >= NEAR * max(before, now)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def recipe_text(chosen: Chosen, directory: Path) -> str:
    """The recipe as it is read in `directory`."""
    return "\n".join(_lines(chosen, directory)) + "\n"


def recipe_name(chosen: Chosen) -> str:
    return named_like(chosen.folder.path.name)


def _lines(chosen: Chosen, directory: Path) -> Iterator[str]:
    why = {choice.about: f"{choice.value}: {choice.reason}" for choice in choices(chosen)}
    shown = json.dumps(str(chosen.folder.path))
    yield f"# For {shown} in {chosen.wishes.seconds / 3600:g} hours. docs/recipe.md has every setting."
    yield from (f"# {note}" for note in notes(chosen))
    yield f"name: {_flow(recipe_name(chosen))}"
    yield ""
    yield "corpora:"
    for reading in chosen.corpora:
        yield f"  # {_about(reading)}"
        yield f"  # Quality {why[f'quality of {reading.corpus.name}']}"
        yield f"  - {_flow(_corpus(reading, chosen, directory))}"
    if chosen.folder.unread:
        yield f"  # {counted(len(chosen.folder.unread), 'files')} cannot be read; `start` names them."
    yield ""
    yield f"raw: {{part_bytes: {chosen.part_bytes}}}  # bytes of text that are worked on at once"
    yield f"dedup: {{threshold: 0.8}}  # {why['duplicates']}"
    yield "dedup_guard: {max_lost_share: 1}  # however many copies there are"
    lost = 1 - (1 - MOST_LOST) * (1 - max(reading.corpus.blank for reading in chosen.corpora))
    yield f"checks: {{max_set_aside_share: {lost:.4g}}}  # share without readable text at which the run stops"
    yield f"# Vocabulary of {why['vocabulary']}"
    yield f"tokenizer: {{vocab_size: {chosen.length.vocab_size}, chat: true}}"
    yield f"# Held out: {why['held out']}"
    yield f"shards: {{validation_fraction: {chosen.validation_fraction:g}}}"
    yield ""
    if chosen.processes > 1:
        yield f"# GPUs: {why['GPUs']}"
        yield f"launch: {{kind: torchrun, nproc_per_node: {chosen.processes}}}"
    yield from _training(chosen, why)
    if chosen.conversations:
        yield ""
        yield from _post_training(chosen, why, directory)


def _training(chosen: Chosen, why: dict[str, str]) -> Iterator[str]:
    horizon, batch = chosen.horizon, chosen.horizon.batch
    yield "training:"
    yield f"  # {why['model']}"
    yield f"  model: {_flow(chosen.length.size.shape)}"
    yield f"  seq_len: {chosen.seq_len}  # tokens that the model sees at once"
    yield f"  global_batch_tokens: {batch}  # {why['batch']}"
    yield f"  micro_batch_size: {_windows(batch, chosen)}"
    yield f"  # {why['tokens']}"
    yield f"  # Epochs: {why['epochs']}"
    yield f"  max_tokens: {horizon.tokens}"
    if dropout := chosen.length.dropout:
        yield f"  dropout: {dropout:g}  # {why['dropout']}"
    if decay := chosen.length.weight_decay:
        if chosen.length.rates != 1:
            yield f"  # Learning rates: {why['learning rates']}"
        rates = {"lr": LR * chosen.length.rates, "muon_lr": MUON_LR * chosen.length.rates}
        optimizer = {name: float(f"{rate:g}") for name, rate in rates.items()} | {"weight_decay": decay}
        yield f"  optimizer: {_flow(optimizer)}  # {why['weight decay']}"
    yield "  seed: 1"
    yield f"  # {why['schedule']}"
    schedule = {"warmup_tokens": horizon.warmup, "decay_fraction": DECAY, "min_lr_ratio": 0}
    yield f"  schedule: {_flow({'kind': 'wsd', **schedule})}"
    every = -(-horizon.tokens // batch // 4) * batch
    yield f"  checkpoint: {{every_tokens: {every}, keep_last: 3}}  # {why['checkpoints']}"
    yield f"  evaluation: {{every_tokens: {every}, max_tokens: {64 * chosen.seq_len}}}"
    yield f"  samples: {_flow({'prompts': _prompts(chosen.corpora[0].corpus), 'temperature': 0.7})}"


def _post_training(chosen: Chosen, why: dict[str, str], directory: Path) -> Iterator[str]:
    tuning = chosen.tuning
    yield "# After the pretraining, the model learns to answer from the conversations of the folder."
    yield "post_training:"
    yield "  sft:"
    yield "    corpora:"
    for reading in chosen.conversations:
        yield f"      - {_flow(_corpus(reading, chosen, directory))}"
    yield f"    # {why['tuning']}"
    yield f"    epochs: {tuning.epochs:.4g}"
    yield f"    validation_fraction: {chosen.held_out_conversations:g}  # enough to be asked in the end"
    longest = max(ANSWER_TOKENS, chosen.seq_len // 2)
    yield f"    answer_tokens: {longest}  # after which an answer is cut off then"
    yield f"    rehearsal: {tuning.rehearsal:g}  # share that is text of the pretraining"
    yield "    training:"
    yield f"      global_batch_tokens: {tuning.batch}"
    yield f"      micro_batch_size: {_windows(tuning.batch, chosen)}"
    yield f"      optimizer: {_flow({'kind': 'adamw', 'lr': tuning.rate, 'weight_decay': 0})}"
    yield "      schedule: {kind: linear, min_lr_ratio: 0.02}"


def _windows(batch: int, chosen: Chosen) -> str:
    if chosen.gpus:
        return "auto  # as many windows at once as fit into the GPU"
    return f"{max(1, min(8, batch // chosen.seq_len))}  # windows computed at once"


def _about(reading: Reading) -> str:
    corpus = reading.corpus
    column = f", text in the column {corpus.shape.text_column!r}" if corpus.shape.text_column else ""
    ids = ", whose ids repeat, so that rows are told apart by their places" if corpus.repeats_ids else ""
    return f"{counted(corpus.files, 'files')} with {corpus.text_bytes / 1e6:,.1f} MB of text{column}{ids}"


def _corpus(reading: Reading, chosen: Chosen, directory: Path) -> dict[str, Any]:
    read, shape = reading.corpus, reading.corpus.shape
    parent = chosen.folder.path.parent
    here, folder = parent == directory.absolute(), escape(str(parent)).rstrip("/")
    paths = [path if here else f"{folder}/{path}" for path in read.paths]
    settings = {
        "format": shape.format,
        "text_column": shape.text_column,
        "id_column": "" if read.repeats_ids else None,
        "encoding": shape.encoding,
        "separator": shape.separator,
        "document_separator": shape.document_separator,
        "piece_bytes": reading.piece_bytes,
        "max_documents": reading.max_documents,
    }
    unusual = {name: value for name, value in settings.items() if value not in (None, USUAL.get(name))}
    corpus: dict[str, Any] = {"name": read.name, "source": {"kind": "files", "paths": paths, **unusual}}
    if shape.format == "text":
        quality: dict[str, Any] = {"profile": reading.quality}
        if reading.by_language:
            quality["by_language"] = True
        if chosen.wishes.languages:
            quality["languages"] = list(chosen.wishes.languages)
        corpus["quality"] = quality if len(quality) > 1 else reading.quality
        if read.edits:
            corpus["edits"] = {"rules": list(map(str, read.edits))}
    return corpus


def _flow(value: Any) -> str:
    """A value as YAML on one line. Plain words stand without quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if not isinstance(value, str):
        return json.dumps(value)
    if re.fullmatch(r"[a-z][a-z_]{2,}", value) and value not in ("null", "true", "false", "yes", "off"):
        return value
    # JSON writes what is beyond U+FFFF as two surrogates, which YAML reads as two characters.
    quoted: str = yaml.safe_dump(value, default_style='"', width=math.inf, allow_unicode=True)
    return quoted.rstrip("\n")


def _prompts(corpus: FoundCorpus) -> list[str]:
    """Beginnings that the model continues, which are nobody's words."""
    language = next(iter(corpus.kind.languages), "en")
    words = sorted(known()[language].stop_words) if language in known() else []
    return [words[0], words[-1]] if len(words) > 1 else ["The", "It was"]
