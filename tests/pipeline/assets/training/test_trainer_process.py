"""What Dagster does with a trainer: shows what it says, keeps what it saves, starts it again where that may
help, and says why where it does not.
"""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from sqlalchemy.exc import OperationalError

from pipeline.assets import trainer_process
from pipeline.steps.training.effort import Stopwatch
from pipeline.store.bucket.claim import ClaimLostError
from tests.integration.project import until
from tests.pipeline.assets.training.conftest import KEY, LAST, Train, entry, sends


def attempts(tmp_path: Path) -> int:
    return len((tmp_path / "attempts").read_text())


def reason(result: dg.ExecuteInProcessResult) -> str:
    (failure,) = [
        event.step_failure_data.user_failure_data for event in result.all_events if event.is_step_failure
    ]
    assert failure and failure.description
    return failure.description


def test_a_trainer_that_something_stopped_or_that_failed_goes_on_in_another_attempt(
    trains: Train, tmp_path: Path
) -> None:
    program = "if attempt == 1: sys.exit(75)\nif attempt == 2: raise RuntimeError('CUDA error')\n" + sends(
        LAST
    )
    with dg.DagsterInstance.ephemeral() as instance:
        result = trains(program, instance)
        assert result.success and attempts(tmp_path) == 3
        assert entry(instance).metadata["step"].value == 32
        said = [event.message for event in instance.all_logs(result.run_id)]
    assert [text for text in said if "restarting the trainer" in text and "exit status 75" in text]
    assert [text for text in said if "restarting the trainer" in text and "RuntimeError: CUDA error" in text]


