"""docs/hub.md: a model and its documents go to a hub, and other programs open them from there."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.integration.project import Project
from tests.pipeline.sources.hub_server import Hub
from tests.pipeline.steps.export.hub_server import UploadHub
from tests.servers import serving

pytestmark = pytest.mark.slow
TOKEN = "hf_of-the-test"
OPEN_MODEL = """
import json
from transformers import AutoModelForCausalLM, AutoTokenizer
model, tokenizer = (one.from_pretrained("org/set") for one in (AutoModelForCausalLM, AutoTokenizer))
asked = tokenizer("Return the", return_tensors="pt")
print(sum(one.numel() for one in model.parameters()))
written = model.generate(**asked, max_new_tokens=8, do_sample=False)[0]
print(json.dumps(tokenizer.decode(written, skip_special_tokens=True)))
"""
OPEN_DOCUMENTS = """
from datasets import load_dataset
for split, rows in sorted(load_dataset("org/set").items()):
    print(split, len(rows), sum(len(text.encode()) for text in rows["text"]))
"""


def opened(program: str, files: Mapping[str, bytes], cache: Path) -> list[str]:
    """What another program prints that opens the repository, which has these files, with an empty cache."""
    with serving(Hub()) as hub:
        hub.files = {hub.commits[0]: dict(files)}
        settings = {"HF_ENDPOINT": hub.url, "HF_HOME": str(cache), "HF_HUB_DISABLE_XET": "1"}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_what_is_pushed_is_opened_from_the_hub_by_the_programs_that_people_have(
    trained_folder: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = trained_folder.store.current("exported_model").path
    data = trained_folder.command("export", "--format", "parquet", "-o", str(tmp_path / "data"))
    with serving(UploadHub(TOKEN)) as hub:
        for name, value in {"ENDPOINT": hub.url, "TOKEN": TOKEN, "HUB_DISABLE_XET": "1"}.items():
            monkeypatch.setenv(f"HF_{name}", value)
        assert trained_folder.command("push", "me/model").startswith(f"{hub.url}/me/model/commit/")
        trained_folder.command("push", "me/texts", "--data", str(tmp_path / "data"))
    assert hub.private == {"me/model": True, "me/texts": True} and not hub.missed
    model, documents = hub.files["me/model"], hub.files["me/texts"]
    assert {name: (exported / name).read_bytes() for name in model} == model
    assert TOKEN.encode() not in b"".join([*model.values(), *documents.values()])

    parameters, *said = opened(OPEN_MODEL, model, tmp_path / "model")
    assert f"{int(parameters):,}" in model["README.md"].decode()
    ours = [sys.executable, "-m", "trainer", "generate", f"--model={exported}", "--prompt=Return the"]
    greedy = [*ours, "--temperature=0", "--max-new-tokens=8", "--json"]
    written = subprocess.run(greedy, check=True, capture_output=True, text=True).stdout
    assert json.loads("\n".join(said)) == json.loads(written)["text"]

    for split, *numbers in map(str.split, opened(OPEN_DOCUMENTS, documents, tmp_path / "texts")):
        for what, number in zip(("documents", "text bytes"), numbers, strict=True):
            assert f"{split} {what} {int(number):,}" in " ".join(data.split())
