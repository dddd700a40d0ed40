"""What a GPU would run, traced and compiled on a machine without one: `make test-gpu-paths`."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
SHARED_MEMORY = {80: 163 * 1024, 89: 99 * 1024, 90: 227 * 1024}
# Bytes of a thread that may lie in memory because its 255 registers are full.
MOST_SPILLED = 256

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.version.cuda is not None, reason="no CPU build of PyTorch"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler"),
]
with_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    installed = Path(torch.__file__).parent
    made = tmp_path_factory.mktemp("pretended") / "pretended_cuda.so"
    source = Path(__file__).with_name("pretended_cuda.cpp")
    flags = ["-shared", "-fPIC", "-std=c++20", "-O1", f"-I{installed}/include"]
    subprocess.run(
        ["g++", *flags, "-o", made, source, f"-L{installed}/lib", "-lc10", "-ltorch_cpu"], check=True
    )
    return made


def traced(library: Path, name: str, module: str = "traces", **settings: Any) -> dict[str, Any]:
    arguments = [f"{key}={value}" for key, value in settings.items()]
    environment = os.environ | {
        "PRETENDED_CUDA": str(library),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "performance"), *sys.path]),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    command = [sys.executable, "-m", f"tests.gpu_paths.{module}", name, *arguments]
    ended = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-4000:]
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        ("llama-171m", {}),
        ("gpu", {"optimizer": "{kind: muon}"}),
        ("gpu", {"document_masking": "false", "dropout": "0.1"}),
        ("gpu", {"model.attention_sinks": "true"}),
        ("gpu", {"document_masking": "false", "model.attention_sinks": "true"}),
        ("gpu-1b", {"activation_checkpointing": "selective"}),
        ("gpu-1b", {"precision": "fp8"}),
        ("gpu-1b", {"optimizer": "{kind: muon}", "shards": 8}),
        ("7b", {"activation_checkpointing": "full", "shards": 8}),
    ],
    ids=[
        "llama-171m",
        "gpu, Muon",
        "gpu, dropout",
        "gpu, sinks",
        "gpu, sinks, documents together",
        "gpu-1b, selective",
        "gpu-1b, fp8",
        "gpu-1b, Muon, FSDP2",
        "7b, full, FSDP2",
    ],
)
def test_all_blocks_share_a_graph_and_nothing_is_compiled_anew_over_steps(
    library: Path, recipe: str, changes: dict[str, Any]
) -> None:
    found = traced(library, "steps", recipe=recipe, **{"model.n_layers": 3}, **changes)
    assert found["breaks"] == 0
    # One graph of the blocks, of the loss and of flex's mask, and after step 2 one of each for evaluation.
    masked = "document_masking" not in changes
    assert found["graphs"] == ([3, 6, 6, 6] if masked else [2, 4, 4, 4])
    assert found["attention"] == ("flex" if masked else "sdpa")
    # The loss and the norm of the gradients are read together.
    assert max(found["synchronizations"]) == 1
    assert max(found["when_logged"]) == 2


@with_triton
@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({"model": "124m", "rows": 16, "length": 1024, "masked": "false"}, 108_000),
        ({"model": "124m", "rows": 16, "length": 1024}, 128_000),
        ({"model": "1b", "rows": 4, "length": 4096}, 373_000),
        ({"model": "1b", "rows": 4, "length": 4096, "kind": "selective"}, 479_000),
        ({"model": "1b", "rows": 4, "length": 4096, "kind": "full"}, 501_000),
        ({"model": "1b", "rows": 4, "length": 4096, "precision": "fp8"}, 612_000),
    ],
    ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_a_block_moves_no_more_bytes_than_it_did(library: Path, settings: dict[str, Any], most: int) -> None:
    found = traced(library, "block", **settings)
    assert found["graphs"] == 2
    assert found["bytes_a_token"] <= most


@with_triton
def test_the_softmax_of_the_loss_moves_each_logit_and_its_gradient_once(library: Path) -> None:
    before = traced(library, "loss", rows=16_384, compiled="false")
    after = traced(library, "loss", rows=16_384)
    assert after["bytes_a_logit"] < 4.9 < 40 < before["bytes_a_logit"]
    with_more = traced(library, "loss", rows=16_384, z_loss=1e-4)
    assert with_more["bytes_a_logit"] == pytest.approx(after["bytes_a_logit"], rel=0.001)


@with_triton
def test_blocks_and_loss_of_124m_move_less_than_nanogpt(library: Path) -> None:
    block = traced(library, "block", model="124m", rows=16, length=1024, masked="false")
    loss = traced(library, "loss", rows=16_384)
    ours = 12 * block["bytes_a_token"] + loss["bytes_a_token"]
    assert ours < 0.91 * traced(library, "nanogpt", rows=16, length=1024)["bytes_a_token"]


@with_triton
@pytest.mark.parametrize("capability", SHARED_MEMORY)
@pytest.mark.parametrize(
    ("traces", "only"),
    [
        ([("block", {"model": "1b", "rows": 4, "length": 4096}), ("loss", {"rows": 16_384})], ""),
        ([("block", {"model": "7b", "rows": 1, "length": 1024})], "flex"),
        ([("block", {"model": "1b", "rows": 1, "length": 1024, "precision": "fp32"})], "flex"),
        ([("block", {"model": "7b", "rows": 1, "length": 1024, "precision": "fp32"})], "flex"),
    ],
    ids=["1b and loss", "attention of 7b", "attention of 1b in fp32", "attention of 7b in fp32"],
)
def test_kernels_compile_and_fit_into_shared_memory_and_registers(
    library: Path, capability: int, traces: list[tuple[str, dict[str, Any]]], only: str, tmp_path: Path
) -> None:
    kernels = {}
    for name, settings in traces:
        found = traced(library, name, capability=capability, **settings)["kernels"]
        kernels |= {f"{name}/{kernel}": source for kernel, source in found.items() if only in kernel}
    assert len(kernels) >= (2 if only else 15)
    ended = subprocess.run(
        [sys.executable, Path(__file__).with_name("machine_code.py"), str(capability), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        input=json.dumps(kernels),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    taken = json.loads(ended.stdout.splitlines()[-1]).values()
    assert max(kernel["shared"] for kernel in taken) <= SHARED_MEMORY[capability]
    if not only:  # in fp32, which is for finding errors, attention spills 1 to 9 KB
        assert max(kernel["spilled"] for kernel in taken) <= MOST_SPILLED


def read_back_at_once(kernel: str) -> set[str]:
    """The pointers that a kernel reads after it has stored there, without a barrier in between."""
    stored, found = set[str](), set[str]()
    for store, load, barrier in re.findall(
        r"tl\.store\((\w+) \+|tl\.load\((\w+) \+|(tl\.debug_barrier)", kernel
    ):
        if barrier:
            stored.clear()
        stored |= {store} - {""}
        found |= {load} & stored
    return found


@with_triton
def test_no_kernel_reads_back_what_another_thread_may_not_have_stored_yet(library: Path) -> None:
    settings = {"model": "narrow", "rows": 32, "length": 256, "dropout": 0.1}
    for kind in ("full", "selective"):
        kernels = traced(library, "block", kind=kind, **settings)["kernels"]
        assert not any(map(read_back_at_once, kernels.values()))
    as_generated = traced(library, "block", kind="full", barriers="false", **settings)["kernels"]
    assert any(map(read_back_at_once, as_generated.values()))
