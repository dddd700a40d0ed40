"""`python -m pipeline inspect-shards` and `export`: what a user sees, and what other programs open."""

import json
import os
import re
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
import yaml
from tokenizers import Tokenizer

from pipeline.cli import main
from pipeline.recipe.recipe import RECIPES
from pipeline.recipe.sections import ShardParams
from pipeline.stages.bpe import TokenizerParams
from pipeline.stages.dedup import DedupParams
from pipeline.steps.tokens.shards import prefixes
from pipeline.store import keys
from pipeline.store.parts import kept_documents
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import ENGINE, SETTINGS, TEXTS, prepare
from tests.pipeline.steps.make import deduplicate, tokenize, tokenizer
from trainer.data.shards import Shard, bin_path, idx_path

SHARDS = ShardParams(validation_fraction=0.2, shard_tokens=20_000)
# `datasets` takes a file called test_... for a test split unless told
CORPORA = {"first": TEXTS[:15], "test_second": TEXTS[12:]}
SPLITS = ("train", "validation")
Run = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe of two corpora and a store in which they became shards."""
    directory = tmp_path_factory.mktemp("project")
    recipe = yaml.safe_load((RECIPES / "default.yaml").read_text())
    recipe["corpora"] = [
        {"name": name, "source": {"kind": "files", "paths": [f"{name}.jsonl"]}} for name in CORPORA
    ]
    recipe |= SETTINGS | {"name": "test", "shards": SHARDS.model_dump(), "scrub": {}, "dedup": {}}
    recipe["tokenizer"] = {"vocab_size": 600}
    (directory / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    store = Store(directory / "store")
    for name, texts in CORPORA.items():
        prepare(store, directory / f"{name}.jsonl", texts)
    deduplicate(store, ENGINE, list(CORPORA), DedupParams())
    tokenizer(
        store, ENGINE, "test", list(CORPORA), TokenizerParams(vocab_size=600), SHARDS.validation_fraction
    )
    for name in CORPORA:
        tokenize(store, ENGINE, name, SHARDS)
    return directory


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(made, tmp_path / "project"))


@pytest.fixture
def run(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(project / "recipe.yaml"))
    monkeypatch.setenv("GROUNDWORK_STORE", str(project / "store"))

    def run(*arguments: Path | str) -> tuple[int, str]:
        status = main([*map(str, arguments)])
        said = capsys.readouterr()
        return status, said.out + said.err

    return run


def texts(store: Store, corpus: str, split: str) -> list[str]:
    """The documents of a corpus' shards, decoded."""
    decoder = Tokenizer.from_file(str(store.current(keys.TOKENIZER).path / "tokenizer.json"))
    shards = map(Shard, prefixes(store.current(keys.token_shards(corpus)), split))
    return [
        decoder.decode(shard.document(i)[1:-1].tolist(), skip_special_tokens=False)
        for shard in shards
        for i in range(shard.num_documents)
    ]


def shard_of(project: Path, corpus: str) -> Path:
    return prefixes(Store(project / "store").current(keys.token_shards(corpus)), "train")[0]


def test_every_corpus_is_counted_and_its_first_documents_are_shown(run: Run, project: Path) -> None:
    status, said = run("inspect-shards", "--documents", "2")
    assert status == 0
    store = Store(project / "store")
    for corpus in CORPORA:
        counts = store.current(keys.token_shards(corpus)).counts
        for split in SPLITS:
            block = said.partition(f"{corpus} {split}\n")[2]
            assert f"tokens                {counts[f'{split}_tokens']:,}\n" in block
            shown = texts(store, corpus, split)[:2]
            assert [f"[BOT]{text.splitlines()[0]}" in block for text in shown] == [True] * len(shown)


def test_one_split_of_one_corpus(run: Run) -> None:
    status, said = run("inspect-shards", "first", "--split", "validation", "--documents", "0")
    assert status == 0
    assert said.splitlines()[0] == "first validation" and "test_second" not in said
    assert "  tokens  " in said and "document 0" not in said


