"""A store in a bucket, on a server of this machine: what is read, published, and left by what goes wrong."""

import hashlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.cli import main
from pipeline.store.bucket.cache import Cache
from pipeline.store.bucket.errors import BucketError
from pipeline.store.bucket.files import cache_of
from pipeline.store.bucket.mirror import FetchError, Mirror
from pipeline.store.bucket.objects import SLICE_BYTES, Bucket
from pipeline.store.cleanup import gc
from pipeline.store.damage import Look
from pipeline.store.draft import Draft
from pipeline.store.files import MANIFEST
from pipeline.store.manifest import File, Part, Version
from pipeline.store.store import Store, StoreError
from pipeline.store.work import Work
from tests.integration.project import until
from tests.s3_server import S3, proxied, use
from trainer.system.durable import write_atomically
from trainer.system.run_directory import RunDirectory

pytestmark = pytest.mark.usefixtures("s3_environment")


def address(tmp_path: Path) -> str:
    """A store of its own for each test."""
    return f"s3://bucket/{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12]}"


def store(tmp_path: Path, machine: str = "one") -> Store:
    """The store as a machine sees it."""
    return Store(cache_of(address(tmp_path), tmp_path / machine))


def work(key: str = "numbers", **inputs: str) -> Work:
    return Work(key, "v1", {}, inputs)


def part(draft: Draft, name: str, text: str) -> Part:
    path = draft.path / "table" / f"{name}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return Part(name, draft.work.part_fingerprint([text]), {"table": File.of(path, draft.path)})


def publish(store: Store, work: Work, **texts: str) -> Version:
    with store.making(work) as draft:
        if isinstance(draft, Version):
            return draft
        return draft.publish([part(draft, name, text) for name, text in texts.items()])


def texts(version: Version) -> list[str]:
    return [file.read_text() for file in version.files("table")]


def objects(server: S3, tmp_path: Path) -> list[str]:
    prefix = address(tmp_path).removeprefix("s3://bucket/") + "/"
    return [key.removeprefix(prefix) for key in server.keys(prefix) if not key.endswith(".groundwork-store")]


def test_what_one_machine_made_another_finds_and_reads(server: S3, tmp_path: Path) -> None:
    made = publish(store(tmp_path), work(), a="one", b="two")
    other = store(tmp_path, "other")
    found = other.existing(work())
    assert found and found.manifest == made.manifest
    assert not list((tmp_path / "other").rglob("*.txt"))  # nothing is fetched before it is read
    assert texts(found) == ["one", "two"]
    name = made.path.name
    assert objects(server, tmp_path) == [
        f"numbers/{name}/{MANIFEST}",
        f"numbers/{name}/table/a.txt",
        f"numbers/{name}/table/b.txt",
    ]


def test_a_killed_run_goes_on_at_its_last_part_on_another_machine(server: S3, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), store(tmp_path).making(work()) as draft:
        assert isinstance(draft, Draft)
        kept = part(draft, "a", "one")
        draft.put(kept)
        raise RuntimeError("the machine dies")
    # A version is there only with its manifest.
    assert store(tmp_path, "other").existing(work()) is None
    with pytest.raises(StoreError, match="has not been made"):
        store(tmp_path, "other").current("numbers")
    with store(tmp_path, "other").making(work()) as draft:
        assert isinstance(draft, Draft)
        found = draft.finished("a", kept.fingerprint)
        assert found == kept
        assert draft.finished("b", "x") is None
        version = draft.publish([found, part(draft, "b", "two")])
    assert texts(version) == ["one", "two"]
    assert not any("/.parts/" in key for key in objects(server, tmp_path))


def test_of_two_machines_that_publish_one_version_one_wins(server: S3, tmp_path: Path) -> None:
    one, two, three = (store(tmp_path, machine) for machine in ("one", "two", "three"))
    with one.making(work()) as first, two.making(work()) as second, three.making(work()) as third:
        assert isinstance(first, Draft) and isinstance(second, Draft) and isinstance(third, Draft)
        parts = [part(draft, "a", text) for draft, text in ((first, "one"), (second, "one"), (third, "ONE"))]
        won, lost, other = (
            draft.publish([made]) for draft, made in zip((first, second, third), parts, strict=True)
        )
    assert lost.reused and other.reused and not won.reused
    assert lost.manifest == other.manifest == won.manifest  # with the time when the first one finished
    # A file that differs from the published one is not put in its place.
    assert texts(other) == texts(store(tmp_path, "fourth").current("numbers")) == ["one"]


