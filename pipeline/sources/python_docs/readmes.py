"""Long descriptions and licences from the metadata of installed packages."""

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
from pipeline.sources.python_docs.cap import take, whole_shares
from pipeline.sources.python_docs.distributions import (
    Installation,
    PackagesConfig,
    distributions,
    files,
    installation,
    label,
)
from pipeline.sources.rejects import Reason, Rejects
from pipeline.sources.source import Unit
from pipeline.store.fingerprint import fingerprint

LICENCE_NAMES = ("license", "licence", "copying", "notice", "authors")


class PackageReadmesConfig(PackagesConfig):
    """Long descriptions and licences of installed packages."""

    kind: Literal["package_readmes"] = Field("package_readmes", description="Selects this source.")


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
        of, batches = distributions((unit.name,))[unit.name], Batches(self.corpus, rejects)
        documents = _documents(unit.name, of, batches)
        yield from take(unit.name, documents, batches, self.config.max_bytes and unit.bytes)


@lru_cache(maxsize=8)  # a run lists a corpus twice, and the daemon does so every two minutes
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
    origin, homepage = label(name, of), _homepage(of)
    for place, text in _texts(of).items():
        metadata = metadata_json({"package": name, "place": place})
        try:
            source_id = own_id(f"{name}:{place}")
            yield Document(source_id, text.decode(), None, origin, homepage, metadata, own_id=True)
        except UnicodeDecodeError as error:
            batches.reject(f"{origin}/{place}", error.start + 1, Reason.INVALID_UTF8, error.reason)


def _homepage(of: Distribution) -> str | None:
    """The home page, or the first of the project's links, which are written as `label, url`."""
    links = [link.partition(",")[2].strip() for link in of.metadata.get_all("Project-URL") or []]
    pages = [*(of.metadata.get_all("Home-page") or []), *links]
    return next((page for page in pages if page.startswith("http")), None)


def _texts(of: Distribution) -> dict[str, bytes]:
    """The description, then the licences by their path in the distribution's metadata directory."""
    description = of.metadata["Description"].strip() if "Description" in of.metadata else ""
    texts = {"description": description.encode(errors="surrogateescape")} if description else {}
    return texts | {"/".join(file.parts[1:]): file.path.read_bytes() for file in files(of, _is_licence)}


def _is_licence(parts: tuple[str, ...]) -> bool:
    return parts[-1].lower().startswith(LICENCE_NAMES) and parts[0].endswith(".dist-info")
