"""What a checkpoint writes, what it recites of the text that it read, and how it predicts a batch."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from tokenizers import Tokenizer

from pipeline.steps.lineage.checkpoints import Checkpoint
from pipeline.steps.lineage.documents import PlacedDocument, texts_read
from pipeline.steps.lineage.readers import Training
from pipeline.steps.tokens.shards import prefixes
from pipeline.steps.tokens.tokenizer_files import TokenizerFiles
from pipeline.steps.trace.trace import Searcher
from pipeline.steps.training.launcher import run_trainer
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.keys import TRAIN, VALIDATION
from pipeline.store.store import Store
from pipeline.store.training_runs import checkpoint_path, run_named
from trainer.data.shards import TokenStream
from trainer.data.windows import PADDING

PROMPT, RECITED = 32, 50  # tokens
PASSAGES = 256  # read, and as many held out
ATTEMPTS = 20  # for each passage; many windows hold the end of a document


def samples_again(store: Store, checkpoint: Checkpoint) -> list[str]:
    """The samples of a checkpoint, written once more: their text depends only on the run and its step. Raises
    CheckpointGoneError when its weights are gone, and PipelineError for a run without prompts.
    """
    training = Training(checkpoint.run).config.training
    if not training.samples.prompts:
        raise PipelineError(
            f"{checkpoint.name} writes no samples: training.samples.prompts is empty. `python -m trainer "
            f"generate --model {checkpoint.name} --prompt TEXT` writes one, and `trace` searches for it"
        )
    settings = training.samples.model_dump(exclude={"prompts"})
    options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    options += [f"--prompt={prompt}" for prompt in training.samples.prompts]
    model = f"--model={checkpoint_path(store, checkpoint.name)}"
    said = run_trainer("generate", model, *options, f"--seed={training.seed}", "--json")
    return [json.loads(line)["text"] for line in said.splitlines()]


@dataclass(frozen=True)
class Passage:
    """A text that a checkpoint was asked to continue. The checkpoint had `read` it so often, 0 if it was held
    out. After PROMPT tokens of it, the checkpoint `recites` so many of the RECITED tokens that follow.
    """

    corpus: str
    document: str | None
    read: int
    recites: int


def recited_passages(store: Store, checkpoint: Checkpoint, searcher: Searcher) -> list[Passage]:
    """Asks a checkpoint to continue passages that are drawn from the samples that it read, and held-out
    passages that occur nowhere in these. Raises PipelineError when there is no passage.
    """
    training, chooser = Training(checkpoint.run), np.random.default_rng(0)
    data, size = training.config.data, PROMPT + RECITED
    streams = {
        (name, split): TokenStream(prefixes(text.version, split))
        for name, (text, _) in searcher.corpora.items()
        for split in (TRAIN, VALIDATION)
    }
    samples = training.config.training.curriculum.samples(checkpoint.step)
    found: dict[str, list[tuple[str, int, np.ndarray]]] = {TRAIN: [], VALIDATION: []}
    held = [
        (name, 0, [(0, stream.num_tokens)])
        for (name, split), stream in streams.items()
        if split == VALIDATION
    ]
    for split, passages in found.items():
        for _ in range(ATTEMPTS * PASSAGES):
            pick = int(chooser.integers(samples if split == TRAIN else len(held)))
            corpus, _, pieces = training.data.sample(pick) if split == TRAIN else held[pick]
            if (corpus, split) not in streams:  # rehearsal: the pretrained model is asked for it
                continue
            begin, end = pieces[int(chooser.integers(len(pieces)))]
            if end - begin < size or len(passages) == PASSAGES:
                continue
            start = begin + int(chooser.integers(end - begin - size + 1))
            ids = streams[corpus, split].window(start, size).astype(np.int64)
            if np.isin(ids, (data.bot_id, data.eot_id)).any():
                continue
            if split == TRAIN or not any(index.count(ids) for _, index in searcher.corpora.values()):
                passages.append((corpus, start, ids))
    rows = [ids for passages in found.values() for *_, ids in passages]
    if not found[TRAIN]:
        raise PipelineError(f"{checkpoint.name} read no {size} tokens of one document in one window")
    recites = iter(_predicted(checkpoint_path(store, checkpoint.name), np.stack(rows), PROMPT))
    return [
        Passage(
            corpus,
            searcher.corpora[corpus][0].at(start).document if split == TRAIN else None,
            searcher.readings(ids) if split == TRAIN else 0,
            int(next(recites)["recites"]),
        )
        for split, passages in found.items()
        for corpus, start, ids in passages
    ]


def _predicted(model: Path, rows: np.ndarray, prompt: int) -> list[dict[str, float]]:
    with TemporaryDirectory() as directory:
        np.save(file := Path(directory) / "rows.npy", rows)
        said = run_trainer("predict", f"--model={model}", f"--prompt={prompt}", str(file))
    return [json.loads(line) for line in said.splitlines()]


@dataclass(frozen=True)
class Row:
    """A row of a global batch: the window of a corpus, the documents that it holds tokens of, its own text,
    and its loss under a checkpoint, if that was asked for.
    """

    row: int
    corpus: str
    window: int
    documents: Sequence[PlacedDocument]
    text: str
    loss: float | None = None


def _tokenizer(store: Store, checkpoint: Checkpoint) -> Tokenizer:
    """The tokenizer with which the run of a checkpoint was trained."""
    made = checkpoint.lineage["assets"][keys.TOKENIZER]
    tokenizer = store.open(keys.TOKENIZER, Path(made["path"]).name)
    return Tokenizer.from_str(TokenizerFiles.read(tokenizer.directory()).tokenizer_json)


def _window_text(tokenizer: Tokenizer, window: np.ndarray) -> str:
    """The text of a window, the marks of documents among it."""
    tokens = window[window != PADDING]
    return tokenizer.decode(np.where(tokens < 0, ~tokens, tokens).tolist(), skip_special_tokens=False)


def global_batch_rows(store: Store, checkpoint: Checkpoint, step: int, losses: bool) -> tuple[list[Row], str]:
    """The rows of the global batch of a step (from 1) of a checkpoint's run. With `losses`, each row has its
    loss under the newest checkpoint before the step, and the highest loss comes first. Returns the name of
    that checkpoint, too, else an empty one.

    Raises PipelineError for a step outside of the run, or when no checkpoint before it is on disk.
    """
    training, texts = Training(checkpoint.run), texts_read(store, checkpoint.lineage)
    for text in texts.values():
        _ = text.train_shards  # fetched
    curriculum, steps = training.config.training.curriculum, training.config.training.steps
    if not 0 < step <= steps:
        raise PipelineError(f"run {checkpoint.run.name} has steps 1 to {steps}, not {step}")
    rows, ids = [], training.data.batch(step - 1, 0, 1)
    tokenizer = _tokenizer(store, checkpoint)
    for row, sample in enumerate(range(curriculum.samples(step - 1), curriculum.samples(step))):
        corpus, window, pieces = training.data.sample(sample)
        held = (one for begin, end in pieces for one in texts[corpus].between(begin, end))
        rows.append(Row(row, corpus, window, list(dict.fromkeys(held)), _window_text(tokenizer, ids[row])))
    if not losses:
        return rows, ""
    saved = {
        at: path for at, path in run_named(store, checkpoint.run.name).checkpoints().items() if at < step
    }
    if not saved:
        raise PipelineError(
            f"no checkpoint before step {step} of run {checkpoint.run.name} is on disk: leave out --losses"
        )
    model = store.files.fetch_folder(saved[max(saved)])
    found = _predicted(model, ids, 1)
    scored = [replace(row, loss=one["loss"]) for row, one in zip(rows, found, strict=True)]
    return sorted(scored, key=lambda row: -(row.loss or 0.0)), model.name
