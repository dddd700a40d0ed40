"""docs/features.md, the ledger of what was asked for by name, is whole and true."""

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import pipeline.cli
import trainer.__main__
from pipeline.recipe.loading import load_recipe
from pipeline.recipe.recipe import RECIPES
from pipeline.recipe.reference import found_settings
from pipeline.stages.quality import PROFILES
from tests.test_docs import anchors, every_job
from trainer.system import launch

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "features.md"
# The words that were asked for, which stay in their rows. No row leaves this list.
ASKED: dict[int, str] = {
    1: "Dagster assets download personal data quality MinHash BPE uint16 uint32 training job checkpoints",
    2: "web UI re-runs dagster job execute -j pretrain schedule lineage",
    3: "dagster dagster-webserver datasets tokenizers numpy torch pyarrow",
    4: "datasketch",
    5: "flash-attn",
    6: "hub name:N several wikitext-2 wikitext-103 TinyStories openwebtext wikipedia fineweb sample-10BT",
    7: "e-mail phone SSN IP placeholders half",
    8: "128 4,096 mean word length 3 to 10 special characters .3 unique words .2",
    9: "near duplicates",
    10: "byte-level BPE 50,000 [UNK] [BOT] [EOT] [PAD] all cores",
    11: "windows stream padding shifted by one loss real tokens",
    12: "Llama RMSNorm RoPE SwiGLU causal from scratch existing weights",
    13: "FlashAttention fallback",
    14: "attention sinks flash kernels",
    15: "AdamW decay betas clipped 1.0",
    16: "Adafactor Lion Sophia",
    17: "AdamW 8 bits",
    18: "warms up cosine line constant",
    19: "curriculum stages share rate batch steps short windows first best text last",
    20: "bf16 fp16 loss scale fp8 fp32",
    21: "accumulated micro-batch activation checkpointing",
    22: "DDP tensor parallel pipeline parallel FSDP",
    23: "every N perplexity samples",
    24: "every N optimizer schedule place in the data exact end always wait",
    25: "checkpoints model only disk",
    26: "tokenizer beside the model Hugging Face",
    27: "progress bar terminal loss speed time left log file",
    28: "loss gradient norm parameter norm throughput spikes",
    29: "Chinchilla's law loss of N parameters on D tokens best D",
    30: "memory time cost GPU",
    31: "SFT DPO pretrained",
    32: "small local one GPU 171 M 12 GB 1B 7B",
}
SETTING = re.compile(r"[a-z_]+(\.[a-z_]+)*")
MODULES = {"dagster-webserver": None}  # a program, which no module imports


@dataclass(frozen=True)
class Row:
    number: int
    what: str
    typed: tuple[str, ...]
    pages: tuple[str, ...]
    tests: tuple[str, ...]


@cache
def rows() -> tuple[Row, ...]:
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if re.match(r"\|\s*\d+ \|", line):
            number, what, typed, pages, tests = (cell.strip() for cell in line.strip("|").split(" | "))
            found.append(
                Row(
                    int(number),
                    what,
                    tuple(re.findall(r"`([^`]+)`", typed)),
                    tuple(re.findall(r"\]\(([^)]+)\)", pages)),
                    tuple(re.findall(r"`([^`]+)`", tests)),
                )
            )
    return tuple(found)


def with_each(field: str) -> Iterator[Any]:
    """A parameter for each value of a column, named after its row."""
    for row in rows():
        for value in getattr(row, field):
            yield pytest.param(value, id=f"{row.number}-{value}")


def test_no_row_that_was_asked_for_is_missing() -> None:
    numbers = [row.number for row in rows()]
    assert numbers == sorted(set(numbers))
    assert sorted(set(ASKED) - set(numbers)) == []


@pytest.mark.parametrize("row", rows(), ids=lambda row: str(row.number))
def test_a_row_says_what_was_asked_for_and_how_where_and_by_which_test(row: Row) -> None:
    text = f"{row.what} {' '.join(row.typed)}".lower()
    asked = ASKED.get(row.number, "").lower().split()
    assert [word for word in asked if word not in text] == []
    assert row.typed, "no setting or command"
    assert row.pages, "no page"
    assert row.tests, "no test"


