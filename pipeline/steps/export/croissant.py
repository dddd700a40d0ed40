"""The description of exported documents for programs, Croissant 1.1 with provenance in PROV-O:
https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from pipeline.steps.export.data_card import COLUMNS, ExportedDocuments
from pipeline.store import keys
from pipeline.store.fingerprint import file_sha256
from pipeline.store.manifest import Version

FILE = "croissant.json"
VERSIONS = ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"]
# The names that readers expect to be declared, the used ones among them.
NAMES = """
annotation arrayShape citeAs column containedIn equivalentProperty excludes extract field fileObject
fileProperty fileSet format includes isArray isLiveDataset jsonPath key md5 parentField path readLines
recordSet references regex repeated replace samplingRate sdVersion separator source subField transform
unArchive value
"""
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "prov": "http://www.w3.org/ns/prov#",
    "conformsTo": "dct:conformsTo",
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "data": {"@id": "cr:data", "@type": "@json"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{name: f"cr:{name}" for name in NAMES.split()},
}
PARQUET = "application/x-parquet"


def described(directory: Path, what: ExportedDocuments) -> dict[str, Any]:
    """What is in a directory with the files, and how it was made. Its address is known once it is pushed."""
    replaced = sorted(
        {kind for corpus in what.counts for kind in what.counted(keys.scrubbed(corpus), "spans")}
    )
    versions = what.versions.values()
    made = {one.data_version for one in versions}
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": VERSIONS,
        "name": what.name,
        "description": what.description,
        "version": "1.0.0",
        "license": what.license or "unknown",
        **({"inLanguage": what.languages} if what.languages else {}),
        "rai:dataPreprocessingProtocol": [f"{one.key} {one.manifest['code_version']}" for one in versions],
        "rai:personalSensitiveInformation": [f"{kind}: replaced where it was found" for kind in replaced],
        "prov:wasDerivedFrom": [
            {"@type": "prov:Entity", "@id": _id(what.raw(one).data_version), "prov:label": what.source(one)}
            for one in what.corpora
        ],
        "prov:wasGeneratedBy": [_activity(one, made) for one in versions],
        "distribution": [*_files(directory)],
        "recordSet": {"@type": "cr:RecordSet", "@id": "documents", "field": [*map(_field, COLUMNS)]},
    }


def _id(data_version: str) -> str:
    return f"urn:sha256:{data_version}"


def _activity(version: Version, described: Collection[str]) -> dict[str, Any]:
    """The making of a version, from those that are `described`."""
    made = version.manifest
    return {
        "@type": "prov:Activity",
        "@id": f"urn:groundwork:{version.fingerprint}",
        "prov:label": f"{version.key} {made['code_version']}",
        "prov:endedAtTime": made["finished"],
        "prov:used": [{"@id": _id(used)} for used in made["inputs"].values() if used in described],
        "prov:generated": {"@id": _id(version.data_version)},
    }


def _files(directory: Path) -> Iterator[dict[str, Any]]:
    paths = sorted(directory.glob("*/*.parquet"))
    for path in paths:
        name = path.relative_to(directory).as_posix()
        yield {
            "@type": "cr:FileObject",
            "@id": name,
            "contentUrl": name,
            "contentSize": f"{path.stat().st_size} B",
            "encodingFormat": PARQUET,
            "sha256": file_sha256(path),
        }
    yield {"@type": "cr:FileSet", "@id": "files", "encodingFormat": PARQUET, "includes": "*/*.parquet"}


def _field(column: str) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"documents/{column}",
        "description": COLUMNS[column],
        "dataType": "sc:Text",
        "source": {"fileSet": {"@id": "files"}, "extract": {"column": column}},
    }
