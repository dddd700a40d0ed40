"""The same store and the same faults on each cloud: S3 (moto), Azure (Azurite), Google (our own server)."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from pipeline.store.bucket.claim import Claim, ClaimLostError
from pipeline.store.bucket.errors import BucketError
from pipeline.store.bucket.files import cache_of
from pipeline.store.bucket.mirror import FetchError
from pipeline.store.bucket.objects import SLICE_BYTES, Bucket
from pipeline.store.cleanup import gc
from pipeline.store.draft import Draft
from pipeline.store.files import MANIFEST
from pipeline.store.manifest import RECORDS
from pipeline.store.store import Store
from tests.azurite import KEY, azurite
from tests.google_server import VERSIONED, google
from tests.pipeline.store.bucket.test_s3 import part, publish, texts, work
from tests.s3_server import BUCKET, Answer, CloudServer, proxied, serving, use

pytest.importorskip("obstore")

SERVERS = {"s3": serving, "gs": google, "az": azurite}
CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID",
    "gs": "GOOGLE_SERVICE_ACCOUNT_KEY",
    "az": "AZURE_STORAGE_ACCOUNT_NAME",
}


@pytest.fixture(scope="module", params=SERVERS)
def cloud(request: pytest.FixtureRequest) -> Iterator[CloudServer]:
    with SERVERS[request.param]() as server:
        yield server


@pytest.fixture(autouse=True)
def known(cloud: CloudServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This process knows the server, and no credentials but its own."""
    use(cloud, monkeypatch)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def url(cloud: CloudServer, tmp_path: Path) -> str:
    """A store of its own for each test."""
    return f"{cloud.scheme}://{BUCKET}/{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12]}"


def keys(cloud: CloudServer, url: str) -> list[str]:
    prefix = f"{url.rpartition('/')[2]}/"
    return [key.removeprefix(prefix) for key in cloud.keys(prefix) if not key.endswith(".groundwork-store")]


def test_another_machine_reads_copies_and_goes_on(cloud: CloudServer, url: str, tmp_path: Path) -> None:
    here, there = (Store(cache_of(url, tmp_path / name)) for name in ("here", "there"))
    made = publish(here, work(source="1"), a="one", b="two")
    name = made.path.name
    assert keys(cloud, url) == [f"numbers/{name}/{at}" for at in (MANIFEST, "table/a.txt", "table/b.txt")]
    with pytest.raises(RuntimeError), there.making(work(source="2")) as draft:
        assert isinstance(draft, Draft)
        again = draft.finished("a", draft.work.part_fingerprint(["one"]))
        assert again  # which the server copies
        draft.put(part(draft, "b", "three"))
        raise RuntimeError("the machine dies")
    with here.making(work(source="2")) as draft:
        assert isinstance(draft, Draft)
        kept = [
            draft.finished(name, draft.work.part_fingerprint([text]))
            for name, text in (("a", "one"), ("b", "three"))
        ]
        version = draft.publish([one for one in kept if one])
    assert texts(version) == ["one", "three"]
    found = Store(cache_of(url, tmp_path / "third")).existing(work(source="2"))
    assert found and texts(found) == ["one", "three"]


def test_of_two_machines_that_publish_one_version_one_wins(url: str, tmp_path: Path) -> None:
    one, two = (Store(cache_of(url, tmp_path / name)) for name in ("one", "two"))
    with one.making(work()) as first, two.making(work()) as second:
        assert isinstance(first, Draft) and isinstance(second, Draft)
        parts = part(first, "a", "one"), part(second, "a", "ONE")
        won, lost = first.publish([parts[0]]), second.publish([parts[1]])
    assert not won.reused and lost.reused and lost.manifest == won.manifest
    assert texts(lost) == texts(Store(cache_of(url, tmp_path / "third")).current("numbers")) == ["one"]


def test_what_was_replaced_or_removed_is_named(url: str, tmp_path: Path) -> None:
    publish(Store(cache_of(url, tmp_path / "one")), work(), a="one")
    bucket, other = Bucket(url), Store(cache_of(url, tmp_path / "other"))
    (found,) = (one.key for one in bucket.objects("numbers") if one.key.endswith("a.txt"))
    bucket.put(found, b"tampered")
    with pytest.raises(FetchError, match=r"a\.txt is corrupt"):
        texts(other.current("numbers"))
    bucket.delete([found])
    with pytest.raises(FetchError, match=r"a\.txt is missing"):
        texts(other.current("numbers"))


