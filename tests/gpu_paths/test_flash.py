"""FlashAttention on a pretended GPU: `make test-gpu-paths`."""

from pathlib import Path

import pytest

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
    assert max(found["synchronisations"]) == 1


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
