"""Servers, addresses and disks that are not as they should be: one sentence each, with what to change."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.store.bucket.errors import BucketError
from pipeline.store.bucket.files import cache_of
from pipeline.store.bucket.objects import Bucket
from pipeline.store.errors import PipelineError
from pipeline.store.store import Store
from tests.pipeline.store.bucket.test_s3 import address, objects, publish, store, texts, work
from tests.s3_server import S3, Answer, proxied, use

pytestmark = pytest.mark.usefixtures("s3_environment")

Differs = Callable[[str, str, dict[str, str]], Answer | None]


def error(status: int, code: str) -> Answer:
    return status, [], f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()


def ignoring(condition: str) -> Differs:
    """Its requests do not have the condition."""

    def differs(_: str, __: str, headers: dict[str, str]) -> None:
        headers.pop(condition, None)

    return differs


def refusing(status: int, code: str) -> Differs:
    def differs(_: str, __: str, headers: dict[str, str]) -> Answer | None:
        return error(status, code) if {"if-match", "if-none-match"} & headers.keys() else None

    return differs


@pytest.mark.parametrize(
    ("differs", "named"),
    [
        (ignoring("if-none-match"), "(If-None-Match)"),
        (ignoring("if-match"), "(If-Match)"),
        (refusing(501, "NotImplemented"), "(If-None-Match)"),
        (refusing(400, "InvalidArgument"), "(If-None-Match)"),
    ],
)
def test_a_server_without_a_condition_is_refused_before_anything_is_written(
    server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, differs: Differs, named: str
) -> None:
    with proxied(server, differs=differs) as (other, _):
        use(other, monkeypatch)
        with pytest.raises(BucketError) as raised:
            publish(store(tmp_path), work(), a="one")
    assert f"{address(tmp_path)} does not take conditions {named}" in str(raised.value)
    prefix = address(tmp_path).removeprefix("s3://bucket/")
    assert server.keys(prefix) == [f"{prefix}/.groundwork-store"]
    assert server.unfinished() == 0


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (error(403, "RequestTimeTooSkewed"), "the clock of this machine is not that of the server: set it"),
        (error(301, "PermanentRedirect"), "the server redirects (301) and does not say to which region"),
        (error(400, "MalformedXML"), "the server refuses to get objects (MalformedXML"),
    ],
)
def test_what_a_server_answers_is_one_sentence_with_what_to_change(
    server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, said: str
) -> None:
    with proxied(server, differs=lambda *_: answer) as (other, _):
        use(other, monkeypatch)
        with pytest.raises(BucketError) as raised:
            store(tmp_path).existing(work())
    assert said in str(raised.value)
    assert "\n" not in str(raised.value) and "attempts" not in str(raised.value)


def failing(times: int, answer: Answer, method: str) -> Differs:
    """The first requests of this method are answered so."""
    answers = iter([answer] * times)
    return lambda asked, *_: next(answers, None) if asked == method else None


def test_an_outage_of_a_server_that_has_answered_is_waited_for(
    server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pipeline.store.bucket.objects.ATTEMPTS", 2)
    outage = failing(5, error(503, "SlowDown"), "PUT")
    with proxied(server, differs=outage) as (other, _):
        use(other, monkeypatch)
        bucket = Bucket(address(tmp_path))
        with pytest.raises(BucketError, match="could not put objects"):  # which may be the wrong server
            bucket.put("a", b"one")
        assert bucket.get("a") is None
        assert bucket.put("a", b"one") and bucket.get("a", 0, 3)
    (said,) = (record.message for record in caplog.records if record.levelname == "WARNING")
    assert f"{address(tmp_path)}: the server could not put objects, trying again for up to" in said


def test_an_outage_that_lasts_is_one_sentence(
    server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.store.bucket.objects.ATTEMPTS", 2)
    monkeypatch.setattr("pipeline.store.bucket.objects.PATIENT_SECONDS", 3.0)
    with proxied(server, differs=failing(1000, error(503, "SlowDown"), "PUT")) as (other, proxy):
        use(other, monkeypatch)
        bucket = Bucket(address(tmp_path))
        assert bucket.get("a") is None
        with pytest.raises(BucketError, match=r"could not put objects \(SlowDown.*: run again later"):
            bucket.put("a", b"one")
        assert proxy.methods["PUT"] > 4


@pytest.mark.parametrize(
    "answer",
    [error(400, "RequestTimeout"), error(409, "OperationAborted"), error(409, "ConditionalRequestConflict")],
)
@pytest.mark.parametrize("replacing", [None, ""])
def test_what_the_library_takes_for_an_answer_is_tried_again(
    server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, replacing: str | None
) -> None:
    with proxied(server, differs=failing(1, answer, "PUT")) as (other, _):
        use(other, monkeypatch)
        bucket = Bucket(address(tmp_path))
        assert bucket.put("a", b"one", replacing)
        assert bucket.get("a", 0, 3)


def test_a_conflict_that_stays_is_no_success(
    server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxied(server, differs=failing(1000, error(409, "Other"), "PUT")) as (other, _):
        use(other, monkeypatch)
        with pytest.raises(BucketError, match=r"the server refuses to put objects \(Other"):
            Bucket(address(tmp_path)).put("a", b"one")


@pytest.mark.parametrize("prefix", ["pre#one", "pre?two"])
def test_a_prefix_of_which_a_part_would_be_cut_off_is_refused(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(BucketError, match=r"s3://bucket/pre.*a prefix without # and \? is needed"):
        cache_of(f"s3://bucket/{prefix}", tmp_path)


@pytest.mark.parametrize("host", ["AKIAX:SECRETY@bucket", "AKIAX:SEC/SECRETY@bucket", "SECRETY@bucket"])
def test_credentials_in_an_address_are_refused_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    for scheme in ("s3", "https"):
        monkeypatch.setenv("GROUNDWORK_STORE", f"{scheme}://{host}/pre")
        assert main(["disk"]) == 2
        said = capsys.readouterr().err
        assert "write s3://bucket/prefix, and set credentials and AWS_ENDPOINT_URL" in said
        assert len(said.splitlines()) == 1
        assert "AKIAX" not in said and "SEC" not in said
    assert not list(tmp_path.rglob("*SECRET*"))


def test_gc_says_that_a_bucket_keeps_what_it_removes(
    server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.client.create_bucket(Bucket="versioned")
    status = {"Status": "Enabled"}
    server.client.put_bucket_versioning(Bucket="versioned", VersioningConfiguration=status)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    for bucket, keeps in (("versioned", True), ("bucket", False)):
        monkeypatch.setenv("GROUNDWORK_STORE", f"s3://{bucket}/gc")
        assert main(["gc", "--delete"]) == 0
        said = f"s3://{bucket}/gc keeps old versions: what is removed takes space until a lifecycle rule"
        assert (said in capsys.readouterr().out) == keeps


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (error(500, "InternalError"), "all else was done: the next `gc --delete` tries again"),
        (error(403, "AccessDenied"), "all else was done: let these credentials list and abort them (s3:List"),
    ],
)
def test_gc_frees_what_it_can_when_unfinished_uploads_cannot_be_listed(
    server: S3,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: Answer,
    said: str,
) -> None:
    monkeypatch.setattr("pipeline.store.bucket.files.YOUNG_SECONDS", -5.0)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("GROUNDWORK_STORE", address(tmp_path))
    publish(store(tmp_path), work("corpora/a/raw"), a="one")
    with proxied(server, differs=lambda _, asked, __: answer if "uploads" in asked else None) as (other, _):
        use(other, monkeypatch)
        assert main(["gc", "--delete"]) == 2
    printed = capsys.readouterr()
    assert "corpora/a/raw" in printed.out and "freed" in printed.out
    assert said in printed.err
    assert objects(server, tmp_path) == []


def test_verify_names_what_is_gone_from_a_bucket_and_how_to_repair_it(
    server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a machine that has fetched nothing."""
    made = publish(store(tmp_path), work("exported_model"), a="one", b="two", c="three")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "another"))
    (tmp_path / "another").mkdir()
    monkeypatch.setenv("GROUNDWORK_STORE", address(tmp_path))
    assert main(["verify"]) == 0
    folder = f"{address(tmp_path).removeprefix('s3://bucket/')}/exported_model/{made.path.name}"
    server.client.delete_object(Bucket="bucket", Key=f"{folder}/table/a.txt")
    server.client.put_object(Bucket="bucket", Key=f"{folder}/table/b.txt", Body=b"t")
    capsys.readouterr()
    assert main(["verify"]) == 2
    said = capsys.readouterr().out
    assert [line.split("/table/")[1] for line in said.splitlines() if "DAMAGED" in line] == [
        f"{name} is missing or another in {address(tmp_path)}" for name in ("a.txt", "b.txt")
    ]
    assert f"to repair it  remove s3://bucket/{folder}/manifest.json, since no recipe uses it" in said


