"""However a run is spread over processes, it is the same run."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file

from tests.trainer.parallel.processes import train
from tests.trainer.runs import history
from tests.trainer.trained import trained
from trainer.checkpoint import publish, state
from trainer.model.precision import multiplies_bf16
from trainer.run.loop import DONE

STEPS = 50
TOLERANCES = {"loss": 1e-5, "bits_per_byte": 1e-5, "grad_norm": 1e-4, "param_norm": 1e-5}
WEIGHTS = 1e-4
# An eps of this size does not blow up the rounding of gradients that are nearly zero.
ADAMW = {"kind": "adamw", "lr": 1e-3, "eps": 1e-4}
SOPHIA = {"kind": "sophia", "lr": 3e-4}
WAYS: dict[str, tuple[int, dict[str, Any]]] = {
    "copies": (2, {}),
    "fsdp-2": (2, {"dp_shard": 2}),
    "fsdp-4": (4, {"dp_shard": 4, "reshard_after_forward": False}),
    "copies of fsdp-2": (4, {"dp_shard": 2}),
    "tp-2": (2, {"tp": 2}),
    "copies of tp-2": (4, {"tp": 2}),
    "fsdp-2 x tp-2": (4, {"dp_shard": 2, "tp": 2}),
    "pp-2": (2, {"pp": 2}),
    "pp-2 x fsdp-2": (4, {"pp": 2, "dp_shard": 2}),
    "pp-2 x tp-2": (4, {"pp": 2, "tp": 2}),
}


def spread(settings: dict[str, Any]) -> dict[str, Any]:
    """A run that can be split."""
    training = {"max_tokens": STEPS * 256, "micro_batch_size": 2, "optimizer": ADAMW}
    return {**settings, "training": {**settings["training"], **training}}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_run_in_several_processes_is_that_of_one(
    settings: dict[str, Any], tmp_path: Path, way: str
) -> None:
    settings = spread(settings)
    settings["training"]["model"] |= {"qk_norm": True, "tie_embeddings": way == "fsdp-4"}
    assert_is_that_of_one(settings, tmp_path, *WAYS[way])


@pytest.mark.slow
@pytest.mark.parametrize("way", ["fsdp-4", "tp-2", "fsdp-2 x tp-2", "pp-2 x tp-2"])
def test_attention_sinks_are_split_as_the_rest(settings: dict[str, Any], tmp_path: Path, way: str) -> None:
    settings = spread(settings)
    settings["training"]["model"] |= {"attention_sinks": True}
    assert_is_that_of_one(settings, tmp_path, *WAYS[way])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "precision", "optimizer"),
    [
        ("fsdp-2", "bf16", ADAMW),
        ("fsdp-2", "fp16", ADAMW),
        ("pp-2 x fsdp-2", "bf16", ADAMW),
        # Draws its targets with a head that is gathered in bf16.
        ("fsdp-2", "bf16", SOPHIA),
    ],
    ids=["fsdp-2, bf16", "fsdp-2, fp16", "pp-2 x fsdp-2, bf16", "fsdp-2, bf16, Sophia"],
)
def test_in_half_precision_a_split_run_stays_near_that_of_one_process(
    settings: dict[str, Any], tmp_path: Path, way: str, precision: str, optimizer: dict[str, Any]
) -> None:
    settings = spread(settings)
    settings["training"] |= {"precision": precision, "optimizer": optimizer}
    run_both(settings, tmp_path, *WAYS[way])
    losses, others = ([record["loss"] for record in history(tmp_path / name)] for name in ("one", "many"))
    assert losses == pytest.approx(others, rel=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["fsdp-2", "tp-2", "pp-2"])
def test_compiled_blocks_of_a_split_model_compute_the_same(
    settings: dict[str, Any], tmp_path: Path, way: str
) -> None:
    settings["training"] |= {"micro_batch_size": 2, "optimizer": ADAMW, "compile": True}
    assert_is_that_of_one(settings, tmp_path, *WAYS[way])


@pytest.mark.slow
@pytest.mark.parametrize(
    "way", ["copies", "fsdp-4", "copies of fsdp-2", "fsdp-2 x tp-2", "pp-2", "pp-2 x fsdp-2"]
)
def test_muon_orthogonalizes_what_it_does_in_one_process(
    settings: dict[str, Any], tmp_path: Path, way: str
) -> None:
    settings["training"] |= {"micro_batch_size": 2, "optimizer": {"kind": "muon", "eps": 1e-4}}
    run_both(settings, tmp_path, *WAYS[way])
    # Where bf16 is multiplied, Muon iterates in it, which turns the rounding of small singular values into
    # up to half an update of a weight. The losses stay equal.
    rounding = 3e-3 if multiplies_bf16(torch.device("cpu")) else WEIGHTS
    assert_same_run(tmp_path / "one", tmp_path / "many", rounding)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["copies", "fsdp-2", "tp-2", "pp-2"])
def test_sophias_draws_and_curvature_are_those_of_one_process(
    settings: dict[str, Any], tmp_path: Path, way: str
) -> None:
    settings["training"] |= {"micro_batch_size": 2, "optimizer": SOPHIA}
    assert_is_that_of_one(settings, tmp_path, *WAYS[way])


@pytest.mark.slow
@pytest.mark.parametrize("way", ["copies", "fsdp-2", "tp-2", "pp-2", "fsdp-2 x tp-2"])
def test_lion_learns_what_it_does_in_one_process(settings: dict[str, Any], tmp_path: Path, way: str) -> None:
    settings["training"] |= {"micro_batch_size": 2, "optimizer": {"kind": "lion", "lr": 1e-4}}
    run_both(settings, tmp_path, *WAYS[way])
    # Rounding flips the sign of a gradient that is nearly zero, and so a weight moves the other way.
    assert_same_run(tmp_path / "one", tmp_path / "many", rounding=2 * 12 * 1e-4)


def run_both(settings: dict[str, Any], tmp_path: Path, processes: int, parallel: dict[str, Any]) -> None:
    """In one process, and in `processes` that are split like this: the directories `one` and `many`."""
    trained(settings, tmp_path / "one")
    assert train(settings, tmp_path / "many", processes, parallel=parallel) == [DONE] * processes


def assert_is_that_of_one(
    settings: dict[str, Any], tmp_path: Path, processes: int, parallel: dict[str, Any]
) -> None:
    run_both(settings, tmp_path, processes, parallel)
    assert_same_run(tmp_path / "one", tmp_path / "many")


def assert_same_run(one: Path, other: Path, rounding: float = WEIGHTS) -> None:
    """The same losses, weights and place in the data, up to rounding."""
    for ours, theirs in zip(history(one), history(other), strict=True):
        assert ours.keys() == theirs.keys()
        for field in TOLERANCES.keys() & ours.keys():
            assert ours[field] == pytest.approx(theirs[field], rel=TOLERANCES[field]), (field, ours)
    ours, theirs = (publish.existing(run_dir / "checkpoints")[-1] for run_dir in (one, other))
    weights, others = load_file(ours / "hf/model.safetensors"), load_file(theirs / "hf/model.safetensors")
    assert weights.keys() == others.keys()
    for name, tensor in weights.items():
        assert abs(tensor - others[name]).max() < rounding, name
    for position in ("step", "tokens", "samples", "corpus_tokens", "meaning"):
        assert state.read_state(ours)[position] == state.read_state(theirs)[position]