@pytest.mark.parametrize(
    ("damage", "said_of_it"),
    [
        (lambda prefix: os.truncate(idx_path(prefix), 40), r"\.idx has 40 bytes instead of [0-9]+"),
        (lambda prefix: bin_path(prefix).unlink(), r"\.bin is missing"),
    ],
)
def test_a_file_that_is_cut_or_gone_is_named_with_the_way_out(
    run: Run, project: Path, damage: Callable[[Path], object], said_of_it: str
) -> None:
    damage(shard_of(project, "test_second"))
    status, said = run("inspect-shards")
    assert status == 2
    assert said.count("\n") == 1
    assert re.search(f"{said_of_it}: materialize token_shards/test_second, which moves", said)


def test_a_directory_of_shards_is_read_with_the_tokenizer_beside_it(run: Run, tmp_path: Path) -> None:
    run("export", "--format", "megatron", "-o", tmp_path / "out", "--corpus", "first")
    status, said = run("inspect-shards", tmp_path / "out" / "first", "--split", "train")
    assert status == 0
    assert "[BOT]" in said
    shutil.rmtree(tmp_path / "out" / "tokenizer")
    bare = run("inspect-shards", tmp_path / "out" / "first")[1]
    assert "document 0" in bare and "[BOT]" not in bare
    shard = next((tmp_path / "out" / "first" / "train").glob("*.bin"))
    shard.unlink()
    assert f"{shard.name}: no such file" in run("inspect-shards", tmp_path / "out" / "first")[1]