def test_a_mistake_of_the_users_is_told_in_the_trainers_words_and_not_tried_again(
    trains: Train, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        why = reason(
            trains("print('trainer: no GPU has room for this', file=sys.stderr)\nsys.exit(2)", instance)
        )
    assert (
        why == "the trainer ended with exit status 2. Its last lines:\ntrainer: no GPU has room for this"
        and attempts(tmp_path) == 1
    )
    assert "trainer: no GPU has room for this\n" in capfd.readouterr().err


def test_under_torchrun_the_reason_is_the_trainers_and_not_torchruns(trains: Train) -> None:
    program = "print('trainer: no GPU has room for this', file=sys.stderr)\nsys.exit(2)"
    with dg.DagsterInstance.ephemeral() as instance:
        torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
        why = reason(trains(program, instance, *torchrun, wrapper=("env", "MARK=1")))
    assert why.startswith("the trainer ended with exit status 2") and why.endswith("no GPU has room for this")
    assert "ChildFailedError" not in why


def test_a_mistake_that_ended_torchrun_is_not_tried_again(trains: Train, tmp_path: Path) -> None:
    program = (
        "print('trainer: lower the learning rate', file=sys.stderr, flush=True)\n"
        "os.kill(os.getppid(), signal.SIGTERM)\nsys.exit(2)"
    )
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--max-restarts=3")
    with dg.DagsterInstance.ephemeral() as instance:
        why = reason(trains(program, instance, *torchrun))
    assert why == ("the trainer ended with exit status 2. Its last lines:\ntrainer: lower the learning rate")
    assert attempts(tmp_path) == 1


def test_a_trainer_whose_run_another_machine_may_train_is_stopped(trains: Train, tmp_path: Path) -> None:
    def check_claim() -> None:
        if (tmp_path / "began").exists():
            raise ClaimLostError("this process has lost its claim")

    began = repr(str(tmp_path / "began"))
    with dg.DagsterInstance.ephemeral() as instance:
        began_at = time.monotonic()
        why = reason(trains(f"Path({began}).touch()\ntime.sleep(300)", instance, check_claim=check_claim))
    assert why == "this process has lost its claim" and attempts(tmp_path) == 1
    assert time.monotonic() - began_at < 60


def test_a_command_gets_the_run_and_its_last_lines_are_the_reason_of_a_failure(
    trains: Train, tmp_path: Path
) -> None:
    program = "print('srun: error:', os.environ['MARK'], *sys.argv[1:3], file=sys.stderr)\nsys.exit(3)"
    with dg.DagsterInstance.ephemeral() as instance:
        why = reason(trains(program, instance, wrapper=("env", "MARK=1")))
    assert why == "the trainer ended with exit status 3. Its last lines:\nsrun: error: 1 -m trainer"
    assert attempts(tmp_path) == trainer_process.ATTEMPTS


def test_what_a_trainer_says_itself_is_the_reason(
    trains: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_process, "ATTEMPTS", 1)
    program = (
        sends({"kind": "error", "message": "rank 0: out of memory"})
        + "print('noise', file=sys.stderr)\nsys.exit(1)"
    )
    with dg.DagsterInstance.ephemeral() as instance:
        why = reason(trains(program, instance))
    assert why == "the trainer ended with exit status 1. rank 0: out of memory" and attempts(tmp_path) == 1


@pytest.mark.parametrize("wrapper", [(), ("env", "MARK=1")], ids=["subprocess", "command"])
def test_a_training_that_a_person_ends_is_not_started_again(
    trains: Train, tmp_path: Path, wrapper: tuple[str, ...]
) -> None:
    program = (
        "signal.signal(signal.SIGTERM, lambda *_: "
        "sys.exit(75))\nPath(__file__).with_name('ready').touch()\ntime.sleep(60)"
    )
    with dg.DagsterInstance.ephemeral() as instance:

        def end() -> None:
            until((tmp_path / "ready").exists, 30)
            instance.report_run_canceled(instance.get_runs()[0])

        person = threading.Thread(target=end)
        person.start()
        result = trains(program, instance, wrapper=wrapper)
        person.join()
    assert not result.success and attempts(tmp_path) == 1


def test_training_outlives_a_database_that_is_away(
    trains: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = tmp_path / "back"
    failed: Counter[str] = Counter()
    with dg.DagsterInstance.ephemeral() as instance:

        def fails_at_first(name: str) -> Callable[..., Any]:
            usual = getattr(instance, name)

            def asked(*args: Any, **kwargs: Any) -> Any:
                if back.exists() or not (tmp_path / "attempts").exists():
                    return usual(*args, **kwargs)
                failed[name] += 1
                if len(failed) == 2 and min(failed.values()) > 1:
                    back.touch()
                raise OperationalError("SELECT", {}, Exception("the server is restarting"))

            return asked

        for name in ("get_run_by_id", "fetch_materializations"):
            monkeypatch.setattr(instance, name, fails_at_first(name))
        waits = f"while not Path({str(back)!r}).exists(): time.sleep(0.05)"
        assert trains(sends({**LAST, "step": 8, "tokens": 4096}, LAST, after_each=waits), instance).success
        keys = {
            str(record.partition_key)[-2:] for record in instance.fetch_materializations(KEY, limit=9).records
        }
    assert attempts(tmp_path) == 1 and keys == {"08", "32"}


def test_a_training_that_is_stopped_says_what_is_saved(
    trains: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves = sends({**LAST, "step": 8, "tokens": 4096}).replace("\n", "\n    ")
    program = f"""def save(*_):
    {saves}
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
Path(__file__).with_name('ready').touch()
time.sleep(60)
"""

    def stop() -> None:
        until((tmp_path / "ready").exists, 30)
        os.kill(os.getpid(), signal.SIGINT)

    person = threading.Thread(target=stop)
    person.start()
    with dg.DagsterInstance.ephemeral() as instance:
        result = trains(program, instance)
        person.join()
        (run,) = instance.get_runs()
        assert run.status is dg.DagsterRunStatus.CANCELED and attempts(tmp_path) == 1
    (failure,) = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    saved = "saved at step 8 (4,096 of 16,384 tokens): run the job again to resume"
    assert failure.error and failure.error.message.strip().endswith(saved)


def test_the_seconds_of_a_resumed_training_count_all_its_attempts(tmp_path: Path) -> None:
    first = Stopwatch(tmp_path)
    time.sleep(0.2)
    first.save()
    assert Stopwatch(tmp_path).seconds >= 0.2


@pytest.mark.parametrize(("step", "said"), [(12, True), (26, False)])
def test_a_training_that_resumes_beyond_what_it_shares_does_not_continue_from_there(
    step: int, said: bool, trains: Train
) -> None:
    start = {"kind": "start", "parameters": 920_448, "flops_per_token": 4_337_664, "device": "cpu"}
    start |= {"processes": 1, "precision": "bf16", "attention": "math", "tokens_total": 16_384}
    start |= {"epochs": {}, "padding": {}, "resumed_from": f"/runs/b/checkpoints/step-{step:08d}"}
    start |= {"trunks": [{"run": "6ddca120", "step": 12, "tokens": 6_144}]}
    with dg.DagsterInstance.ephemeral() as instance:
        result = trains(sends(start, LAST), instance)
        lines = [event.message for event in instance.all_logs(result.run_id)]
    assert any("continuing from 6ddca120 at step 12" in line for line in lines) == said
