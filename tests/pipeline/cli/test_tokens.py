"""train-tokenizer and tokenize on plain files, as a user types them."""

import json
import re
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from pipeline.cli import main
from pipeline.stages import bpe
from trainer.config import load_run_config
from trainer.data.shards import Shard
from trainer.run.loop import run
from trainer.system.errors import TrainerError

TEXTS = [text for _, text in sorted(topics.items())][:40]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of two formats, one with a broken line and an empty text; and a tokenizer made of them."""
    directory = tmp_path_factory.mktemp("files")
    lines = [json.dumps({"id": f"j{number}", "text": text}) for number, text in enumerate(TEXTS[:20])]
    (directory / "a.jsonl").write_text(
        "\n".join([*lines, "{broken", json.dumps({"id": "empty", "text": ""})]) + "\n"
    )
    pq.write_table(
        pa.table({"id": [f"p{number}" for number in range(20)], "text": TEXTS[20:]}), directory / "b.parquet"
    )
    command = ["train-tokenizer", str(directory / "*.*"), "-o", str(directory / "tokenizer")]
    assert main([*command, "--vocab-size", "500"]) == 0
    return directory


def documents(path: Path) -> list[list[int]]:
    shards = [Shard(index.with_suffix("")) for index in sorted(path.glob("*.idx"))]
    return [shard.document(i).tolist() for shard in shards for i in range(shard.num_documents)]


def test_the_tokenizer_opens_in_transformers(directory: Path) -> None:
    opened = AutoTokenizer.from_pretrained(directory / "tokenizer")
    assert len(opened) == 500 and opened.bos_token == "[BOT]"
    assert opened.decode(opened.encode(TEXTS[0], add_special_tokens=False)) == TEXTS[0]


@pytest.mark.parametrize("cores", [1, 3])
def test_any_number_of_cores_trains_the_tokenizer_of_the_first_texts_that_fit(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(cores)))
    size = sum(len(text[: bpe.MAX_DOCUMENT_CHARS].encode()) for text in TEXTS[:30])
    command = ["train-tokenizer", str(directory / "*.*"), "-o", str(tmp_path / "out"), "--vocab-size", "500"]
    assert main([*command, "--sample-bytes", str(size)]) == 0
    texts = pa.array([text[: bpe.MAX_DOCUMENT_CHARS] for text in TEXTS[:30]])
    expected = bpe.files(bpe.train([texts], bpe.TokenizerParams(vocab_size=500)))
    assert {name: (tmp_path / "out" / name).read_text() for name in expected} == expected


def test_tokenize_writes_every_document_between_begin_and_end(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, tokenizer_directory = tmp_path / "out", str(directory / "tokenizer")
    command = ["tokenize", str(directory / "*.*"), "-o", str(out), "--tokenizer", tokenizer_directory]
    command += ["--shard-tokens", "20000"]
    assert main(command) == 0
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    begin, end = (tokenizer.token_to_id(name) for name in ("[BOT]", "[EOT]"))
    found = documents(out / "train")
    assert [tokenizer.decode(document[1:-1], skip_special_tokens=False) for document in found] == TEXTS
    assert all(document[0] == begin and document[-1] == end for document in found)
    record = json.loads((out / "shards.json").read_text())
    tokens = sum(map(len, found))
    assert len(record["shards"]) > 3 and sum(shard["tokens"] for shard in record["shards"]) == tokens
    rejects = pq.read_table(out / "rejects.parquet").column("reason").to_pylist()
    assert set(rejects) == {"invalid_json", "empty_text"}
    said = capsys.readouterr().out
    assert "MB/s" in said and f"{tokens:,}" in said
    assert main(command) == 2
    assert "already exists" in capsys.readouterr().err


def test_a_share_is_held_out_by_id_and_the_rest_is_the_same(directory: Path, tmp_path: Path) -> None:
    common = ["--tokenizer", str(directory / "tokenizer" / "tokenizer.json")]
    for out, more in (("whole", []), ("split", ["--validation-fraction", "0.3"])):
        assert main(["tokenize", str(directory / "*.*"), "-o", str(tmp_path / out), *common, *more]) == 0
    whole, train, held_out = (
        documents(tmp_path / place) for place in ("whole/train", "split/train", "split/validation")
    )
    assert 4 < len(held_out) < 20
    assert sorted(train + held_out) == sorted(whole)


def test_the_record_of_shards_is_all_that_a_configuration_says_of_its_data(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["tokenize", str(directory / "*.*"), "-o", "notes", "--tokenizer", str(directory / "tokenizer")]
    assert main([*command, "--validation-fraction", "0.3"]) == 0
    model = {"n_layers": 1, "d_model": 16, "n_heads": 1, "n_kv_heads": 1, "d_ff": 16}
    sizes = {"seq_len": 16, "global_batch_tokens": 32, "micro_batch_size": 2, "max_tokens": 64}
    cadence = {key: {"every_tokens": 64} for key in ("checkpoint", "evaluation")}
    training = {"model": model, "precision": "fp32", **sizes, **cadence}
    (tmp_path / "run.yaml").write_text(
        json.dumps({"run_dir": "run", "data": {"shards": "notes/shards.json"}, "training": training})
    )
    config = load_run_config(tmp_path / "run.yaml")
    (corpus,) = config.data.corpora
    tokenizer = Tokenizer.from_file("notes/tokenizer.json")
    assert (config.data.vocab_size, config.data.bot_id) == (500, tokenizer.token_to_id("[BOT]"))
    assert corpus.name == "notes" and config.data.eot_id == tokenizer.token_to_id("[EOT]")
    text = [tokenizer.decode(document) for document in documents(tmp_path / "notes" / "validation")]
    assert corpus.validation_bytes == sum(len(one.encode()) for one in text)
    assert run(config) == 0
    written = load_run_config(tmp_path / "run" / "config.yaml")
    assert written.data == config.data
    changed = load_run_config(tmp_path / "run.yaml", ["data.vocab_size=501"])
    assert changed.data == config.data.model_copy(update={"vocab_size": 501})
    record = json.loads((tmp_path / "notes" / "shards.json").read_text())
    del record["vocab_size"]
    (tmp_path / "notes" / "shards.json").write_text(json.dumps(record))
    with pytest.raises(TrainerError, match=r"shards\.json cannot be read .*vocab_size"):
        load_run_config(tmp_path / "run.yaml")
    with pytest.raises(TrainerError, match=r"data\.shards: nowhere\.json cannot be read"):
        load_run_config(tmp_path / "run.yaml", ["data.shards=nowhere.json"])


def test_ids_beyond_65535_are_stored_in_four_bytes(directory: Path, tmp_path: Path) -> None:
    changed = json.loads((directory / "tokenizer" / "tokenizer.json").read_text())
    changed["added_tokens"].append({**changed["added_tokens"][3], "id": 70_000, "content": "<|end|>"})
    changed["model"]["vocab"]["<|end|>"] = 70_000
    (tmp_path / "tokenizer.json").write_text(json.dumps(changed))
    command = ["tokenize", str(directory / "b.parquet"), "-o", str(tmp_path / "out")]
    ends = ["--begin-of-text", "[BOT]", "--end-of-text", "<|end|>"]
    assert main([*command, "--tokenizer", str(tmp_path), *ends]) == 0
    last = {document[-1] for document in documents(tmp_path / "out" / "train")}
    assert last == {70_000}
    assert Shard(tmp_path / "out" / "train" / "part.00000").dtype == np.dtype("<u4")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["tokenize", "--tokenizer", "./nowhere.json"],
            r"tokenizer: nowhere\.json does not exist: name a tokenizer\.json, a directory",
        ),
        (
            ["tokenize", "--tokenizer", "tokenizer", "--end-of-text", "</s>"],
            r"'</s>' \(eos_token\) is not in its vocabulary: name another token",
        ),
        (
            ["tokenize", "--tokenizer", "tokenizer", "--validation-fraction", "1"],
            "must be at least 0 and below 1",
        ),
        (["tokenize", "--tokenizer", ""], "--tokenizer: must be at least 1 characters long"),
        (["train-tokenizer", "--vocab-size", "100"], "--vocab-size: must be at least 260, not 100"),
        (
            ["train-tokenizer", "--vocab-size", "60000"],
            r"the text supports only \d+ entries: set it to \d+ or less",
        ),
    ],
)
def test_what_is_wrong_is_one_line_and_leaves_nothing(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(directory)
    before = sorted(directory.iterdir())
    assert main([arguments[0], "b.parquet", "-o", "out", *arguments[1:]]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert re.search(says, said)
    assert sorted(directory.iterdir()) == before