@pytest.mark.parametrize("typed", with_each("typed"))
def test_what_a_row_has_one_type_is_accepted(
    typed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in launch.environment().items():  # without them the trainer replaces this process
        monkeypatch.setenv(name, value)
    path, given, said = typed.partition(": ")
    if SETTING.fullmatch(path) and given:
        recipe = yaml.safe_load((RECIPES / "default.yaml").read_text(encoding="utf-8"))
        *sections, name = path.split(".")
        place = recipe
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = yaml.safe_load(said)
        (tmp_path / "changed.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
        load_recipe(tmp_path / "changed.yaml")
    elif SETTING.fullmatch(typed):
        assert found_settings(typed)
    else:
        accepts(typed, capsys)


def accepts(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Fails unless what stands on the command line exists: target, job, recipe, extra, command, option."""
    match command.split():
        case ["make", target]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        case ["dagster", "job", "execute", "-j", job]:
            assert job in every_job()
        case ["pip", "install", "-e", extra]:
            assert extra.strip("'.[]") in project()["optional-dependencies"]
        case ["python", "-m", "pipeline" | "trainer" as program, *rest]:
            assert_help_names(program, rest, capsys)
        case [assignment] if assignment.startswith("GROUNDWORK_RECIPE="):
            load_recipe(RECIPES / f"{assignment.partition('=')[2]}.yaml")
        case _:
            pytest.fail(f"nobody knows whether `{command}` exists: add its kind to this test")


def assert_help_names(program: str, rest: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    command = [word for word in rest if not word.startswith("-")]
    if program == "trainer" and command:
        assert command[0] in trainer.__main__.COMMANDS
    with pytest.raises(SystemExit) as ended:
        (pipeline.cli.main if program == "pipeline" else trainer.__main__.main)([*command, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert [option for option in rest if option.startswith("-") and option not in shown] == []


@pytest.mark.parametrize("row", rows(), ids=lambda row: str(row.number))
def test_the_page_of_a_row_speaks_of_what_one_types(row: Row) -> None:
    sections = [section(link) for link in row.pages]
    words = {re.split(r"[.\s=]", typed.partition(": ")[0])[-1].strip("'[]") for typed in row.typed}
    assert any(word in text for word in words for text in sections), f"none of {sorted(words)}"


def section(link: str) -> str:
    """The section of a page that a link names, down to the next heading of its level; or the whole page."""
    place, _, anchor = link.partition("#")
    page = PAGE.parent / place
    text = page.read_text(encoding="utf-8")
    if not anchor:
        return text
    assert anchor in anchors(page), link
    chosen, level = list[str](), 0
    for line in text.splitlines():
        heading = re.match(r"(#+) (.+)", line)
        if heading and level and len(heading[1]) <= level:
            break
        slug = re.sub(r"[^\w -]", "", heading[2].lower()).replace(" ", "-") if heading else None
        if heading and slug == anchor:
            level = len(heading[1])
        if level:
            chosen.append(line)
    return "\n".join(chosen)


@pytest.mark.parametrize("test", with_each("tests"))
def test_the_test_of_a_row_exists(test: str) -> None:
    path, _, name = test.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def project() -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return settings["project"]


def test_the_packages_that_were_named_are_installed_and_used() -> None:
    needed = {re.split(r"[<>=\[ ]", line)[0] for line in project()["dependencies"]}
    imported = set()
    for path in [*(ROOT / "pipeline").rglob("*.py"), *(ROOT / "trainer").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    named = {*ASKED[3].split(), *ASKED[4].split()}
    assert named - needed == set()
    assert named - imported - MODULES.keys() == set()


def test_the_profile_plain_has_the_thresholds_that_were_asked_for() -> None:
    plain = PROFILES["plain"]
    asked = {
        "min_words": 128,
        "max_words": 4096,
        "min_mean_word_length": 3,
        "max_mean_word_length": 10,
        "max_special_character_share": 0.3,
        "min_unique_word_share": 0.2,
    }
    assert {name: getattr(plain, name) for name in asked} == asked
