"""What Dagster knows of checkpoints: which of them are on disk, can be evaluated, or were deleted."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from time import strftime

import dagster as dg
import pytest

from pipeline.assets import checkpoints
from pipeline.assets.checkpoints import update_weights
from pipeline.assets.evaluation import checkpoint_evaluation_spec, evaluate_job
from pipeline.assets.operations import orphaned_runs, runs
from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.operations.sensors import new_checkpoint_sensor
from pipeline.assets.used_recipe import CHECKPOINT, EVALUATED, ON_DISK, OWN, SAVED
from pipeline.recipe.recipe import RECIPES
from pipeline.store import keys
from pipeline.store.store import Store
from tests.integration.project import TRAINING
from trainer.system.paths import STORE_VARIABLE

KEY, EVALUATION_KEY, BENCHMARKS_KEY = map(
    OWN.asset, (CHECKPOINT, keys.CHECKPOINT_EVALUATION, keys.BENCHMARKS)
)
FIRST, SECOND, THIRD = (f"0123abcd-{step:08d}" for step in (8, 16, 24))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    return Store(tmp_path / "store")


@pytest.fixture
def instance(store: Store) -> Iterator[dg.DagsterInstance]:
    """Dagster after a training that saved three steps."""
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(SAVED, [FIRST, SECOND, THIRD])
        for key in (FIRST, SECOND, THIRD):
            save(store, key)
            path = dg.MetadataValue.path(directory(store, key))
            instance.report_runless_asset_event(
                dg.AssetMaterialization(KEY, partition=key, metadata={"path": path})
            )
        yield instance


def directory(store: Store, key: str) -> Path:
    return store.root / "runs" / "0123abcd45678901" / "checkpoints" / f"step-{key[-8:]}"


def save(store: Store, key: str) -> None:
    directory(store, key).mkdir(parents=True)
    (directory(store, key).parents[1] / "config.yaml").touch()
    (directory(store, key) / "manifest.json").write_text("{}")


def evaluated(instance: dg.DagsterInstance, key: str) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization(EVALUATION_KEY, partition=key))


def partitions(instance: dg.DagsterInstance, of: str) -> list[str]:
    return sorted(instance.get_dynamic_partitions(of))


def deleted(instance: dg.DagsterInstance) -> list[str]:
    """The checkpoints with a note that they were deleted, one for each note."""
    notes = instance.fetch_observations(KEY, limit=9).records
    assert all(note.asset_observation.metadata["on disk"].value == "no, deleted" for note in notes)
    return sorted(str(note.partition_key) for note in notes)


def test_a_deleted_checkpoint_is_noted_once_and_can_no_longer_be_evaluated(
    store: Store, instance: dg.DagsterInstance
) -> None:
    assert update_weights(instance, store, OWN) == [FIRST, SECOND, THIRD]
    assert partitions(instance, ON_DISK) == partitions(instance, EVALUATED) == [FIRST, SECOND, THIRD]
    assert not deleted(instance)
    evaluated(instance, FIRST)
    for key in (FIRST, SECOND):
        shutil.rmtree(directory(store, key))
    for _ in range(2):
        assert update_weights(instance, store, OWN) == [THIRD]
        assert partitions(instance, SAVED) == [FIRST, SECOND, THIRD]
        assert partitions(instance, ON_DISK) == [THIRD]
        assert partitions(instance, EVALUATED) == [FIRST, THIRD]  # not the one that nobody can evaluate
        assert deleted(instance) == [FIRST, SECOND]


def test_an_entry_that_a_person_reported_is_noted_as_deleted_and_stops_nothing(
    store: Store, instance: dg.DagsterInstance
) -> None:
    shutil.rmtree(directory(store, FIRST))
    for key in (FIRST, SECOND):  # "Report materialization" in the UI
        instance.report_runless_asset_event(dg.AssetMaterialization(KEY, partition=key))
    for _ in range(2):
        assert update_weights(instance, store, OWN) == [SECOND, THIRD]
        assert deleted(instance) == [FIRST]


def test_the_checkpoints_of_another_store_are_not_taken_for_deleted(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    assert update_weights(instance, Store(tmp_path / "other"), OWN) == []
    assert not partitions(instance, ON_DISK) and not deleted(instance)


def test_a_kept_checkpoint_answers_benchmarks_that_a_recipe_named_after_its_evaluation(
    store: Store, instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.jsonl").write_text('{"context": "a", "continuations": ["b", "c"], "gold": 0}')
    recipe = {
        "name": "mine",
        "corpora": [{"name": "notes", "source": {"kind": "files", "paths": ["notes.md"]}}],
        "training": TRAINING,
        "evaluation": {"benchmarks": [{"name": "mine", "path": "mine.jsonl"}]},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(tmp_path / "recipe.yaml"))
    evaluated(instance, FIRST)
    evaluated(instance, SECOND)
    instance.report_runless_asset_event(dg.AssetMaterialization(BENCHMARKS_KEY, partition=SECOND))
    with dg.build_sensor_context(instance, resources={"workshop": PipelineResources()}) as context:
        result = new_checkpoint_sensor(OWN)(context)
    assert isinstance(result, dg.SensorResult)
    asked = {(request.run_key, request.partition_key) for request in result.run_requests or ()}
    assert asked == {(THIRD, THIRD), (f"benchmarks of {FIRST}", FIRST)}


def test_an_evaluation_that_failed_is_asked_for_once_more(
    store: Store, instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(RECIPES / "tiny.yaml"))

    def asked() -> set[str | None]:
        with dg.build_sensor_context(instance, resources={"workshop": PipelineResources()}) as context:
            result = new_checkpoint_sensor(OWN)(context)
        assert isinstance(result, dg.SensorResult)
        return {request.run_key for request in result.run_requests or () if request.partition_key == FIRST}

    assert asked() == {FIRST}
    shutil.rmtree(directory(store, FIRST))
    evaluation(instance, {"dagster/partition": FIRST})
    (directory(store, FIRST)).mkdir(parents=True)
    (directory(store, FIRST) / "manifest.json").touch()
    assert asked() == {FIRST, f"{FIRST} again"}  # Dagster starts a run for a key once


def test_a_checkpoint_whose_evaluation_a_person_canceled_is_named_and_not_asked_for_again(
    store: Store, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(RECIPES / "tiny.yaml"))
    evaluated(instance, THIRD)

    def tick() -> tuple[set[str | None], str]:
        with dg.build_sensor_context(instance, resources={"workshop": PipelineResources()}) as context:
            result = new_checkpoint_sensor(OWN)(context)
        assert isinstance(result, dg.SensorResult)
        said = result.skip_reason.skip_message if isinstance(result.skip_reason, dg.SkipReason) else ""
        return {request.run_key for request in result.run_requests or ()}, said or ""

    def started(key: str, sensor: str) -> None:
        tags = {"dagster/sensor_name": sensor, "dagster/run_key": key, "dagster/partition": key}
        instance.create_run_for_job(evaluate_job("", OWN), status=dg.DagsterRunStatus.CANCELED, tags=tags)

    assert tick() == ({FIRST, SECOND}, "")
    started(FIRST, "checkpoint_saved")
    started(SECOND, "another")
    assert tick() == ({SECOND}, "")
    started(SECOND, "checkpoint_saved")
    requests, said = tick()
    assert not requests
    assert said.endswith(
        f"has a run of `evaluate`. If that failed or was canceled, start it again: {FIRST}, {SECOND}"
    )
    evaluated(instance, FIRST)
    evaluated(instance, SECOND)
    assert tick() == (set(), "every checkpoint on disk has been evaluated")


def test_a_run_that_will_wait_to_train_says_for_whom_since_when_and_what_to_do(
    instance: dg.DagsterInstance,
) -> None:
    said = list[str | None]()

    @dg.op
    def trains(context: dg.OpExecutionContext) -> None:
        instance.event_log_storage.set_concurrency_slots("gpu", 1)
        instance.event_log_storage.claim_concurrency_slot("gpu", context.run_id, "trains")
        said.extend(runs.waits_for_pool(instance, "gpu", one) for one in (context.run_id, "another"))
        instance.event_log_storage.set_concurrency_slots("gpu", 2)
        said.append(runs.waits_for_pool(instance, "gpu", "another"))

    @dg.job
    def pretrain() -> None:
        trains()

    run = pretrain.execute_in_process(instance=instance)
    before, told, with_room = said
    assert before is with_room is None
    assert told
    assert told.startswith(f"run {run.run_id[:8]} of the job pretrain, under way since {strftime('%Y-')}")
    assert "holds the pool 'gpu'" in told
    assert "stop that one" in told


def test_a_run_that_waits_for_the_pool_is_tagged_with_the_run_that_has_it(
    store: Store, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(RECIPES / "tiny.yaml"))

    @dg.job
    def training() -> None: ...

    trains, waits = (
        instance.create_run_for_job(training, status=dg.DagsterRunStatus.STARTED) for _ in range(2)
    )

    def told() -> list[str | None]:
        with dg.build_sensor_context(instance, resources={"workshop": PipelineResources()}) as context:
            new_checkpoint_sensor(OWN)(context)
        return [instance.get_run_by_id(run.run_id).tags.get("waits for") for run in (trains, waits)]

    instance.event_log_storage.set_concurrency_slots("gpu", 1)
    for run in (trains, waits):
        orphaned_runs.claim(instance, run, OWN)
        instance.event_log_storage.claim_concurrency_slot("gpu", run.run_id, "pretrained_model")
    assert told() == [None, f"run {trains.run_id[:8]}, pool gpu"]
    instance.event_log_storage.free_concurrency_slots_for_run(trains.run_id)
    instance.event_log_storage.claim_concurrency_slot("gpu", waits.run_id, "pretrained_model")
    assert told() == [None, None]
    instance.event_log_storage.free_concurrency_slots_for_run(waits.run_id)
    instance.event_log_storage.claim_concurrency_slot("gpu", trains.run_id, "pretrained_model")
    instance.event_log_storage.claim_concurrency_slot("gpu", waits.run_id, "pretrained_model")
    assert told()[1] == f"run {trains.run_id[:8]}, pool gpu"
    instance.report_run_canceled(waits)  # while it waits
    instance.event_log_storage.free_concurrency_slots_for_run(waits.run_id)
    assert told() == [None, None]
    assert instance.get_run_by_id(waits.run_id).is_finished


@pytest.mark.parametrize("job", ["pretrain", "sft", "align"])
def test_no_evaluation_is_asked_for_while_any_job_trains(
    job: str, store: Store, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(RECIPES / "tiny.yaml"))
    training = dg.JobDefinition(name=job, graph_def=dg.GraphDefinition(name=job))
    run = instance.create_run_for_job(training, status=dg.DagsterRunStatus.STARTED)
    orphaned_runs.claim(instance, run, OWN)
    with dg.build_sensor_context(instance, resources={"workshop": PipelineResources()}) as context:
        result = new_checkpoint_sensor(OWN)(context)
    assert isinstance(result, dg.SensorResult)
    assert result.skip_reason and "a training run is in progress" in str(result.skip_reason)


def test_the_checkpoints_of_a_canceled_training_are_not_evaluated_before_the_next_one(
    store: Store, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(RECIPES / "tiny.yaml"))

    @dg.job
    def training() -> None: ...

    def trained(name: str, status: dg.DagsterRunStatus) -> None:
        instance.create_run_for_job(training, status=status, tags={"training run": name})

    def asked() -> set[str | None]:
        with dg.build_sensor_context(instance, resources={"workshop": PipelineResources()}) as context:
            result = new_checkpoint_sensor(OWN)(context)
        assert isinstance(result, dg.SensorResult)
        return {request.partition_key for request in result.run_requests or ()}

    trained("mine 89abcdef", dg.DagsterRunStatus.CANCELED)
    assert asked() == {FIRST, SECOND, THIRD}  # of another training
    trained("mine 0123abcd", dg.DagsterRunStatus.CANCELED)
    assert asked() == set()
    trained("mine 89abcdef", dg.DagsterRunStatus.SUCCESS)
    assert asked() == {FIRST, SECOND, THIRD}


def evaluation(instance: dg.DagsterInstance, tags: dict[str, str]) -> dg.ExecuteInProcessResult:
    """A run of the job `evaluate`."""
    job = dg.Definitions(
        assets=[checkpoint_evaluation_spec(OWN)],
        jobs=[evaluate_job("", OWN)],
        resources={"workshop": PipelineResources()},
    ).resolve_job_def("evaluate")
    return job.execute_in_process(instance=instance, tags=tags, raise_on_error=False)


@pytest.mark.parametrize("started_by", ["dagster/sensor_name", "dagster/backfill"])
def test_a_checkpoint_that_is_deleted_while_its_evaluation_waits_is_not_a_failure(
    store: Store, instance: dg.DagsterInstance, started_by: str
) -> None:
    update_weights(instance, store, OWN)
    shutil.rmtree(directory(store, SECOND))
    result = evaluation(instance, {"dagster/partition": SECOND, started_by: "something"})
    assert result.success
    assert not [event for event in result.all_events if event.event_type_value == "ASSET_MATERIALIZATION"]
    assert f"{SECOND} was deleted while its evaluation was waiting: nothing to evaluate" in [
        entry.user_message for entry in instance.all_logs(result.run_id)
    ]
    assert partitions(instance, ON_DISK) == [FIRST, THIRD]


@pytest.mark.parametrize(
    ("partition", "said"),
    [
        (None, "choose a checkpoint: the partition in the UI"),
        ("0123abcd-00000032", "checkpoint '0123abcd-00000032' is not on disk"),
        (SECOND, f"checkpoint '{SECOND}' is not on disk"),
        ("newest", "checkpoint 'newest' is not on disk: neither a run nor a checkpoint of one. "),
    ],
)
def test_an_evaluation_without_a_checkpoint_on_disk_says_which_there_are(
    store: Store, instance: dg.DagsterInstance, partition: str | None, said: str
) -> None:
    shutil.rmtree(directory(store, SECOND))
    tags = {} if partition is None else {"dagster/partition": partition}
    result = evaluation(instance, tags)
    (failure,) = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    assert failure.user_failure_data and failure.user_failure_data.description
    assert said in failure.user_failure_data.description
    assert failure.user_failure_data.description.endswith(f"On disk: {FIRST}, {THIRD}")
    assert partitions(instance, ON_DISK) == [FIRST, THIRD]


def test_the_perplexity_of_preferences_is_not_made_from_the_loss_of_pairs() -> None:
    told = {"loss": 0.7, "validation_loss": 0.6931, "perplexity": 12.5, "bits_per_byte": 1.5}
    assert checkpoints.scores(told)["perplexity"] == 12.5


def test_a_corpus_whose_text_the_tokenizer_loses_has_no_bits_per_byte_on_the_page() -> None:
    exact = {"loss": 2.0, "perplexity": 7.4, "bits_per_byte": 1.23456}
    losing = {**exact, "bits_per_byte": None}
    found = checkpoints.evaluated({**losing, "per_corpus": {"a": exact, "b": losing}})
    assert "bits per byte" not in found
    rows = [record.data for record in found["per corpus"].records]
    assert [row["bits per byte"] for row in rows] == [1.2346, None]


def test_the_table_of_corpora_has_the_words_of_the_page_in_its_columns() -> None:
    numbers = {"loss": 2.0, "bits_per_byte": 1.2, "validation_tokens": 9, "validation_bytes": 30}
    found = checkpoints.evaluated({**numbers, "per_corpus": {"a": numbers}})
    (row,) = (record.data for record in found["per corpus"].records)
    assert row == {"corpus": "a", "loss": 2.0, "bits per byte": 1.2, "tokens": 9, "bytes": 30}
