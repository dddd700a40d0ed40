"""A bucket that cannot be used is told in one sentence."""

import sys
from pathlib import Path

import pytest

from pipeline.store.bucket.errors import BucketError
from pipeline.store.bucket.files import cache_of
from pipeline.store.store import Store
from tests.pipeline.store.bucket.test_s3 import address, publish, store, work
from tests.servers import Handler, Server, serving

pytestmark = pytest.mark.usefixtures("s3_environment")


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("AWS_ACCESS_KEY_ID", None, "there are no credentials for s3://bucket"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9", "no server answers for s3://bucket"),
    ],
)
def test_what_a_person_must_correct_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, value: str | None, said: str
) -> None:
    if value is None:
        monkeypatch.delenv(setting)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("HOME", str(tmp_path))
    else:
        monkeypatch.setenv(setting, value)
    monkeypatch.setattr("pipeline.store.bucket.objects.ATTEMPTS", 2)
    with pytest.raises(BucketError, match=said) as raised:
        store(tmp_path).existing(work())
    assert "geheim" not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("lacking", "scheme", "extra"),
    [
        ("obstore", "s3", "s3"),
        ("botocore", "s3", "s3"),
        ("obstore", "gs", "bucket"),
        ("obstore", "az", "bucket"),
    ],
)
def test_the_extra_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str, scheme: str, extra: str
) -> None:
    for name in (lacking, f"{lacking}.session", f"{lacking}.store"):
        monkeypatch.setitem(sys.modules, name, None)
    there = Store(cache_of(f"{scheme}://bucket/x", tmp_path))
    for reached in (lambda: there.existing(work()), lambda: publish(there, work(), a="one")):
        with pytest.raises(BucketError, match=rf"needs {lacking}: run .* -e '\.\[{extra}\]'"):
            reached()


def test_a_bucket_that_is_missing_or_has_another_scheme_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BucketError, match="there is no bucket 'nowhere'"):
        publish(Store(cache_of("s3://nowhere/x", tmp_path)), work(), a="one")
    with pytest.raises(BucketError, match="ftp://bucket/x is not a store"):
        cache_of("ftp://bucket/x", tmp_path)
    monkeypatch.setenv("GROUNDWORK_CACHE_BYTES", "100 GB")
    with pytest.raises(BucketError, match="GROUNDWORK_CACHE_BYTES is '100 GB'"):
        cache_of(address(tmp_path), tmp_path)


@pytest.mark.parametrize("code", ["InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied"])
def test_refused_credentials_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    class Refusing(Handler):
        def asked(self) -> None:
            self.answer(403, {}, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode())

    with serving(Server(Refusing)) as refusing:
        monkeypatch.setenv("AWS_ENDPOINT_URL", refusing.url)
        with pytest.raises(BucketError) as raised:
            store(tmp_path).existing(work())
    named = {"InvalidAccessKeyId": "AWS_ACCESS_KEY_ID", "SignatureDoesNotMatch": "AWS_SECRET_ACCESS_KEY"}
    assert named.get(code, "may not get objects (AccessDenied)") in str(raised.value)