def test_a_run_that_is_not_in_the_bucket_is_looked_for_there_and_not_in_the_cache(
    server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("GROUNDWORK_STORE", address(tmp_path))
    for command in (["keep", "deadbeef"], ["push", "owner/name", "--model", "deadbeef"]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert f"no run of this name in {address(tmp_path)}/runs (GROUNDWORK_STORE names another" in said


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no small disk: to mount one needs root")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("free", range(0, 60_000, 12_000))
def test_a_full_disk_of_the_cache_is_one_sentence(
    server: S3, tmp_path: Path, small_disk: Path, free: int
) -> None:
    made = publish(store(tmp_path), work(), **{f"p{number}": "x" * 40_000 for number in range(6)})
    filler = small_disk / "filler"
    filler.write_bytes(bytes(400_000 - free))

    def read() -> list[str]:
        return texts(Store(cache_of(address(tmp_path), small_disk)).open("numbers", made.path.name))

    with pytest.raises(PipelineError, match=f"{small_disk}.* cannot be .*: free some space") as raised:
        read()
    assert "\n" not in str(raised.value)
    filler.unlink()
    assert read() == ["x" * 40_000] * 6


def test_keys_region_and_endpoint_may_come_from_a_profile(
    server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in server.environment:
        monkeypatch.delenv(name)
    config = tmp_path / "config"
    settings = {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "geheim",
        "region": "us-east-1",
        "endpoint_url": server.endpoint,
    }
    config.write_text("[profile mine]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    publish(store(tmp_path), work(), a="one")
    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(config))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.endpoint)
    with pytest.raises(BucketError, match="there are no credentials for s3://bucket"):
        Store(cache_of(f"{address(tmp_path)}/other", tmp_path)).existing(work())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "geheim")
    assert publish(Store(cache_of(f"{address(tmp_path)}/third", tmp_path)), work(), a="one").path
