"""What is wrong with the weights that a recipe starts from is said before anything is made."""

import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from huggingface_hub import constants, snapshot_download
from safetensors.numpy import save
from transformers import LlamaConfig, LlamaForCausalLM

from pipeline.recipe.recipe import Recipe
from pipeline.stages import bpe
from pipeline.steps.training import initial_weights
from pipeline.store.errors import PipelineError
from pipeline.store.store import Store
from tests.integration.project import TRAINING
from tests.pipeline.sources.hub_server import Hub
from tests.servers import serving
from trainer.config import CorpusShards, DataConfig, ModelConfig
from trainer.config.hugging_face import config_json, weight_files
from trainer.config.peft import downloaded
from trainer.hf import Pretrained

INDEX = "model.safetensors.index.json"
OF_THEIRS = LlamaConfig(
    vocab_size=400, hidden_size=64, intermediate_size=176, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=1,
)  # fmt: skip
TENSORS = {name: tensor.numpy() for name, tensor in LlamaForCausalLM(OF_THEIRS).state_dict().items()}
ONE_FILE = {"model.safetensors": save(TENSORS)}
SMALL = {"vocab_size": 400}
IN_PARTS = {"model-1.safetensors": save({})}


def recipe(tokenizer: dict[str, Any] = SMALL, **pretrained: str) -> Recipe:
    training = TRAINING | ({"pretrained": pretrained} if pretrained else {})
    return Recipe.model_validate(
        {"name": "mine", "corpora": ["openwebtext"], "tokenizer": tokenizer, "training": training}
    )


