"""Whether the versions in use were made from each other."""

from collections.abc import Iterator, Mapping

from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.versions import Version


class StaleError(PipelineError):
    """Versions in the store that were not made from each other: what one decides is not about what the
    other holds.
    """


def check(in_use: Mapping[str, Version]) -> None:
    """Raises StaleError when a version, by key, was made from another version of one of the others. A
    tokenizer is frozen, so it may be.

    Shards are made from the decisions on their own documents, so they hold when dedup decides otherwise on
    others only.
    """
    now = {key: version.data_version for key, version in in_use.items()}
    if keys.DEDUP in in_use:
        now |= {keys.dedup_part(part.name): part.data_version for part in in_use[keys.DEDUP].parts}
    for version in in_use.values():
        for name, data_version in _made_from(version):
            known = name in in_use or (keys.DEDUP in in_use and keys.is_dedup_part(name))
            if known and now.get(name) != data_version:
                raise StaleError(
                    f"{version.key} was made from another version of {name} ({data_version[:12]}) than the "
                    "one in use now "
                    f"({now.get(name, 'none')[:12]}): run the job `retokenize` first"
                )


def _made_from(version: Version) -> Iterator[tuple[str, str]]:
    """What a version was made from, and at which data version. Token shards name the decisions on their parts
    without the corpus: it is put back in.
    """
    if version.key == keys.TOKENIZER:
        return
    for name, data_version in version.manifest["inputs"].items():
        if keys.is_dedup_part(name):
            corpus, part = keys.corpus_of_shards(version.key), name.partition("/")[2]
            yield keys.dedup_part(keys.decisions(corpus, part)), data_version
        else:
            yield name, data_version
