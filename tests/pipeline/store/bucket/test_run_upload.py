"""The checkpoints of a training that lose their optimizer's state, in a bucket."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.store.bucket.errors import BucketError
from pipeline.store.bucket.objects import Bucket
from pipeline.store.files import MANIFEST, Files
from tests.pipeline.store.bucket.test_s3 import address, store, until
from tests.s3_server import S3
from trainer.checkpoint import publish, retention
from trainer.system.durable import write_atomically
from trainer.system.run_directory import RunDirectory

WEIGHTS, OPTIMIZER = "hf/model.safetensors", "optimizer.safetensors"

pytestmark = pytest.mark.usefixtures("s3_environment")


@pytest.fixture
def training(
    server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Files, RunDirectory]]:
    monkeypatch.setattr("pipeline.store.bucket.run_upload.LOOK_EVERY_SECONDS", 0.02)
    files = store(tmp_path).files
    run = RunDirectory(files.root / "runs" / ("a" * 16))
    write_atomically(run.config, "training: {max_tokens: 1}")
    yield files, run
    assert not list(run.path.glob(".upload-*"))


def save(run: RunDirectory, step: int) -> Path:
    checkpoint = run.checkpoint(step)

    def write(directory: Path) -> None:
        for name in (WEIGHTS, OPTIMIZER):
            write_atomically(directory / name, f"{name} of step {step}")

    publish.publish(checkpoint, write)
    return checkpoint


def key_of(tmp_path: Path, checkpoint: Path) -> str:
    return f"{address(tmp_path).removeprefix('s3://bucket/')}/runs/{'a' * 16}/checkpoints/{checkpoint.name}/"


def there(server: S3, tmp_path: Path, checkpoint: Path) -> set[str]:
    """The files of a checkpoint in the bucket."""
    place = key_of(tmp_path, checkpoint)
    return {key.removeprefix(place) for key in server.keys(place)}


def content(server: S3, tmp_path: Path, checkpoint: Path, name: str) -> str:
    found = server.client.get_object(Bucket="bucket", Key=key_of(tmp_path, checkpoint) + name)
    return found["Body"].read().decode()


def test_an_older_checkpoint_loses_its_optimizer_only_when_a_newer_one_is_in_the_bucket(
    training: tuple[Files, RunDirectory], server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, run = training
    upload, refused = Bucket.upload, []

    def without_the_second(self: Bucket, key: str, *arguments: Any) -> str:
        if "step-00000002" in key and len(refused) < 5:
            refused.append(key)
            raise BucketError("the network is down")
        return upload(self, key, *arguments)

    monkeypatch.setattr(Bucket, "upload", without_the_second)
    first = save(run, 1)
    with files.uploading(run.path, []):
        until(lambda: MANIFEST in there(server, tmp_path, first), 20)
        second = save(run, 2)
        retention.drop_optimizers(second, of_newest=False)
        listed = there(server, tmp_path, first)
        while len(refused) < 5:  # the second was still refused after this listing
            assert OPTIMIZER in listed
            listed = there(server, tmp_path, first)
        until(lambda: OPTIMIZER not in there(server, tmp_path, first), 20)
        assert OPTIMIZER in there(server, tmp_path, second)
    for checkpoint in (first, second):
        assert content(server, tmp_path, checkpoint, MANIFEST) == (checkpoint / MANIFEST).read_text()
        names = json.loads((checkpoint / MANIFEST).read_text())["files"]
        assert there(server, tmp_path, checkpoint) == {*names, MANIFEST}


def test_what_is_being_put_is_put_whole_though_training_drops_it_meanwhile(
    training: tuple[Files, RunDirectory], server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, run = training
    first, second = save(run, 1), run.checkpoint(2)
    put, seen = Bucket.put, []

    def dropping(self: Bucket, key: str, *arguments: Any) -> str:
        if "step-00000001/hf" in key and not second.exists():
            retention.drop_optimizers(save(run, 2), of_newest=False)
            assert not (first / OPTIMIZER).exists()
        answer = put(self, key, *arguments)
        if key.endswith(f"step-00000001/{MANIFEST}") and not seen:
            seen.append(content(server, tmp_path, first, OPTIMIZER))
        return answer

    monkeypatch.setattr(Bucket, "put", dropping)
    with files.uploading(run.path, []):
        until(lambda: seen and OPTIMIZER not in there(server, tmp_path, first), 20)
    assert seen == [f"{OPTIMIZER} of step 1"]
    assert there(server, tmp_path, first) == {WEIGHTS, MANIFEST}
    assert OPTIMIZER in there(server, tmp_path, second)