def config(**changes: Any) -> dict[str, bytes]:
    shape = ModelConfig.model_validate(TRAINING["model"])
    written = config_json(shape, vocab_size=400, context=64, bot_id=2, eot_id=3)
    return {"config.json": json.dumps(written | changes).encode()}


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (config(model_type="gemma") | ONE_FILE, "model_type 'gemma' is not supported"),
        (config(hidden_size=128) | ONE_FILE, "set d_model: 128 "),
        (config(attention_bias=True) | ONE_FILE, "attention_bias True is not supported"),
        (config(rope_scaling={"rope_type": "longrope"}) | ONE_FILE, "not 'longrope'"),
        ({"config.json": b"{"} | ONE_FILE, "config.json: cannot be read"),
        (ONE_FILE, "holds no config.json"),
        (config(), "does not hold *.safetensors files"),
        (config() | {"a.safetensors": save({})}, "holds neither model.safetensors nor"),
        (
            config() | IN_PARTS | {INDEX: b'{"weight_map": {"a": "lost.safetensors"}}'},
            "lists lost.safetensors, which is not a file",
        ),
        (config() | IN_PARTS | {INDEX: b'{"weight_map": {"a": 1}}'}, "lists 1, which is not a file"),
    ],
)
def test_weights_that_cannot_be_trained_are_refused_at_once(
    tmp_path: Path, files: dict[str, bytes], told: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(PipelineError) as raised:
        initial_weights.check(Store(tmp_path / "store"), recipe(path=str(tmp_path)))
    assert str(raised.value).startswith("training.pretrained") and told in str(raised.value)


NORM = "model.norm.weight"
NOT_OF_THE_MODEL: list[tuple[dict[str, Any], str]] = [
    (TENSORS | {"score.weight": TENSORS[NORM]}, "tensor score.weight is unknown to the model"),
    ({name.removeprefix("model."): one for name, one in TENSORS.items()}, "is unknown to the model"),
    ({name: one for name, one in TENSORS.items() if name != NORM}, f"are missing: {NORM}"),
    (TENSORS | {NORM: TENSORS[NORM][:-1]}, f"{NORM} has shape (63,), but the model needs (64,)"),
]


@pytest.mark.parametrize(("tensors", "told"), NOT_OF_THE_MODEL)
def test_weights_of_another_model_than_their_config_says_are_told_before_any_data_is_made(
    hub: Hub, tmp_path: Path, tensors: dict[str, Any], told: str
) -> None:
    files = config() | {"model.safetensors": save(tensors)}
    hub.files[hub.commits[0]] = files
    (tmp_path / "model").mkdir()
    for name, content in files.items():
        (tmp_path / "model" / name).write_bytes(content)
    for place in ({"path": str(tmp_path / "model")}, {"repo": "org/set", "revision": "main"}):
        with pytest.raises(PipelineError, match=re.escape(told)):
            initial_weights.check(Store(tmp_path / "store"), recipe(**place))


def parts(*names: str) -> dict[str, bytes]:
    """The weights in two files."""
    weight_map = {name: names[number % 2] for number, name in enumerate(TENSORS)}
    written = {
        part: save({name: TENSORS[name] for name, of in weight_map.items() if of == part}) for part in names
    }
    return written | {INDEX: json.dumps({"weight_map": weight_map}).encode()}


def test_weights_on_the_hub_that_are_in_another_format_or_lack_a_part_are_told_before_any_data_is_made(
    hub: Hub, tmp_path: Path
) -> None:
    whole, lacks = parts("model-1.safetensors", "model-2.safetensors"), "it has no file model-2.safetensors"
    adapter = {"adapter_config.json": b'{"peft_type": "LORA"}', "adapter_model.bin": b""}
    for files, told in (
        (config() | {"pytorch_model.bin": b""}, "it has none in safetensors: name a model that has"),
        (config() | {name: one for name, one in whole.items() if name != "model-2.safetensors"}, lacks),
        (
            config() | {"model.safetensors": b"version https://git-lfs.github.com/spec/v1\n"},
            "Failed to parse",
        ),
        (adapter, "it has no file adapter_model.safetensors"),
    ):
        hub.begin()
        hub.files[hub.commits[0]] = files
        with pytest.raises(PipelineError, match=told):
            initial_weights.check(Store(tmp_path / "store"), recipe(repo="org/set", revision="main"))


def test_parts_of_weights_on_the_hub_may_have_any_names(hub: Hub, tmp_path: Path) -> None:
    names = [f"model.safetensors-0000{number}-of-00002.safetensors" for number in (1, 2)]
    hub.files[hub.commits[0]] = config() | parts(*names) | {"consolidated.safetensors": save({})}
    initial_weights.check(Store(tmp_path / "store"), recipe(repo="org/set", revision="main"))
    directory = downloaded("org/set", "main")
    assert [path.name for path in weight_files(directory)] == names
    assert not (directory / "consolidated.safetensors").exists()


def trained_on(text: str, vocab_size: int) -> dict[str, bytes]:
    params = bpe.TokenizerParams(vocab_size=vocab_size)
    made = bpe.files(bpe.train([pa.array([text * 50])], params))
    return {name: content.encode() for name, content in made.items()}


OWN = trained_on("the cat sat on the mat and there it stayed, that is what the story says " * 3, 270)
FOREIGN = {
    "tokenizer.json": json.dumps(
        {"version": "1.0", "model": {"type": "WordLevel"} | {"vocab": {"a": 0, "b": 1}, "unk_token": "a"}}
    ).encode()
}


@pytest.mark.parametrize(
    ("beside", "tokenizer", "told"),
    [
        ({}, {"vocab_size": 401}, "has 400 tokens, but the data's tokenizer has 401"),
        (OWN, {"vocab_size": 8192}, "has 400 tokens, but the data's tokenizer has 8192"),
        (FOREIGN, SMALL, "has id none, but 0 in the tokenizer to be trained"),
        ({"tokenizer.json": b"{"}, SMALL, "cannot be read as a tokenizer"),
        ({}, {"from": "./none.json"}, "none.json does not exist"),
        (OWN, {"from": "other"}, "in other; tokenize the data with the model's own tokenizer"),
    ],
)
def test_a_tokenizer_that_is_not_the_models_is_told_before_any_data_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: dict[str, bytes], tokenizer: Any, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    other = trained_on("zebras zigzag quickly by the jazz quartz of a wizard, vexing six foxes " * 3, 270)
    for place, files in (("model", config() | ONE_FILE | beside), ("other", other)):
        (tmp_path / place).mkdir()
        for name, content in files.items():
            (tmp_path / place / name).write_bytes(content)
    with pytest.raises(PipelineError, match=re.escape(told)):
        initial_weights.check(Store(tmp_path / "store"), recipe(tokenizer, path=str(tmp_path / "model")))


def test_a_tokenizer_that_is_the_models_or_may_become_it_is_not_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for name, content in (config() | ONE_FILE | OWN).items():
        (tmp_path / name).write_bytes(content)
    for tokenizer in (SMALL, {"vocab_size": 270}, {"from": str(tmp_path)}):
        initial_weights.check(store, recipe(tokenizer, path=str(tmp_path)))
    with pytest.raises(PipelineError, match=r"none\.json does not exist"):  # without weights, too
        initial_weights.check(store, recipe({"from": "./none.json"}))


@pytest.mark.parametrize(
    ("tokenizer", "lora", "told"),
    [
        ({"vocab_size": 400}, {}, "the tokenizer to be trained has no control tokens such as [USER]"),
        ({"from": "."}, {}, "training.objective: sft learns from conversations, and . has no control"),
        ({"from": ".", "chat": True}, {"control_tokens": False}, "training.lora would not learn them"),
        ({"from": ".", "chat": True}, {}, ""),
    ],
)
def test_control_tokens_that_will_not_be_known_are_told_before_any_data_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: Any, lora: Any, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    files = config(vocab_size=270) | ONE_FILE | OWN
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    source = {"kind": "files", "paths": ["talks.jsonl"], "format": "chat"}
    tuning = TRAINING | {"objective": "sft", "lora": lora, "pretrained": {"path": str(tmp_path)}}
    said = {"name": "mine", "corpora": [{"name": "talks", "source": source}], "tokenizer": tokenizer}
    tuned = Recipe.model_validate({**said, "training": tuning})
    with pytest.raises(PipelineError, match=re.escape(told)) if told else nullcontext():
        initial_weights.check(Store(tmp_path / "store"), tuned)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving(Hub()) as server:
        # as HF_ENDPOINT and so on, which the library reads when it is imported
        template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        settings = {
            "HUGGINGFACE_CO_URL_TEMPLATE": template,
            "ENDPOINT": server.url,
            "HF_HUB_CACHE": str(tmp_path),
            "HF_HUB_OFFLINE": False,
        }
        for name, value in settings.items():
            monkeypatch.setattr(constants, name, value)
        downloaded.cache_clear()  # each test has commits of the same names
        yield server


def test_weights_of_the_hub_are_looked_at_before_anything_is_made(hub: Hub, tmp_path: Path) -> None:
    hub.files = {hub.commits[0]: config(model_type="gemma")}
    for repo, revision, told in (
        ("org/set", "main", "model_type 'gemma' is not supported"),
        ("org/set", "other", "config.json of org/set at other cannot be downloaded .* no such revision"),
        ("org/none", "main", "config.json of org/none at main cannot be downloaded .* does not exist or is"),
        ("a/b/c", "main", "config.json of a/b/c at main cannot be downloaded"),
    ):
        with pytest.raises(PipelineError, match=told):
            initial_weights.check(Store(tmp_path / "store"), recipe(repo=repo, revision=revision))
        assert initial_weights.located(recipe(repo=repo, revision=revision)).pretrained


def test_a_branch_that_has_moved_is_other_work_and_is_trained_at_its_commit(hub: Hub, tmp_path: Path) -> None:
    branch, identities = recipe(repo="org/set", revision="main"), []
    for commit in hub.commits:
        hub.files[commit] = config() | ONE_FILE
        initial_weights.check(Store(tmp_path / "store"), branch)
        training = initial_weights.located(branch)
        assert training.pretrained and training.pretrained.revision == commit
        identities.append(initial_weights.identity(Store(tmp_path / "store"), training.pretrained))
    assert identities[0] != identities[1]


def test_an_adapter_of_the_hub_is_known_by_its_commit_and_read_with_its_base(
    hub: Hub, tmp_path: Path
) -> None:
    base, adapter = hub.commits
    settings = {"peft_type": "LORA", "lora_alpha": 8, "base_model_name_or_path": "org/set", "revision": base}
    saved = {"adapter_config.json": json.dumps(settings).encode(), "adapter_model.safetensors": save({})}
    hub.files = {base: config() | ONE_FILE | OWN, adapter: saved}
    used = recipe({"vocab_size": 270}, repo="org/set", revision="main")
    initial_weights.check(Store(tmp_path / "store"), used)
    training = initial_weights.located(used)
    assert training.pretrained and training.pretrained.revision == adapter
    data = DataConfig(
        tokenizer=tmp_path, tokenizer_sha256="", vocab_size=270, bot_id=2, eot_id=3,
        corpora=[CorpusShards(name="a", weight=1, train=[tmp_path / "a"])],
    )  # fmt: skip
    (tmp_path / "tokenizer.json").write_bytes(OWN["tokenizer.json"])
    found = Pretrained.find(training.pretrained, training.model, data).directory
    assert [path.name for path in weight_files(found)] == [
        "model.safetensors", "adapter_config.json", "adapter_model.safetensors",
    ]  # fmt: skip
    of_an_adapter = json.dumps(settings | {"revision": adapter}).encode()
    hub.files["f" * 40] = saved | {"adapter_config.json": of_an_adapter}
    with pytest.raises(PipelineError, match=r"the base org/set holds no config\.json with weights"):
        initial_weights.check(Store(tmp_path / "store"), used)
    of_main = json.dumps(settings | {"revision": None}).encode()
    hub.files = {"e" * 40: saved | {"adapter_config.json": of_main}, base: hub.files[base]}
    asked = len(hub.asked)
    initial_weights.check(
        Store(tmp_path / "store"), recipe({"vocab_size": 270}, repo="org/set", revision="e" * 40)
    )
    assert sum(path.endswith("/revision/main") for path in hub.asked[asked:]) == 1  # where the base is now


def test_an_adapter_that_was_downloaded_with_its_base_is_known_by_the_weights_of_that_base(
    hub: Hub, tmp_path: Path
) -> None:
    settings = {"peft_type": "LORA", "lora_alpha": 8, "base_model_name_or_path": "base"}
    saved = {"adapter_config.json": json.dumps(settings).encode(), "adapter_model.safetensors": save({})}
    hub.files = {"f" * 40: saved}
    base = Path(snapshot_download("org/set", revision="f" * 40)) / "base"
    base.mkdir()
    for name, content in (config() | ONE_FILE).items():
        (base / name).write_bytes(content)
    used = recipe(repo="org/set", revision="f" * 40)
    initial_weights.check(Store(tmp_path / "store"), used)
    known = initial_weights.identity(Store(tmp_path / "store"), initial_weights.located(used).pretrained)
    beside = initial_weights.identity(Store(tmp_path / "store"), recipe(path=str(base)).training.pretrained)
    assert known and known["base"] == beside


def test_an_adapter_to_a_branch_that_has_moved_is_other_work(hub: Hub, tmp_path: Path) -> None:
    settings = {"peft_type": "LORA", "lora_alpha": 8, "base_model_name_or_path": "org/set"}
    saved = {"adapter_config.json": json.dumps(settings).encode(), "adapter_model.safetensors": save({})}
    used, known = recipe(repo="org/set", revision="f" * 40), []
    for base in hub.commits:
        downloaded.cache_clear()  # each run is a process of its own
        hub.files = {"f" * 40: saved} | {base: config() | ONE_FILE}
        initial_weights.check(Store(tmp_path / "store"), used)
        source = initial_weights.located(used).pretrained
        known.append(initial_weights.identity(Store(tmp_path / "store"), source))
    assert [one and one["base"] for one in known] == [
        {"repo": "org/set", "revision": base} for base in hub.commits
    ]
