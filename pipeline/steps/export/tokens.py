"""Token shards as Megatron and its relatives read them, with the tokenizer that made them.

For the formats of other programs see examples/other_token_formats.py, which reads what this writes.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from pipeline.steps.export.manifest import record
from pipeline.steps.tokens.shard_sets import ShardSet, stored
from pipeline.store import keys
from pipeline.store.atomic import output_directory
from pipeline.store.errors import PipelineError
from pipeline.store.store import Store
from trainer.data.shards import Shard, ShardError, bin_path, idx_path
from trainer.system.durable import link_or_copy

FORMAT = "megatron"
TOKENIZER = "tokenizer"

Progress = Callable[[int], object]  # called with the number of tokens that were written


def export_tokens(
    store: Store, corpora: Sequence[str], splits: Sequence[str], out: Path, progress: Progress
) -> dict[str, int]:
    """Makes `out`: the shards in use, their tokenizer, and `export.json`, which records what they are.
    Returns documents and tokens of each split. Raises PipelineError.
    """
    read = list(map(keys.token_shards, corpora))
    versions, tokenizer = list(map(store.current, read)), store.current(keys.TOKENIZER)
    sets = [shards for version in versions for split in splits if (shards := stored(version, split)).prefixes]
    if not sets:
        raise PipelineError(f"{', '.join(corpora)}: there are no tokens in {' or '.join(splits)}")
    names = [f"{split}_{what}" for split in splits for what in ("documents", "tokens")]
    counts = {name: sum(version.counts[name] for version in versions) for name in names}
    with output_directory(out) as directory:
        write(sets, directory, progress)
        (directory / TOKENIZER).mkdir()
        for path in tokenizer.directory().glob("*token*.json"):
            shutil.copyfile(path, directory / TOKENIZER / path.name)
        record(directory, FORMAT, store.data_versions([*read, keys.TOKENIZER]), counts)
    return counts


def write(sets: Sequence[ShardSet], out: Path, progress: Progress) -> None:
    """Fills `out` with the shards: `<corpus>/<split>/<shard>.bin`, `.idx`. Damage raises PipelineError."""
    for shards in sets:
        directory = out / shards.corpus / shards.split
        directory.mkdir(parents=True)
        for prefix in shards.prefixes:
            try:
                tokens = Shard(prefix).num_tokens
            except ShardError as error:
                raise PipelineError(str(error)) from error
            for path in (bin_path(prefix), idx_path(prefix)):
                link_or_copy(path, directory / path.name)
            progress(tokens)