def test_an_object_is_put_found_ranged_listed_and_removed(url: str, tmp_path: Path) -> None:
    bucket = Bucket(url)
    names = ["a/ü ä", "a/b%20c", "a/b+c", *(f"a/d/{number}" for number in range(12)), "ab"]
    etags = {name: bucket.put(name, name.encode(), "") for name in names}
    assert sorted(one.key for one in bucket.objects("")) == sorted(names)
    assert sorted(one.key for one in bucket.objects("a")) == sorted(names[:-1])
    assert bucket.folders("a") == ["d"] and bucket.folders("") == ["a"]
    for one in bucket.objects("a"):
        assert (one.etag, one.bytes) == (etags[one.key], len(one.key.encode()))
    found = bucket.get("a/d/11", 2, 5)
    assert found and found[0] == b"d/1" and found[1].sha256 == hashlib.sha256(b"a/d/11").hexdigest()
    assert abs(found[1].modified / 1e9 - time.time()) < 120 and bucket.now() >= found[1].modified
    assert not bucket.put("ab", b"", "") and not bucket.put("ab", b"", etags["a/ü ä"])
    assert bucket.put("ab", b"new", etags["ab"]) and not bucket.put("ab", b"", etags["ab"])
    bucket.delete(["missing", *names])
    assert [one.key for one in bucket.objects("")] == [".groundwork-store"]
    assert bucket.head("ab") is None and bucket.get("ab") is None
    assert not bucket.keeps_versions()


def test_a_large_file_arrives_in_slices_or_on_a_condition(
    cloud: CloudServer, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, content = tmp_path / "large", os.urandom(2 * SLICE_BYTES + 7)
    path.write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    for replacing in (None, ""):
        bucket = Bucket(url)
        assert bucket.upload(f"large{replacing}", path, sha256, replacing)
        found = bucket.download(f"large{replacing}", tmp_path / "back", lambda _: None)
        assert found and found[1] == sha256 == found[0].sha256
    assert not bucket.upload("large", path, sha256, "")
    with proxied(cloud, share=1.0, ways=("half",)) as (bad, proxy):
        use(bad, monkeypatch)
        monkeypatch.setattr("pipeline.store.bucket.objects.ATTEMPTS", 2)
        with pytest.raises(BucketError, match=f"no server answers for {url}"):
            Bucket(url).download("large", tmp_path / "back", lambda _: None)
    assert len(proxy.faults) > 1


def header_of(cloud: CloudServer, condition: str) -> tuple[str, str]:
    """The header of a condition, and what its value begins with."""
    if cloud.scheme == "gs":
        return "x-goog-if-generation-match", {"If-None-Match": "0", "If-Match": "1"}[condition]
    return condition.lower(), ""


@pytest.mark.parametrize("condition", ["If-None-Match", "If-Match"])
@pytest.mark.parametrize("status", [200, 400, 501])
def test_a_server_without_a_condition_is_refused_before_anything_is_written(
    cloud: CloudServer, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str, status: int
) -> None:
    name, begins = header_of(cloud, condition)

    def differs(_: str, __: str, headers: dict[str, str]) -> Answer | None:
        if not headers.get(name, "-").startswith(begins or headers.get(name, "?")):
            return None
        if status != 200:
            return error(status, "NotImplemented")
        del headers[name]
        # Azure's requests are signed with their conditions, so this one would not be taken.
        return (201, [("ETag", '"0x1"')], b"") if cloud.scheme == "az" else None

    monkeypatch.setattr("pipeline.store.bucket.objects.ATTEMPTS", 2)
    with proxied(cloud, differs=differs) as (other, _):
        use(other, monkeypatch)
        with pytest.raises(BucketError) as raised:
            publish(Store(cache_of(url, tmp_path)), work(), a="one")
    assert f"{url} does not take conditions ({condition})" in str(raised.value)
    assert keys(cloud, url) == []


def error(status: int, code: str) -> Answer:
    return status, [], f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (error(403, "RequestTimeTooSkewed"), "the clock of this machine is not that of the server: set it"),
        (error(403, "AccessDenied"), "these credentials may not get objects (AccessDenied): let them list,"),
        (error(301, "PermanentRedirect"), "the server redirects (301) and does not say to which region"),
        (error(400, "MalformedXML"), "the server refuses to get objects (MalformedXML, no): correct the"),
        (error(404, "NoSuchBucket"), "there is no bucket 'bucket', which the store"),
        (error(503, "SlowDown"), "the server could not get objects (SlowDown, no) after 2 attempts: run"),
    ],
)
def test_what_a_server_answers_is_one_sentence_with_what_to_change(
    cloud: CloudServer, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, said: str
) -> None:
    monkeypatch.setattr("pipeline.store.bucket.objects.ATTEMPTS", 2)
    with proxied(cloud, differs=lambda *_: answer) as (other, _):
        use(other, monkeypatch)
        refused(lambda: Store(cache_of(url, tmp_path)).existing(work()), said)
        refused(lambda: list(Bucket(url).objects("")), said.replace(" get objects", " list objects"))


