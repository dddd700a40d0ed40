"""An S3-compatible server on this machine: globs, versions by etag, reading in ranges, credentials from the
environment and nowhere else.
"""

import json
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.sources.errors import SourceError
from pipeline.sources.source_file import REMOTE_BLOCK_BYTES
from tests.pipeline.sources.reading import documents_and_rejects
from tests.pipeline.sources.test_remote_files import source

s3fs = pytest.importorskip("s3fs", reason="needs the extra `s3`")
moto = pytest.importorskip("moto.server", reason="needs moto's server (pip install 'moto[server]')")
pytestmark = pytest.mark.slow


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    server = moto.ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    # it remembers the buckets of the server before
    urlopen(Request(f"{url}/moto-api/reset", method="POST")).close()
    settings = {
        "ACCESS_KEY_ID": "key",
        "SECRET_ACCESS_KEY": "secret",
        "DEFAULT_REGION": "us-east-1",
        "ENDPOINT_URL": url,
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    s3fs.S3FileSystem.clear_instance_cache()
    filesystem = s3fs.S3FileSystem()
    filesystem.mkdir("corpus")
    yield filesystem
    server.stop()
    s3fs.S3FileSystem.clear_instance_cache()


def fingerprints(path: str) -> dict[str, str]:
    s3fs.S3FileSystem.clear_instance_cache()  # another process, at another time
    return {unit.name: unit.fingerprint for unit in source(path).units()}


def test_a_glob_over_a_bucket_gives_its_documents_under_names_without_it(bucket: Any) -> None:
    lines = b'{"text": "one"}\n{"text": "two"}\n'
    bucket.pipe("corpus/a/plain.jsonl", lines)
    bucket.pipe("corpus/b/packed.jsonl.zst", pa.Codec("zstd").compress(lines).to_pybytes())
    bucket.pipe("corpus/b/empty.jsonl", b"")
    with bucket.open("corpus/table.parquet", "wb") as file:
        pq.write_table(pa.table({"text": ["one", "two"]}), file)
    rows, rejects = documents_and_rejects("s3://corpus/**")
    names = ("a/plain.jsonl", "b/packed.jsonl.zst", "table.parquet")
    assert [(row["source"], row["text"]) for row in rows] == [
        (name, text) for name in names for text in ("one", "two")
    ]
    assert [(reject.file, str(reject.reason)) for reject in rejects] == [("b/empty.jsonl", "empty_file")]


def test_the_etag_is_the_version_so_only_another_content_is_another_one(bucket: Any) -> None:
    for name in ("a", "b"):
        bucket.pipe(f"corpus/{name}.txt", b"text")
    before = fingerprints("s3://corpus/*.txt")
    assert bucket.info("corpus/a.txt")["ETag"] in before["a.txt"]
    bucket.pipe("corpus/a.txt", b"text")
    assert fingerprints("s3://corpus/*.txt") == before
    bucket.pipe("corpus/a.txt", b"news")
    after = fingerprints("s3://corpus/*.txt")
    assert [name for name in before if before[name] != after[name]] == ["a.txt"]


def test_an_object_of_several_ranges_arrives_whole_and_in_order(bucket: Any) -> None:
    bucket.pipe(
        "corpus/big.jsonl",
        b"".join(json.dumps({"text": f"{n} " + "word " * 2000}).encode() + b"\n" for n in range(2000)),
    )
    assert bucket.info("corpus/big.jsonl")["size"] > 2 * REMOTE_BLOCK_BYTES
    rows, rejects = documents_and_rejects("s3://corpus/big.jsonl")
    assert ([int(row["text"].split()[0]) for row in rows], rejects) == (list(range(2000)), [])


def test_without_credentials_in_the_environment_one_sentence_says_so(
    bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nonexistent")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(SourceError, match=r"cannot be listed: .*credentials"):
        documents_and_rejects("s3://corpus/*.jsonl")
