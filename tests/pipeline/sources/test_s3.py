"""A corpus on an S3 server of this machine: globs, versions by etag, credentials from the environment."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from pipeline.sources.source import SourceError
from tests.pipeline.sources.reading import documents_and_rejects
from tests.pipeline.sources.test_remote_files import source
from tests.s3_server import S3

s3fs = pytest.importorskip("s3fs", reason="needs the extra `s3`")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("s3_environment", "forgetful")]


@pytest.fixture
def forgetful() -> Iterator[None]:
    s3fs.S3FileSystem.clear_instance_cache()
    yield
    s3fs.S3FileSystem.clear_instance_cache()


def put(server: S3, key: str, content: bytes) -> None:
    server.client.put_object(Bucket="bucket", Key=key, Body=content)


def fingerprints(path: str) -> dict[str, str]:
    s3fs.S3FileSystem.clear_instance_cache()  # another process, at another time
    return {unit.name: unit.fingerprint for unit in source(path).units()}


def test_a_glob_over_a_bucket_gives_its_documents_under_names_without_it(server: S3) -> None:
    lines = b'{"text": "one"}\n{"text": "two"}\n'
    put(server, "globbed/a/plain.jsonl", lines)
    put(server, "globbed/b/packed.jsonl.zst", pa.Codec("zstd").compress(lines).to_pybytes())
    put(server, "globbed/b/empty.jsonl", b"")
    rows, rejects = documents_and_rejects("s3://bucket/globbed/**")
    names = ("a/plain.jsonl", "b/packed.jsonl.zst")
    assert [(row["source"], row["text"]) for row in rows] == [
        (name, text) for name in names for text in ("one", "two")
    ]
    assert [(reject.file, str(reject.reason)) for reject in rejects] == [("b/empty.jsonl", "empty_file")]


def test_the_etag_is_the_version_so_only_another_content_is_another_one(server: S3) -> None:
    for name in ("a", "b"):
        put(server, f"tagged/{name}.txt", b"text")
    before = fingerprints("s3://bucket/tagged/*.txt")
    assert server.client.head_object(Bucket="bucket", Key="tagged/a.txt")["ETag"] in before["a.txt"]
    put(server, "tagged/a.txt", b"text")
    assert fingerprints("s3://bucket/tagged/*.txt") == before
    put(server, "tagged/a.txt", b"news")
    after = fingerprints("s3://bucket/tagged/*.txt")
    assert [name for name in before if before[name] != after[name]] == ["a.txt"]


def test_without_credentials_in_the_environment_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nonexistent")
    with pytest.raises(SourceError, match=r"cannot be listed: .*credentials"):
        documents_and_rejects("s3://bucket/*.jsonl")
