"""The long descriptions and licences that installed packages carry in their metadata."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import Distribution
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from pipeline.sources.documents import Batches, Document
from pipeline.sources.ids import own_id
from pipeline.sources.metadata import metadata_json
from pipeline.sources.python_docs.distributions import (
    Installation,
    distributions,
    files,
    installation,
    label,
    whole_shares,
)
from pipeline.sources.python_docs.harvest import take
from pipeline.sources.rejects import Reason, Rejects
from pipeline.sources.source import Unit
from pipeline.store.fingerprint import fingerprint
from pipeline.store.params import Params

LICENCE_NAMES = ("license", "licence", "copying", "notice", "authors")


class PackageReadmesConfig(Params):
    """Long descriptions and licences of installed packages."""

    kind: Literal["package_readmes"] = Field("package_readmes", description="Selects this source.")
    packages: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        description="Installed packages to read. When not set, this project's dependencies without "
        "its extras.",
    )
    max_bytes: int | None = Field(
        None,
        ge=1,
        description="UTF-8 bytes of text to take at most, shared fairly among the packages. When not set, "
        "all of it.",
    )


@dataclass(frozen=True)
class PackageReadmesSource:
    """One unit per distribution, fingerprinted by its texts and its share of the cap. Licences repeat: they
    are real near-duplicates.
    """

    corpus: str
    config: PackageReadmesConfig
    version: ClassVar[str] = "package-readmes-1"

    def units(self) -> list[Unit]:
        return list(_units(self.config, installation()))

    def read(self, unit: Unit, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        of = distributions((unit.name,))[unit.name]
        batches = Batches(self.corpus, rejects)
        yield from take(
            unit.name, _documents(unit.name, of, batches), batches, self.config.max_bytes and unit.bytes
        )


@lru_cache(maxsize=8)  # a run lists a corpus twice, and the daemon every two minutes
def _units(config: PackageReadmesConfig, _: Installation) -> tuple[Unit, ...]:
    texts = {name: _texts(of) for name, of in distributions(config.packages).items()}
    shares = whole_shares(
        {name: [len(text) for text in found.values()] for name, found in texts.items()}, config.max_bytes
    )
    return tuple(
        Unit(name, fingerprint([{place: text.hex() for place, text in texts[name].items()}, share]), share)
        for name, share in sorted(shares.items())
        if share
    )


def _documents(name: str, of: Distribution, batches: Batches) -> Iterator[Document]:
    for place, text in _texts(of).items():
        try:
            metadata = metadata_json({"package": name, "place": place})
            yield Document(
                own_id(f"{name}:{place}"),
                text.decode(),
                None,
                label(name, of),
                _homepage(of),
                metadata,
                own_id=True,
            )
        except UnicodeDecodeError as error:
            batches.reject(f"{label(name, of)}/{place}", error.start + 1, Reason.INVALID_UTF8, error.reason)


def _homepage(of: Distribution) -> str | None:
    """The home page, or the first of the project's links, which are written as `label, url`."""
    links = [link.partition(",")[2].strip() for link in of.metadata.get_all("Project-URL") or []]
    return next(
        (link for link in [*(of.metadata.get_all("Home-page") or []), *links] if link.startswith("http")),
        None,
    )


def _texts(of: Distribution) -> dict[str, bytes]:
    """The description, then the licences by their path in the distribution's metadata directory."""
    description = of.metadata["Description"].strip() if "Description" in of.metadata else ""
    texts = {"description": description.encode(errors="surrogateescape")} if description else {}
    return texts | {"/".join(file.parts[1:]): file.path.read_bytes() for file in files(of, _is_licence)}


def _is_licence(parts: tuple[str, ...]) -> bool:
    return parts[-1].lower().startswith(LICENCE_NAMES) and parts[0].endswith(".dist-info")
