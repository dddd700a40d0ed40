"""docs/chat.md: a recipe without pretraining tunes a model of the hub, with the tokenizer of that model."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from pipeline.stages import bpe
from tests.integration.project import TRAINING, Project, conversations, python_topics
from tests.pipeline.sources.hub_server import Hub
from tests.servers import serving

pytestmark = pytest.mark.slow
SHAPE = {"n_layers": 2, "d_model": 64, "n_heads": 2, "n_kv_heads": 1, "d_ff": 176}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with a model as transformers saves it, which knows nothing yet, and its tokenizer."""
    texts = pa.array([row["text"] for row in python_topics()])
    files = {
        name: text.encode()
        for name, text in bpe.files(bpe.train([texts], bpe.TokenizerParams(vocab_size=400))).items()
    }
    shape = {"hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(**shape, num_key_value_heads=1, vocab_size=400, max_position_embeddings=64)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "theirs")
    files |= {
        name: (tmp_path / "theirs" / name).read_bytes() for name in ("config.json", "model.safetensors")
    }
    with serving(Hub()) as server:
        server.files = {server.commits[0]: files}
        for name, value in {
            "ENDPOINT": server.url,
            "HOME": str(tmp_path / "cache"),
            "HUB_DISABLE_XET": "1",
        }.items():
            monkeypatch.setenv(f"HF_{name}", value)
        yield server


def test_a_model_of_the_hub_learns_to_answer_and_is_exported_with_its_origin(
    hub: Hub, tmp_path: Path
) -> None:
    project = Project(tmp_path / "project")
    project.directory.mkdir()
    talks = project.directory / "talks.jsonl"
    talks.write_text("".join(json.dumps(one) + "\n" for one in conversations()))
    revision = hub.commits[0]
    project.recipe = {
        "name": "tuned",
        "corpora": [
            {"name": "talks", "source": {"kind": "files", "paths": ["talks.jsonl"], "format": "chat"}}
        ],
        "quality": "none",
        "tokenizer": {"from": "org/set", "revision": revision, "chat": True},
        "training": TRAINING
        | {
            "model": SHAPE | {"qk_norm": False, "tie_embeddings": False, "norm_eps": 1e-6},
            "objective": "sft",
            "pretrained": {"repo": "org/set", "revision": revision},
            "samples": {},
        },
    }
    status, said = project.run()
    assert status == 0, said + str(hub.missed)
    exported = project.store.current("exported_model").path
    tokenizer, model = AutoTokenizer.from_pretrained(exported), AutoModelForCausalLM.from_pretrained(exported)
    question = conversations()[0]["messages"][:1]
    asked = tokenizer.apply_chat_template(
        question, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    written = model.generate(**asked, max_new_tokens=20, do_sample=False)[0, asked["input_ids"].shape[1] :]
    assert tokenizer.decode(written).startswith("It is ") and written[-1] == tokenizer.eos_token_id
    shown = project.command("lineage", "--variant=base")
    assert "org/set" in shown and revision in shown
