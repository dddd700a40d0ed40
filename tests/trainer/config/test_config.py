"""The run's configuration: strict about keys, in tokens, and identical in meaning wherever it is stored."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from trainer.config import ModelConfig, RunConfig, config_hash, load_run_config, load_to_train, run_identity
from trainer.config.base import Config
from trainer.config.optimizer import OptimizerConfig, OptimizerKind
from trainer.system.errors import TrainerError


def example() -> dict[str, Any]:
    return {
        "run_dir": "run",
        "data": {
            "tokenizer": "tokenizer",
            "tokenizer_sha256": "0" * 64,
            "vocab_size": 100,
            "bot_id": 2,
            "eot_id": 3,
            "corpora": [{"name": "a", "weight": 1, "train": ["a/train"]}],
        },
        "training": {
            "model": {"n_layers": 2, "d_model": 32, "n_heads": 4, "n_kv_heads": 2, "d_ff": 64},
            "seq_len": 16,
            "global_batch_tokens": 128,
            "micro_batch_size": 4,
            "max_tokens": 1280,
            "checkpoint": {"every_tokens": 640},
            "evaluation": {"every_tokens": 640},
        },
    }


def models(of: type[BaseModel]) -> set[type[BaseModel]]:
    return {of, *(below for one in of.__subclasses__() for below in models(one))}


def test_every_setting_is_in_the_dump_at_its_default_too() -> None:
    """What a run or a version is named from says the same of a setting, written or not."""
    for model in models(Config):
        assert not [name for name, field in model.model_fields.items() if field.exclude_if], model
    dump = OptimizerConfig().model_dump(mode="json")
    assert dump.keys() == OptimizerConfig.model_fields.keys()


@pytest.mark.parametrize("backend", ["auto", "math", "sdpa", "flex", "flash"])
def test_attention_sinks_are_refused_with_flash_attention_where_the_settings_are_read(
    tmp_path: Path, backend: str
) -> None:
    values = example()
    values["training"]["model"]["attention_sinks"] = True
    values["training"]["attention"] = backend
    refused = pytest.raises(TrainerError, match="attention flash has no attention sinks: set attention: auto")
    with refused if backend == "flash" else nullcontext():
        load(tmp_path, values)


def load(tmp_path: Path, values: dict[str, Any], *overrides: str) -> RunConfig:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values))
    return load_run_config(tmp_path / "config.yaml", list(overrides))


def test_overrides_reach_into_the_file(tmp_path: Path) -> None:
    changes = ["training.optimizer.lr=1e-4", "training.max_tokens=2_560", "training.compile=off"]
    config = load(tmp_path, example(), *changes, "data.corpora.0.weight=3")
    training = config.training
    assert (training.optimizer.lr, training.steps, training.compile) == (1e-4, 20, False)
    assert config.data.corpora[0].weight == 3


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("training.optimiser.lr=1", r"training: unknown key 'optimiser': did you mean 'optimizer'\?"),
        ("training.optimizer.learning_rat=1", "training.optimizer: unknown key 'learning_rat'"),
        ("training.model.n_head=2", "did you mean 'n_heads'"),
        ("rundir=x", "top level: unknown key 'rundir': did you mean 'run_dir'"),
        ("training.model.n_heads=5", "d_model 32 must be a multiple of n_heads 5"),
        ("training.model.n_kv_heads=3", "n_heads 4 must be a multiple of n_kv_heads 3"),
        ("training.model.d_model=4", "head_dim 1 must be even for rotary embeddings: set head_dim"),
        ("training.global_batch_tokens=100", "set it to 128"),
        ("training.max_tokens=1300", "set it to 1280"),
        ("training.precision=fp4", "training.precision"),
        ("data.bot_id=100", "bot_id 100 is outside the vocabulary of 100"),
        ("data.corpora.0.validation=[v]", "set validation_bytes"),
        ("data.corpora.7.weight=1", "cannot be applied"),
        ("model=[[", r"cannot be applied: [^\n]*expected the node content, but found '<stream end>'[^\n]*$"),
        ("seed", "not of the form"),
        ("data.corpora.0.weight=.inf", "weight: must be a finite number, not inf"),
        ("training.optimizer.lr=.nan", "lr: must be a finite number, not nan"),
        ("training.optimizer.lr=true", "training.optimizer: lr must be a number, not true"),
        ("training.micro_batch_size=true", "training: micro_batch_size must be a number, not true"),
        ("training.optimizer.betas=[1.5, 2]", r"betas\.0: must be below 1, not 1\.5"),
        ("training.optimizer.betas=[0.9, 1.0]", r"betas\.1: must be below 1, not 1"),
        ("training.max_tokens=1.5e0", "max_tokens: must be a whole number"),
        ("training.threads=100000", "threads: must be at most 1024, not 100000"),
        ("training.samples.temperature=1.0e-40", "temperature: must be 0 or at least 1e-06, not 1e-40"),
        ("training.samples.temperature=1.0e+40", "temperature: must be at most 1000000"),
        ("training.schedule={kind: wsd, kind: cosine}", "the key 'kind' is here a second time: remove one"),
        (r'run_dir="a\0b"', "run_dir: must be a path, which holds no NUL character"),
        ("run_dir=~nobody-of-this-name/run", "run_dir: .*~nobody-of-this-name.*home directory"),
        ("data.corpora.0.train=[/]", "/ is not a prefix of a shard: name its path without .bin"),
        (f"training.max_tokens={10**30}", "max_tokens: must be at most 1000000000000000000"),
        ("training.model.rope_theta=1", "rope_theta: must be above 1, not 1"),
        ("training.checkpoint.every_tokens=null", "checkpoint: set every_tokens or every_minutes"),
        (
            "training.pretrained={path: a, repo: b/c, revision: main}",
            "pretrained: set either path .*not both",
        ),
        ("training.pretrained={repo: b/c}", "pretrained: set repo and revision together"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_what_to_do(tmp_path: Path, override: str, says: str) -> None:
    with pytest.raises(TrainerError, match=says):
        load(tmp_path, example(), override)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"optimizer": {"kind": "adamw", "muon_lr": 0.02}},
            "optimizer.muon_lr has no effect here, it belongs to kind muon and not to adamw",
        ),
        ({"optimizer": {"kind": "adafactor", "betas": [0.9, 0.9]}}, "optimizer.betas has no effect"),
        (
            {"optimizer": {"kind": "lion", "eps": 1e-6}},
            "belongs to kind adamw or muon or adamw_8bit and not to lion",
        ),
        ({"optimizer": {"sophia_rho": 0.1}}, "optimizer.sophia_rho has no effect"),
        ({"optimizer": {"kind": "adamw", "python": "a:B"}}, "optimizer.python has no effect"),
        (
            {"optimizer": {"kind": "adamw", "params": {"b": 1}}},
            "params has no effect .*belongs to kind python",
        ),
        ({"schedule": {"kind": "cosine", "decay_fraction": 0.5}}, "schedule.decay_fraction has no effect"),
        ({"schedule": {"kind": "constant", "min_lr_ratio": 0.5}}, "schedule.min_lr_ratio has no effect"),
        (
            {"stages": [{"name": "a", "schedule": {"kind": "linear", "decay_fraction": 0.5}}]},
            r"stages\.0\.schedule\.decay_fraction has no effect",
        ),
        (
            {"pretrained": {"path": "weights"}, "init": {"std": 0.1}},
            "training.init has no effect here, it belongs to training from scratch",
        ),
        ({"parallel": {"reshard_after_forward": False}}, "belongs to parallel.dp_shard above 1"),
    ],
)
def test_a_setting_that_has_no_effect_is_refused(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    settings = example()
    settings["training"] |= changes
    load(tmp_path, settings)  # a checkpoint is read whatever its run was configured with
    with pytest.raises(TrainerError, match=says):
        load_to_train(tmp_path / "config.yaml")


def test_a_tuning_whose_warmup_is_longer_is_not_trained(tmp_path: Path) -> None:
    settings = example()
    settings["data"]["chat"] = {"system": 4, "user": 5, "assistant": 6, "tool": 7, "end": 8}
    settings["training"] |= {"objective": "sft", "schedule": {"kind": "cosine", "warmup_tokens": 2560}}
    load(tmp_path, settings)  # a recipe is read before the length is known
    with pytest.raises(TrainerError, match=r"config\.yaml: schedule\.warmup_tokens 2560 do not fit into"):
        load_to_train(tmp_path / "config.yaml")


@pytest.mark.parametrize("optimizer", get_args(OptimizerKind))
@pytest.mark.parametrize("schedule", ["constant", "linear", "wsd"])
def test_a_configuration_that_holds_every_default_has_no_setting_without_effect(
    tmp_path: Path, optimizer: str, schedule: str
) -> None:
    settings = example()
    named = {"python": "torch.optim:NAdam"} if optimizer == "python" else {}
    settings["training"] |= {"optimizer": {"kind": optimizer, **named}, "schedule": {"kind": schedule}}
    settings["training"]["pretrained"] = {"path": "weights"}
    written = load(tmp_path, settings)
    (tmp_path / "all.yaml").write_text(yaml.safe_dump(written.model_dump(mode="json")))
    assert load_to_train(tmp_path / "all.yaml") == written


def test_a_whole_number_may_be_written_with_an_exponent(tmp_path: Path) -> None:
    text = yaml.safe_dump(example()).replace("max_tokens: 1280", "max_tokens: 128e1")
    (tmp_path / "run.yaml").write_text(text)
    assert load_run_config(tmp_path / "run.yaml").training.max_tokens == 1280


def test_a_key_that_is_in_the_file_twice_is_named_with_its_line(tmp_path: Path) -> None:
    text = yaml.safe_dump(example())
    (tmp_path / "run.yaml").write_text(f"{text}run_dir: elsewhere\n")
    line = len(text.splitlines()) + 1
    with pytest.raises(TrainerError, match=rf"(?s)'run_dir' is here a second time: remove one.*line {line},"):
        load_run_config(tmp_path / "run.yaml")


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: [")
    (tmp_path / "text.yaml").write_text("run_dir")
    for name in ("bad.yaml", "missing.yaml", "text.yaml: is not a mapping"):
        with pytest.raises(TrainerError, match=name):
            load_run_config(tmp_path / name.partition(":")[0])


def test_places_and_cadence_do_not_change_the_meaning_but_settings_and_data_do(tmp_path: Path) -> None:
    settings = example()
    settings["data"]["corpora"].append({**settings["data"]["corpora"][0], "name": "b"})

    def hash_of(*overrides: str, shards: str = "content", precision: str = "fp32") -> str:
        config = load(tmp_path, settings, *overrides)
        return config_hash(run_identity(config, precision, {"a": shards, "b": "more"}))

    same = hash_of()
    moved = ("run_dir=elsewhere", "data.corpora.0.train=[moved]")
    assert hash_of(*moved, "training.checkpoint.every_tokens=1", "training.threads=1") == same
    assert hash_of("training.seed=1") != same
    assert hash_of("data.corpora.0.weight=2") != same
    assert hash_of(shards="other") != same
    assert hash_of(precision="bf16") != same  # what `auto` is on another machine
    settings["data"]["corpora"].reverse()
    assert hash_of() != same  # the order of corpora decides the order of samples


def test_an_override_reaches_into_a_named_size_and_a_section_that_is_not_there(tmp_path: Path) -> None:
    settings = example()
    settings["training"]["model"] = "tiny"
    settings["training"]["averaging"] = None
    averaging = "training.averaging.half_life_tokens=64"
    config = load(tmp_path, settings, "training.model.qk_norm=true", averaging)
    assert config.training.model.qk_norm and config.training.model.n_layers == 4
    assert config.training.averaging and config.training.averaging.half_life_tokens == 64


def test_the_parameter_count_is_that_of_llama_7b() -> None:
    llama = ModelConfig(n_layers=32, d_model=4096, n_heads=32, n_kv_heads=32, d_ff=11008, qk_norm=False)
    assert llama.parameters(32_000) == 6_738_415_616


def test_a_configuration_that_was_written_with_other_defaults_means_what_it_says(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    """A run's own config.yaml leaves nothing to defaults."""
    settings["training"] |= {
        "optimizer": {"kind": "adamw", "lr": 0.003, "groups": [], "weight_decay": 0.1},
        "schedule": {"kind": "cosine", "warmup_tokens": 0, "min_lr_ratio": 0.1},
    }
    settings["training"]["model"]["qk_norm"] = False
    written = load(tmp_path, settings).training
    again = load(tmp_path, settings | {"training": written.model_dump(mode="json")}).training
    assert again == written
    assert (again.optimizer.groups, again.schedule.warmup_tokens, again.model.qk_norm) == ([], 0, False)
    muon = {**settings["training"], "optimizer": {"kind": "muon", "groups": []}}
    assert load(tmp_path, settings | {"training": muon}).training.optimizer.groups == []


def test_a_wrong_kind_is_one_mistake_and_not_also_those_that_follow_from_it(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    settings["training"] |= {"optimizer": {"kind": "adam"}}
    with pytest.raises(TrainerError, match=r"must be 'adamw', .* or 'python', not 'adam'$"):
        load(tmp_path, settings)