def test_a_version_that_another_machine_publishes_meanwhile_gives_its_parts(
    server: S3, tmp_path: Path
) -> None:
    one, two = store(tmp_path), store(tmp_path, "two")
    with two.making(work()) as draft:
        published = publish(one, work(), a="one")
        assert isinstance(draft, Draft)
        found = draft.finished("a", draft.work.part_fingerprint(["one"]))
        assert found and draft.publish([found]).reused
    assert texts(two.current("numbers")) == texts(published) == ["one"]


def test_an_unchanged_part_is_copied_by_the_server(server: S3, tmp_path: Path) -> None:
    publish(store(tmp_path), work(source="1"), a="one", b="two")
    with store(tmp_path, "other").making(work(source="2")) as draft:
        assert isinstance(draft, Draft)
        again = draft.finished("a", draft.work.part_fingerprint(["one"]))
        assert again
        version = draft.publish([again, part(draft, "b", "three")])
    assert not version.file(again, "table").path.exists()  # it was not fetched
    assert texts(version) == ["one", "three"]


def test_a_part_takes_a_request_for_each_file_and_one_for_its_record(
    server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxied(server) as (near, proxy):
        use(near, monkeypatch)
        with store(tmp_path).making(work()) as draft:
            assert isinstance(draft, Draft)
            parts = [part(draft, f"{number:02d}", str(number)) for number in range(40)]
            proxy.methods.clear()
            for made in parts:
                draft.put(made)
            draft.publish(parts)
        assert proxy.methods["PUT"] == 2 * 40 + 1
        assert sum(proxy.methods.values()) < 2 * 40 + 8  # listings, and the removal of the records
        version = store(tmp_path, "other").current("numbers")
        proxy.methods.clear()
        assert texts(version) == [str(number) for number in range(40)]
        assert proxy.methods == {"GET": 40}


def test_what_is_not_what_was_written_is_refused_by_its_name(server: S3, tmp_path: Path) -> None:
    made = publish(store(tmp_path), work(), a="one")
    key = next(key for key in objects(server, tmp_path) if key.endswith(f"{made.path.name}/table/a.txt"))
    folder = address(tmp_path).removeprefix("s3://bucket/") + "/"
    server.client.put_object(Bucket="bucket", Key=folder + key, Body=b"tampered")
    other = store(tmp_path, "other")
    with pytest.raises(FetchError, match=r"a\.txt is corrupt"):
        texts(other.current("numbers"))
    (damage,) = other.damage(other.current("numbers"), Look.ALL)
    assert "is missing or another in s3://" in str(damage)
    server.client.delete_object(Bucket="bucket", Key=folder + key)
    with pytest.raises(FetchError, match=r"a\.txt is missing: remove s3://\S+manifest.json and materialize"):
        texts(other.current("numbers"))


def test_a_damaged_file_of_the_cache_is_fetched_again(server: S3, tmp_path: Path) -> None:
    here = store(tmp_path)
    version = publish(here, work(), a="one")
    version.files("table")[0].path.write_text("!!!")
    assert not here.damage(version, Look.ALL)
    assert texts(version) == ["one"]


def test_a_full_cache_loses_what_was_used_least_recently(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=250)
    files = [tmp_path / name for name in ("a", "b", "c")]
    for age, path in zip((3000, 2000, 1000), files, strict=True):
        path.write_bytes(bytes(100))
        cache.add(path)
        cache._table.execute("update files set used = ? where path = ?", (time.time() - age, path.name))
    cache._noted.clear()
    cache.used(files[0])
    cache.make_room(100)
    assert [path.name for path in files if path.exists()] == ["a"]
    cache.make_room(200)  # what is in use stays
    assert files[0].exists()


def test_of_a_large_file_only_what_is_read_is_fetched(server: S3, tmp_path: Path) -> None:
    publish(store(tmp_path), work(), a="0123456789" * 1000)
    found = store(tmp_path, "other").existing(work())
    assert found
    (file,) = found.files("table")
    with file.open() as opened:
        assert opened.seek(-5, os.SEEK_END) == 9995 and opened.read() == b"56789"
        assert opened.seek(12) and opened.read(3) == b"234" and opened.tell() == 15
    with file.open() as opened:
        assert pa.PythonFile(opened, mode="r").read_at(4, 9994) == b"4567"  # as Arrow reads it
    assert not file.path.exists()
    assert file.read_text() and file.open().read(3) == b"012"
    file.path.unlink()
    with file.open() as opened:
        key = f"{opened._bucket.prefix}/{opened._there.key}"
        server.client.put_object(Bucket="bucket", Key=key, Body=b"other")
        with pytest.raises(BucketError, match="was lost or replaced: run again"):
            opened.read(3)


def test_processes_that_want_one_file_fetch_it_once(server: S3, tmp_path: Path) -> None:
    text = "x" * 3_000_000
    publish(store(tmp_path), work(), a=text)
    with proxied(server, latency=0.1) as (near, proxy):
        read = (
            "import sys; from pathlib import Path; from pipeline.store.bucket.files import cache_of; "
            "from pipeline.store.store import Store; "
            "version = Store(cache_of(sys.argv[1], Path(sys.argv[2]))).current('numbers'); "
            "assert len(version.files('table')[0].read_text()) == 3_000_000"
        )
        command = [sys.executable, "-c", read, address(tmp_path), str(tmp_path / "other")]
        readers = [subprocess.Popen(command, env=os.environ | near.environment) for _ in range(3)]
        assert [reader.wait(120) for reader in readers] == [0, 0, 0]
        assert proxy.moved["GET"] < 2 * len(text)


def test_files_that_are_fetched_side_by_side_are_not_said_to_be_made_by_another_process(
    server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    publish(store(tmp_path), work(), a="one", b="two", c="three")
    other = store(tmp_path, "other")
    paths = [file.path for file in other.current("numbers").files("table")]
    monkeypatch.setattr("pipeline.store.bucket.mirror.LOCKS", 1)
    download = Mirror._download
    monkeypatch.setattr(Mirror, "_download", lambda *given: (time.sleep(0.2), download(*given)))
    caplog.set_level(logging.INFO)
    other.files.fetch_all(paths)
    assert ".txt: waiting until another file is fetched" in caplog.text
    assert "another process is making it" not in caplog.text


def test_gc_removes_what_nothing_names_and_aborts_what_was_begun(
    server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = store(tmp_path)
    publish(here, work("corpora/a/raw"), a="one")
    with pytest.raises(RuntimeError), here.making(work("corpora/a/scrubbed")) as draft:
        assert isinstance(draft, Draft)
        draft.put(part(draft, "a", "one"))
        raise RuntimeError("the run fails")
    key = f"{address(tmp_path).removeprefix('s3://bucket/')}/corpora/a/raw/big"
    server.client.create_multipart_upload(Bucket="bucket", Key=key)
    assert gc.find(here) == []  # another machine may be using it
    monkeypatch.setattr("pipeline.store.bucket.files.YOUNG_SECONDS", -5.0)
    other = store(tmp_path, "other")
    garbage = gc.find(other)
    assert [Path(item.place).parent.as_posix() for item in garbage] == ["corpora/a/raw", "corpora/a/scrubbed"]
    gc.remove(other, garbage)
    other.files.abort_old_uploads()
    assert objects(server, tmp_path) == []
    assert server.unfinished() == 0
    assert store(tmp_path, "third").existing(work("corpora/a/raw")) is None


def test_a_checkpoint_can_be_pinned_on_another_machine_than_the_one_that_trains(
    server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = store(tmp_path).files
    run = RunDirectory(files.root / "runs" / ("a" * 16))
    saved = run.checkpoints / "step-00000001" / MANIFEST
    for path, text in ((run.config, "training: {max_tokens: 1}"), (saved, '{"files": {}}')):
        write_atomically(path, text)
        files.push(path)
    monkeypatch.setattr("pipeline.store.bucket.run_upload.REFRESHED_EVERY_SECONDS", 0.0)
    monkeypatch.setenv("GROUNDWORK_STORE", address(tmp_path))
    another = tmp_path / "another"
    another.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(another))
    with files.uploading(run.path, []):
        for options, expected in (([], {"step-00000001"}), (["--no"], set())):
            assert main(["keep", "aaaaaaaa-00000001", *options]) == 0
            until(lambda expected=expected: run.pinned() == expected, 20)


def test_a_large_file_goes_in_slices_and_a_failed_upload_leaves_nothing(
    server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, content = tmp_path / "large", os.urandom(2 * SLICE_BYTES + 7)
    path.write_bytes(content)
    bucket = Bucket(address(tmp_path))
    sha256 = hashlib.sha256(content).hexdigest()
    for replacing in (None, ""):
        with proxied(server) as (near, proxy):
            use(near, monkeypatch)
            assert Bucket(address(tmp_path)).upload(f"large{replacing}", path, sha256, replacing)
            assert proxy.methods["PUT"] == {None: 3, "": 1}[replacing]  # only in one request on a condition
        use(server, monkeypatch)
        found = bucket.download(f"large{replacing}", tmp_path / "back", lambda _: None)
        assert found and found[1] == sha256 == found[0].sha256
    assert not bucket.upload("large", path, sha256, "")  # there is one already
    refusal = 400, [], b"<Error><Code>EntityTooSmall</Code><Message>no</Message></Error>"
    second = lambda _, asked, __: refusal if "partNumber=2" in asked else None  # noqa: E731
    with proxied(server, differs=second) as (bad, _):
        use(bad, monkeypatch)
        with pytest.raises(BucketError, match="the server refuses to put objects"):
            Bucket(address(tmp_path)).upload("other", path, sha256)
    assert server.unfinished() == 0
    assert bucket.head("other") is None


@pytest.mark.slow
def test_a_bad_network_changes_nothing(server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.store.bucket.objects.ATTEMPTS", 12)
    content = {f"p{number:02d}": f"{number} " * 50_000 for number in range(20)}
    with proxied(server, share=0.25) as (bad, proxy):
        use(bad, monkeypatch)
        made = publish(store(tmp_path), work(), **content)
        assert texts(store(tmp_path, "other").current("numbers")) == list(content.values())
    assert len(proxy.faults) > 5
    use(server, monkeypatch)
    assert len(objects(server, tmp_path)) == len(content) + 1
    assert texts(store(tmp_path, "third").current("numbers")) == texts(made)


PUBLISHER = """
import sys
from pathlib import Path
from tests.pipeline.store.bucket.test_s3 import LARGE, publish, work
from pipeline.store.bucket import objects as bucket
from pipeline.store.bucket.files import cache_of
from pipeline.store.store import Store
bucket.SLICE_BYTES = 5_300_000
store = Store(cache_of(sys.argv[1], Path(sys.argv[2])))
store.existing(work())
print("begins", flush=True)
publish(store, work(), **LARGE)
"""
LARGE = {name: name * 11_000_000 for name in "abc"}


@pytest.mark.slow
def test_a_hundred_kills_while_publishing_leave_no_half_version(
    server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each publisher is killed a little later; whatever it left, a reader finds a whole version or none."""

    def publishing(machine: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", PUBLISHER, address(tmp_path), str(tmp_path / machine)]
        run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert run.stdout and run.stdout.readline() == "begins\n"
        return run

    def removed() -> None:
        for key in objects(server, tmp_path):
            server.client.delete_object(Bucket="bucket", Key=folder + key)

    folder = address(tmp_path).removeprefix("s3://bucket/") + "/"
    first = publishing("timed")
    began = time.monotonic()
    assert first.wait() == 0
    usual, whole, abandoned = time.monotonic() - began, 0, 0
    removed()
    for number in range(100):
        run = publishing(f"m{number}")
        time.sleep(1.2 * usual * number / 100)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        reader = store(tmp_path, f"r{number}")
        if found := reader.existing(work()):
            whole += 1
            assert texts(found) == list(LARGE.values())
            removed()
        abandoned = max(abandoned, server.unfinished())
        for machine in (f"m{number}", f"r{number}"):
            shutil.rmtree(tmp_path / machine, ignore_errors=True)
    print(f"{whole} whole versions; at most {abandoned} abandoned uploads")
    assert 0 < whole < 100
    monkeypatch.setattr("pipeline.store.bucket.files.YOUNG_SECONDS", -5.0)
    there = store(tmp_path, "last")
    gc.remove(there, gc.find(there))
    there.files.abort_old_uploads()
    assert server.unfinished() == 0
