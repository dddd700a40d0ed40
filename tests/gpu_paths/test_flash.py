"""FlashAttention on a pretended GPU: `make test-gpu-paths`."""

from pathlib import Path

import pytest

from tests import pretended_package
from tests.gpu_paths.test_traced import library, pytestmark, traced, with_triton

__all__ = ["library", "pytestmark"]


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        ("gpu", {}),
        ("gpu", {"document_masking": "false"}),
        ("gpu-1b", {"activation_checkpointing": "selective"}),
    ],
    ids=["documents apart", "documents together", "selective"],
)
def test_one_graph_serves_all_blocks_and_all_boundaries_of_documents(
    library: Path, recipe: str, changes: dict[str, str]
) -> None:
    found = traced(library, "steps", recipe=recipe, attention="flash", **changes)
    assert found["attention"] == "flash" and found["breaks"] == 0
    assert found["graphs"] == [2, 4, 4, 4]
    assert max(found["synchronizations"]) == 1


@pytest.fixture
def flash_attn_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretended_package.put(tmp_path, "flash-attn", "flash_attn", pretended_package.FLASH_ATTN_2.read_text())
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("flash_attn_2")
@pytest.mark.parametrize(
    ("recipe", "changes"),
    [("gpu", {}), ("gpu-1b", {"activation_checkpointing": "selective"})],
    ids=["documents apart", "selective"],
)
def test_flash_attn_2_is_compiled_with_the_blocks(
    library: Path, recipe: str, changes: dict[str, str]
) -> None:
    found = traced(library, "steps", recipe=recipe, attention="flash", **changes)
    assert found["kernels"] == "flash-attn 2.8.0" and found["breaks"] == 0
    assert found["graphs"] == [2, 4, 4, 4]


@with_triton
@pytest.mark.usefixtures("flash_attn_2")
def test_selective_recomputation_keeps_what_flash_attn_2_computed(library: Path) -> None:
    found = traced(library, "passes", module="traced_flash", package="flash_attn")
    assert found == {"_flash_attn_varlen_forward": [1, 0], "_flash_attn_varlen_backward": [0, 1]}


@with_triton
@pytest.mark.parametrize(("kind", "most"), [("none", 343_000), ("selective", 449_000)])
def test_a_block_moves_fewer_bytes_than_with_flex(library: Path, kind: str, most: int) -> None:
    ours, flex = (
        traced(library, "block", model="1b", rows=4, length=4096, kind=kind, wanted=wanted)
        for wanted in ("flash", "flex")
    )
    assert ours["graphs"] == 2
    assert ours["bytes_a_token"] <= most < flex["bytes_a_token"]


@with_triton
def test_selective_recomputation_does_not_attend_twice(library: Path) -> None:
    found = traced(library, "passes", module="traced_flash")
    assert found == {"_varlen_attn": [1, 0], "_varlen_attn_backward": [0, 1]}
