"""What a run writes down: forgotten from where it goes on, and measured without costing it."""

import math
from pathlib import Path
from typing import Any

import orjson
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pipeline.steps.model import training_plots
from tests.trainer.trained import trained
from trainer.run.fit import hardware
from trainer.run.records import metrics, recorder
from trainer.run.records.loss_curve import draw_losses
from trainer.system import figures
from trainer.system.durable import read_json_lines
from trainer.system.run_history import RunHistory


def test_a_run_that_goes_on_forgets_what_its_checkpoint_does_not_vouch_for(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    first = metrics.MetricsLog(path, tmp_path / "tensorboard", resumed_step=0, resumed_bytes=0)
    first.write({"kind": "train", "step": 1, "loss": 2.0})
    vouched = first.sync()
    first.write({"kind": "train", "step": 2, "loss": 1.0})
    first.close()
    path.write_text(path.read_text() + '{"kind": "train", "st')  # cut short by a kill
    second = metrics.MetricsLog(path, tmp_path / "tensorboard", resumed_step=1, resumed_bytes=vouched)
    second.write({"kind": "train", "step": 2, "loss": 1.5})
    second.close()
    assert [(record["step"], record["loss"]) for record in read_json_lines(path)] == [(1, 2.0), (2, 1.5)]


def test_a_checkpoint_saved_before_anything_was_written_again_vouches_for_what_is_there(
    tmp_path: Path,
) -> None:
    path, folder = tmp_path / "metrics.jsonl", tmp_path / "tensorboard"
    first = metrics.MetricsLog(path, folder, resumed_step=0, resumed_bytes=0)
    first.write({"kind": "train", "step": 1, "loss": 2.0})
    vouched = first.sync()
    first.write({"kind": "train", "step": 2, "loss": 1.0})
    first.close()
    second = metrics.MetricsLog(path, folder, resumed_step=1, resumed_bytes=vouched)
    assert second.sync() == vouched == path.stat().st_size
    second.close()


def test_a_step_that_fp16_skipped_is_json_that_others_read_and_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = metrics.MetricsLog(path, tmp_path / "tensorboard", resumed_step=0, resumed_bytes=0)
    for step, loss in ((1, 2.0), (2, math.nan), (3, 1.0)):
        record = {"loss": loss, "grad_norm": loss, "lr": 0.1, "tokens_per_second": 1.0}
        log.write({"kind": "train", "step": step, "tokens": step, "skipped": step == 2, **record})
    log.close()
    assert [orjson.loads(line)["loss"] for line in path.read_text().splitlines()] == [2.0, None, 1.0]
    draw_losses(RunHistory(tmp_path))
    drawn = training_plots.draw(RunHistory(tmp_path))
    assert (tmp_path / "loss.png").exists() and drawn.startswith(b"\x89PNG")


@pytest.mark.parametrize("loss", [0.69314, 9.8765, 123_456.0])
def test_no_label_beside_the_losses_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: float
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(figures, "png", lambda drawing: drawn.append(drawing) or b"")
    losses = ({"kind": "train", "step": step, "tokens": step, "loss": loss * step**0.01} for step in (1, 2))
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join(map(orjson.dumps, losses)))
    draw_losses(RunHistory(tmp_path))
    (drawing,) = drawn
    FigureCanvasAgg(drawing).draw()
    labels = drawing.get_tightbbox().transformed(drawing.dpi_scale_trans)
    assert drawing.bbox.contains(*labels.min) and drawing.bbox.contains(*labels.max)


@pytest.mark.parametrize("seconds, drawn", [(20.0, [12]), (0.0, [6, 12])])
def test_losses_are_drawn_at_the_end_and_before_it_only_when_some_time_has_passed(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, seconds: float, drawn: list[int]
) -> None:
    steps: list[int] = []

    def draw(history: RunHistory) -> None:
        draw_losses(history)
        steps.append(history.steps[-1]["step"])

    monkeypatch.setattr(recorder, "draw_losses", draw)
    monkeypatch.setattr(recorder, "PICTURE_INTERVAL_SECONDS", seconds)
    run_dir = trained(settings, evaluation={"every_tokens": 6 * 256, "micro_batch_size": 4}).run_dir
    assert steps == drawn
    assert (run_dir / "loss.png").read_bytes().startswith(b"\x89PNG")


TERAFLOPS = {
    "L4": 121,
    "L40": 181,
    "L40S": 362,
    "A100-SXM4-80GB": 312,
    "H100 PCIe": 756,
    "A10G": None,
    "GeForce RTX 3090": 71,
    "GeForce RTX 3090 Ti": None,
    "GeForce RTX 4080 SUPER": None,
    "GeForce RTX 4090 D": None,
    "GeForce RTX 4090 Laptop GPU": None,
    "RTX 6000 Ada Generation": 364,
    "RTX A6000": 155,
    "GH200 480GB": 989,
}


@pytest.mark.parametrize(("name", "teraflops"), TERAFLOPS.items())
def test_the_peak_is_that_of_the_gpu_and_not_of_one_whose_name_begins_like_it(
    name: str, teraflops: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"NVIDIA {name}")
    monkeypatch.setattr(hardware, "_measured_flops", lambda *_: -1.0)
    assert hardware.peak_flops(torch.device("cuda"), "bf16") == (
        -1.0 if teraflops is None else teraflops * 1e12
    )


def test_a_measured_peak_is_that_of_products_of_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []

    def seconds(matrix: torch.Tensor) -> float:
        seen.append(matrix)
        return 1.0

    monkeypatch.setattr(hardware, "_seconds_to_square", seconds)
    state = torch.get_rng_state()
    assert hardware._measured_flops.__wrapped__(torch.device("cpu"), "bf16", 1) == 2 * 256**3
    assert all(len(matrix.unique()) > 1000 and matrix.dtype == torch.bfloat16 for matrix in seen)
    assert torch.equal(torch.get_rng_state(), state)