def test_what_cannot_be_inspected_is_said(run: Run, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    unknown = "third: neither an existing path nor a corpus of the recipe (first, test_second)"
    assert run("inspect-shards", "third") == (2, f"error: {unknown}\n")
    assert "no token shard is there" in run("inspect-shards", empty)[1]


def test_datasets_opens_the_kept_documents_in_the_splits_of_the_shards(
    run: Run, project: Path, tmp_path: Path
) -> None:
    from datasets import load_dataset

    out, cache = tmp_path / "clean", str(tmp_path / "cache")
    assert run("export", "--format", "parquet", "-o", out)[0] == 0
    everything = load_dataset(str(out), cache_dir=cache)
    store = Store(project / "store")
    assert set(everything) == set(SPLITS)
    assert everything["train"].column_names == ["corpus", "id", "text", "source", "url", "metadata"]
    for corpus in CORPORA:
        one = load_dataset(str(out), corpus, cache_dir=cache)
        for split in SPLITS:
            rows = [row for row in everything[split] if row["corpus"] == corpus]
            assert [row["text"] for row in rows] == texts(store, corpus, split)
            assert one[split]["id"] == [row["id"] for row in rows]
        kept = [name for batch in kept_documents(store, corpus) for name in batch.column("id").to_pylist()]
        assert sorted(name for split in SPLITS for name in one[split]["id"]) == sorted(kept)


def test_the_card_of_exported_documents_says_where_they_are_from_and_what_was_left_out(
    run: Run, project: Path, tmp_path: Path
) -> None:
    recipe = yaml.safe_load((project / "recipe.yaml").read_text())
    recipe["corpora"][0]["license"] = "cc-by-4.0"
    (project / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    out, store = tmp_path / "clean", Store(project / "store")
    assert run("export", "--format", "parquet", "-o", out)[0] == 0
    card = (out / "README.md").read_text()
    data = yaml.safe_load(card.split("---\n")[1])
    assert data["size_categories"] == "n<1K" and "license" not in data  # that of the second is not known
    assert "| first | files | cc-by-4.0 |" in card and "| test_second | files | unknown |" in card
    counts = [store.current(key("first")).counts for key in (keys.raw, keys.quality, keys.token_shards)]
    left = sum(counts[2][f"{split}_documents"] for split in SPLITS)
    assert f"| first | {counts[0]['documents']} | {counts[1]['kept']} | {left} |" in card
    assert "removed 3 (exact)" in card and str(project) not in card + (out / "croissant.json").read_text()
    only = tmp_path / "only"
    assert run("export", "--format", "parquet", "-o", only, "--corpus", "first")[0] == 0
    card = (only / "README.md").read_text()
    assert yaml.safe_load(card.split("---\n")[1])["license"] == ["cc-by-4.0"] and "test_second" not in card


def test_croissant_describes_the_files_the_columns_and_how_they_were_made(
    run: Run, project: Path, tmp_path: Path
) -> None:
    out, store = tmp_path / "clean", Store(project / "store")
    assert run("export", "--format", "parquet", "-o", out)[0] == 0
    described = json.loads((out / "croissant.json").read_text())
    files = {one["@id"]: one["sha256"] for one in described["distribution"] if "sha256" in one}
    paths = out.glob("*/*.parquet")
    assert files == {
        f"{path.parent.name}/{path.name}": sha256(path.read_bytes()).hexdigest() for path in paths
    }
    made = {one["prov:generated"]["@id"]: one for one in described["prov:wasGeneratedBy"]}
    raw, decided = (
        f"urn:sha256:{store.current(key).data_version}" for key in (keys.raw("first"), keys.DEDUP)
    )
    assert raw in [one["@id"] for one in described["prov:wasDerivedFrom"]]
    wanted, seen = [decided], set()  # from the decisions back to what was read
    while wanted:
        seen.add(one := wanted.pop())
        wanted += [used["@id"] for used in made[one]["prov:used"] if used["@id"] not in seen]
    assert raw in seen

    mlcroissant = pytest.importorskip("mlcroissant", reason="needs mlcroissant, the reference")
    found = mlcroissant.Dataset(str(out / "croissant.json"))  # which refuses what is not valid
    assert found.metadata.ctx.conforms_to.value == "http://mlcommons.org/croissant/1.1"
    read = sorted(row["documents/text"].decode() for row in found.records("documents"))
    assert read == sorted(text for one in CORPORA for split in SPLITS for text in texts(store, one, split))


def test_tokens_are_exported_with_their_tokenizer_and_what_they_were_made_from(
    run: Run, project: Path, tmp_path: Path
) -> None:
    out, store = tmp_path / "out", Store(project / "store")
    status, said = run("export", "--format", "megatron", "-o", out)
    tokens = sum(store.current(keys.token_shards(corpus)).counts["train_tokens"] for corpus in CORPORA)
    assert status == 0
    assert f"train tokens{tokens:>34,}" in said
    tokenizer = store.current(keys.TOKENIZER).path / "tokenizer.json"
    assert (out / "tokenizer" / "tokenizer.json").read_bytes() == tokenizer.read_bytes()
    made_from = json.loads((out / "export.json").read_text())["made_from"]
    for key in ("token_shards/first", "tokenizer"):
        assert made_from[key] == store.current(key).data_version
    chosen = tmp_path / "chosen"
    run("export", "--format", "megatron", "-o", chosen, "--corpus", "test_second", "--split", "train")
    exported = list(chosen.rglob("*.bin"))
    tokens = store.current(keys.token_shards("test_second")).counts["train_tokens"]
    assert sum(path.stat().st_size for path in exported) == 2 * tokens
    assert {path.parent for path in exported} == {chosen / "test_second" / "train"}


def test_an_export_leaves_what_is_there_alone_and_nothing_half_made(
    run: Run, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("")
    assert (
        "already exists: name another directory"
        in run("export", "--format", "parquet", "-o", tmp_path / "out")[1]
    )
    unknown = run("export", "--format", "megatron", "--corpus", "third", "-o", tmp_path / "new")[1]
    assert "--corpus: unknown 'third'; choose from first, test_second" in unknown
    bin_path(shard_of(project, "test_second")).unlink()
    status, said = run("export", "--format", "megatron", "-o", tmp_path / "new")
    assert status == 2
    assert ".bin is missing: materialize token_shards/test_second" in said
    assert {path.name for path in tmp_path.iterdir()} == {"out", "project"}


def test_documents_that_the_recipe_does_not_mean_are_not_exported(
    run: Run, project: Path, tmp_path: Path
) -> None:
    recipe = yaml.safe_load((project / "recipe.yaml").read_text())
    recipe["quality"] = {"profile": "docs", "min_words": 30}
    (project / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    status, said = run("export", "--format", "parquet", "-o", tmp_path / "out")
    assert status == 2
    assert said == (
        "error: corpora/first/quality has not been made for this recipe yet, the newest version has other "
        "settings (min_words): materialize it (for example with the job `pretrain`) first\n"
    )
