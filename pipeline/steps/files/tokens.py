"""Files in, a tokenizer or token shards out, with no store and no recipe."""

import logging
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from pipeline.sources.files import FilesConfig
from pipeline.stages import tokenizer as bpe
from pipeline.steps.files.documents import PART, Outcome, Progress, reading
from pipeline.steps.tokens.existing_tokenizer import TOKENIZER, fetch
from pipeline.steps.tokens.shards import SLOW, with_fallback
from pipeline.steps.tokens.split_writer import SplitShards
from pipeline.steps.tokens.tokenizer import frozen, sample
from pipeline.store.atomic import output_directory
from pipeline.store.parts import Counts
from pipeline.store.prefetch import ahead
from trainer.system.durable import write_atomically

log = logging.getLogger(__name__)


def train_tokenizer(
    files: FilesConfig, out: Path, params: bpe.TokenizerParams, progress: Progress
) -> Outcome:
    """A directory with the tokenizer, trained on the first `sample_bytes` of the files.

    Raises SourceError, OutputError, NoDocumentError and VocabularyError.
    """
    counts: Counts = {"documents": 0, "text_bytes": 0}
    with output_directory(out) as directory, reading(files, directory, directory, {}, progress) as documents:
        with closing(ahead(iter(documents))) as stream:  # the sample may end before the files do
            texts = (batch.column("text") for batch in stream)
            trained = bpe.train(sample(texts, params.max_document_chars, params.sample_bytes, counts), params)
        documents.counts |= counts
        _write(bpe.files(trained, params), directory)
    return documents.outcome({}, [out])


def tokenize(
    files: FilesConfig,
    out: Path,
    tokenizer: bpe.ExistingTokenizer,
    validation_fraction: float,
    shard_tokens: int,
    progress: Progress,
) -> Outcome:
    """A directory with the shards, their record shards.json and the tokenizer.

    Raises SourceError, OutputError, NoDocumentError and TokenizerError.
    """
    fetched = fetch(tokenizer)
    slow = bpe.unsupported(fetched[TOKENIZER])
    if slow:
        log.warning(SLOW, slow)

    def write(fast: bool) -> Outcome:
        with (
            output_directory(out) as directory,
            reading(files, directory, directory, {}, progress) as documents,
        ):
            _write(fetched, directory)
            found = frozen(directory)
            encoder = bpe.Encoder(found.tokenizer_json, found.boundaries, fast)
            writing = SplitShards(directory, PART, encoder, validation_fraction, shard_tokens)
            writing.write(iter(documents))
            facts = {
                "tokenizer_sha256": found.sha256,
                "vocab_size": encoder.max_id + 1,
                "bot_id": found.boundaries.begin,
                "eot_id": found.boundaries.end,
            }
            _, counts = writing.finish(directory / "shards.json", facts)
        return documents.outcome(counts, [out])

    return with_fallback(write, slow is None, str(out))


def _write(files: Mapping[str, str], directory: Path) -> None:
    for name, content in files.items():
        write_atomically(directory / name, content)
