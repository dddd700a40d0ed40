"""What a checkpoint writes, and what it recites of the text that it read."""

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from pipeline.steps.lineage.checkpoints import Checkpoint
from pipeline.steps.lineage.readers import Training
from pipeline.steps.tokens.shards import prefixes
from pipeline.steps.trace.trace import Searcher
from pipeline.steps.training.launcher import run_trainer
from pipeline.store.errors import PipelineError
from pipeline.store.keys import TRAIN, VALIDATION
from pipeline.store.store import Store
from pipeline.store.training_runs import checkpoint_path
from trainer.data.loader import Sample
from trainer.data.shards import TokenStream

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
        (name, split): TokenStream(prefixes(corpus.text.version, split))
        for name, corpus in searcher.corpora.items()
        for split in (TRAIN, VALIDATION)
    }
    samples = training.config.training.curriculum.samples(checkpoint.step)
    found: dict[str, list[tuple[str, int, np.ndarray]]] = {TRAIN: [], VALIDATION: []}
    held = [
        Sample(name, 0, [(0, stream.num_tokens)])
        for (name, split), stream in streams.items()
        if split == VALIDATION
    ]
    for split, passages in found.items():
        for _ in range(ATTEMPTS * PASSAGES):
            pick = int(chooser.integers(samples if split == TRAIN else len(held)))
            sample = training.data.sample(pick) if split == TRAIN else held[pick]
            if (sample.corpus, split) not in streams:  # rehearsal: the pretrained model is asked for it
                continue
            begin, end = sample.pieces[int(chooser.integers(len(sample.pieces)))]
            if end - begin < size or len(passages) == PASSAGES:
                continue
            start = begin + int(chooser.integers(end - begin - size + 1))
            ids = streams[sample.corpus, split].window(start, size).astype(np.int64)
            if np.isin(ids, (data.bot_id, data.eot_id)).any():
                continue
            if split == TRAIN or not any(one.search.count(ids) for one in searcher.corpora.values()):
                passages.append((sample.corpus, start, ids))
    rows = [ids for passages in found.values() for *_, ids in passages]
    if not found[TRAIN]:
        raise PipelineError(f"{checkpoint.name} read no {size} tokens of one document in one window")
    recites = iter(predicted(checkpoint_path(store, checkpoint.name), np.stack(rows), PROMPT))
    return [
        Passage(
            corpus,
            searcher.corpora[corpus].text.at(start).document if split == TRAIN else None,
            searcher.readings(ids) if split == TRAIN else 0,
            int(next(recites)["recites"]),
        )
        for split, passages in found.items()
        for corpus, start, ids in passages
    ]


def predicted(model: Path, rows: np.ndarray, prompt: int) -> list[dict[str, float]]:
    """For each row of token ids, its mean loss, and how many tokens after the `prompt` the model recites."""
    with TemporaryDirectory() as directory:
        np.save(file := Path(directory) / "rows.npy", rows)
        said = run_trainer("predict", f"--model={model}", f"--prompt={prompt}", str(file))
    return [json.loads(line) for line in said.splitlines()]
