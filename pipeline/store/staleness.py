"""Whether the versions in use were made from each other."""

from collections.abc import Iterator, Mapping

from pipeline.store.errors import PipelineError
from pipeline.store.kept_documents import decision_name
from pipeline.store.versions import Version

DEDUP = "dedup"  # flows.dedup, which asks here, cannot be imported


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
    if DEDUP in in_use:
        now |= {f"{DEDUP}/{part.name}": part.data_version for part in in_use[DEDUP].parts}
    for version in in_use.values():
        for name, data_version in _made_from(version):
            known = name in in_use or (DEDUP in in_use and name.startswith(f"{DEDUP}/"))
            if known and now.get(name) != data_version:
                raise StaleError(
                    f"{version.key} was made from another version of {name} ({data_version[:12]}) than the "
                    "one in use now "
                    f"({now.get(name, 'none')[:12]}): run the job `retokenize` first"
                )


def _made_from(version: Version) -> Iterator[tuple[str, str]]:
    """What a version was made from, and at which data version. Decisions, which shards name without their
    corpus, are named as dedup does.
    """
    if version.key == "tokenizer":
        return
    for name, data_version in version.manifest["inputs"].items():
        key, _, part = name.partition("/")
        yield (
            (
                f"{DEDUP}/{decision_name(version.key.rpartition('/')[2], part)}"
                if key == DEDUP and part
                else name
            ),
            data_version,
        )
