"""Whether the versions in use were made from each other."""

from collections.abc import Mapping

from pipeline.errors import PipelineError
from pipeline.store import Version


class StaleError(PipelineError):
    """Versions in the store that were not made from each other: what one decides is not about what the other holds."""


def check(in_use: Mapping[str, Version]) -> None:
    """Raises StaleError when a version, by key, was made from another version of one of the others. A tokenizer is frozen, so it may be."""
    for version in in_use.values():
        made_from = {} if version.key == "tokenizer" else version.manifest["inputs"]
        for name, data_version in made_from.items():
            if name in in_use and in_use[name].data_version != data_version:
                raise StaleError(
                    f"{version.key} was made from another version of {name} ({data_version[:12]}) than the one in use now "
                    f"({in_use[name].data_version[:12]}): run the job `retokenize` first"
                )
