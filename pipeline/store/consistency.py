"""Whether the versions in use were made from each other."""

from collections.abc import Iterator, Mapping

from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.versions import Version


class InconsistentVersionsError(PipelineError):
    """Versions in use that were not made from each other, so that they contradict each other."""


def check(in_use: Mapping[str, Version]) -> None:
    """Raises InconsistentVersionsError when one of the versions (by key) was not made from the others. The
    tokenizer is exempt, since it is frozen.

    Token shards depend only on the decisions on their own documents, so they stay valid when dedup decides
    otherwise on documents of other parts.
    """
    now = {key: version.data_version for key, version in in_use.items()}
    if keys.DEDUP in in_use:
        now |= {keys.dedup_part(part.name): part.data_version for part in in_use[keys.DEDUP].parts}
    for version in in_use.values():
        for name, data_version in _made_from(version):
            known = name in in_use or (keys.DEDUP in in_use and keys.is_dedup_part(name))
            if known and now.get(name) != data_version:
                raise InconsistentVersionsError(
                    f"{version.key} was made from another version of {name} ({data_version[:12]}) than the "
                    f"one in use ({now.get(name, 'none')[:12]}): run the job `retokenize` first"
                )


def _made_from(version: Version) -> Iterator[tuple[str, str]]:
    """The keys that a version was made from, with their data versions. The inputs of token shards name parts
    of dedup without the corpus, which is added here.
    """
    if version.key == keys.TOKENIZER:
        return
    for name, data_version in version.manifest["inputs"].items():
        if keys.is_dedup_part(name):
            corpus, part = keys.corpus_of_shards(version.key), name.partition("/")[2]
            yield keys.dedup_part(keys.decisions(corpus, part)), data_version
        else:
            yield name, data_version
