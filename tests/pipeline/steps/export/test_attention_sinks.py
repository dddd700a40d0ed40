"""A model that llama.cpp cannot compute is refused before a file is written, also without its package."""

import json
from pathlib import Path

import pytest

from pipeline.steps.export import gguf
from pipeline.store.errors import PipelineError


def test_a_model_with_attention_sinks_is_refused_as_gguf(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "groundwork", "attention_sinks": True}))
    (tmp_path / "lineage.json").write_text("{}")
    with pytest.raises(PipelineError, match="no dense model with attention sinks: train without"):
        gguf.export_gguf(tmp_path, {}, tmp_path / "out", lambda _: None)
    assert not (tmp_path / "out").exists()
