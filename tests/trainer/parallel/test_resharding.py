"""A run goes on in other processes than those that saved it, as if it had never stopped."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.parallel.processes import train
from tests.trainer.parallel.test_equal import assert_same_run
from tests.trainer.trained import trained
from trainer.checkpoint import publish
from trainer.checkpoint.sharded_safetensors import SavedTensors, TensorPart, save_parts
from trainer.run.loop import DONE

EVERY = 3  # steps between checkpoints, of 12 in all
WAYS = {
    "fsdp-2 to one": [(2, {"dp_shard": 2}), (1, {})],
    "fsdp-4 to one to fsdp-2 to tp-2": [(4, {"dp_shard": 4}), (1, {}), (2, {"dp_shard": 2}), (2, {"tp": 2})],
    "one to fsdp-2 x tp-2 to copies of tp-2": [(1, {}), (4, {"dp_shard": 2, "tp": 2}), (4, {"tp": 2})],
    "fsdp-2 to pp-2 to one to pp-2 x fsdp-2": [
        (2, {"dp_shard": 2}),
        (2, {"pp": 2}),
        (1, {}),
        (4, {"pp": 2, "dp_shard": 2}),
    ],
}


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[] if way == "fsdp-2 to one" else [pytest.mark.slow]) for way in WAYS]
)
def test_a_run_goes_on_however_it_was_split_before(
    settings: dict[str, Any], tmp_path: Path, way: str
) -> None:
    settings["training"] |= {"optimizer": {"kind": "adamw", "lr": 1e-3, "eps": 1e-4}, "micro_batch_size": 2}
    settings["training"]["checkpoint"] = {"every_tokens": EVERY * 256, "keep_last": 9}
    trained(settings, tmp_path / "whole")
    for leg, (processes, parallel) in enumerate(WAYS[way], 1):
        assert train(settings, tmp_path / "run", processes, parallel=parallel) == [DONE] * processes
        if leg < len(WAYS[way]):
            # As if it had been killed after its checkpoint number `leg`.
            for checkpoint in publish.existing(tmp_path / "run/checkpoints")[leg:]:
                shutil.rmtree(checkpoint)
    assert_same_run(tmp_path / "whole", tmp_path / "run")


def test_any_region_is_put_together_from_parts_and_what_is_missing_is_said(tmp_path: Path) -> None:
    whole = torch.arange(24.0).view(4, 6)
    for name, rows in (("a", slice(0, 3)), ("b", slice(3, 4))):
        part, place = whole[rows].contiguous(), TensorPart((rows.start, 0), (4, 6))
        save_parts(tmp_path / f"{name}.safetensors", {"moment": part}, {"moment": place})
    save_parts(tmp_path / "c.safetensors", {"step": torch.tensor(3.0)}, {})
    with SavedTensors(tmp_path.glob("*.safetensors")) as saved:
        assert saved.shapes == {"moment": (4, 6), "step": ()}
        assert torch.equal(saved.read("moment"), whole)
        assert torch.equal(saved.read("moment", (slice(2, 4), slice(1, 5))), whole[2:4, 1:5])
        assert saved.read("moment", (slice(4, 4), slice(0, 6))).shape == (0, 6)
        assert saved.read("step").item() == 3
    (tmp_path / "b.safetensors").unlink()
    with (
        SavedTensors(tmp_path.glob("*.safetensors")) as saved,
        pytest.raises(ValueError, match=r"moment: 6 of its elements are missing from "),
    ):
        saved.read("moment")