def test_a_page_of_a_web_server_is_no_empty_bucket(
    cloud: CloudServer, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of the console, whose port was taken for the server's."""
    modified = [("Last-Modified", "Sun, 29 Nov 2026 10:00:00 GMT"), ("Content-Type", "text/html")]
    page = 200, modified, b"<!doctype html><html><body>Log in</body></html>"
    with proxied(cloud, differs=lambda *_: page) as (other, _):
        use(other, monkeypatch)
        said = f"what answers for {url} at {other.endpoint}"
        refused(lambda: list(Bucket(url).objects("")), said)
        refused(lambda: Bucket(url).folders("runs"), said)
        refused(lambda: publish(Store(cache_of(url, tmp_path)), work(), a="one"), said)


def refused(call: Callable[[], object], said: str) -> None:
    with pytest.raises(BucketError) as raised:
        call()
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not any(secret in repr(raised.getrepr(chain=True)) for secret in ("geheim", KEY))


def test_no_server_no_bucket_and_no_credentials_are_one_sentence(
    cloud: CloudServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(lambda: Bucket(f"{cloud.scheme}://nowhere/x").put("a", b""), "there is no bucket 'nowhere'")
    monkeypatch.setattr("pipeline.store.bucket.objects.ATTEMPTS", 2)
    (variable,) = (name for name, value in cloud.environment.items() if value.startswith(cloud.endpoint))
    monkeypatch.setenv(variable, cloud.environment[variable].replace(cloud.endpoint, "http://127.0.0.1:9"))
    refused(lambda: Bucket(url).get("a"), f"no server answers for {url} at http://127.0.0.1:9")
    refused(lambda: Bucket(url).get("a"), f"after 2 attempts: check the network, and {variable}")
    monkeypatch.delenv(CREDENTIALS[cloud.scheme])
    if cloud.scheme == "gs":
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere.json")
    refused(lambda: Bucket(url).get("a"), f"there are no credentials for {url} (")


def test_a_bad_network_changes_nothing(
    cloud: CloudServer, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.store.bucket.objects.ATTEMPTS", 12)
    monkeypatch.setattr("pipeline.store.bucket.objects.PAUSE", timedelta(milliseconds=10))
    content = {f"p{number:02d}": f"{number} " * 20_000 for number in range(12)}
    with proxied(cloud, share=0.25, ways=("500", "503", "reset", "half")) as (bad, proxy):
        use(bad, monkeypatch)
        made = publish(Store(cache_of(url, tmp_path / "one")), work(), **content)
        assert texts(Store(cache_of(url, tmp_path / "two")).current("numbers")) == list(content.values())
        assert len(list(Bucket(url).objects(""))) == len(content) + 2
    assert len(proxy.faults) > 5
    use(cloud, monkeypatch)
    assert texts(Store(cache_of(url, tmp_path / "three")).current("numbers")) == texts(made)


def test_an_old_listing_leaves_nothing_beside_a_version(
    cloud: CloudServer, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(method: str, path: str, _: dict[str, str]) -> Answer | None:
        lists = method == "GET" and "prefix=" in path and RECORDS in path
        empty = (
            b"<EnumerationResults><Blobs/></EnumerationResults>"
            if cloud.scheme == "az"
            else b"<ListBucketResult/>"
        )
        return (200, [], empty) if lists else None

    with proxied(cloud, differs=differs) as (other, _), monkeypatch.context() as patched:
        use(other, patched)
        with Store(cache_of(url, tmp_path)).making(work()) as draft:
            assert isinstance(draft, Draft)
            draft.put(made := part(draft, "a", "one"))
            version = draft.publish([made])
    assert keys(cloud, url) == [f"numbers/{version.path.name}/{at}" for at in (MANIFEST, "table/a.txt")]


def test_a_claim_is_held_by_one_process(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = Claim(Bucket(url), ".trainer"), Claim(Bucket(url), ".trainer")
    mine.take()
    waiting = threading.Thread(target=other.take, daemon=True)
    waiting.start()
    waiting.join(4)
    assert waiting.is_alive()
    mine.confirm()
    mine.release()
    waiting.join(30)
    assert not waiting.is_alive()
    other.confirm()
    with pytest.raises(ClaimLostError):
        mine.confirm()
    monkeypatch.setattr("pipeline.store.bucket.claim.CLAIM_SECONDS", 1.0)
    third = Claim(Bucket(url), ".trainer")
    third.take()  # once the server's clock says that it was not renewed for a second
    third.release()


def test_gc_removes_everything_of_a_version(
    cloud: CloudServer, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Store(cache_of(url, tmp_path))
    publish(here, work("corpora/a/raw"), a="one", b="two")
    monkeypatch.setattr("pipeline.store.bucket.files.YOUNG_SECONDS", -5.0)
    gc.remove(here, gc.find(here))
    assert keys(cloud, url) == []


def test_a_bucket_of_google_that_keeps_generations_is_known(cloud: CloudServer) -> None:
    if cloud.scheme == "gs":
        assert Bucket(f"gs://{VERSIONED}/x").keeps_versions()
