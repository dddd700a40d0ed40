"""What README, CONTRIBUTING and docs/ name exists: files, links, commands, jobs, settings."""

import itertools
import re
from functools import cache
from pathlib import Path

import pytest

import trainer.__main__
from pipeline.assets.graph import MAKING
from pipeline.assets.operations.runs import EVALUATE
from pipeline.cli import main
from pipeline.recipe.recipe import RECIPES
from tests import commands_page

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = ("pipeline", "trainer", "tests", "performance", "examples", "docs", "dagster_home")
# A token in backticks that begins with a folder of this repository, or that is a file at its root.
PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./*-]*|[A-Z]+(?:\.md)?|Makefile|pyproject\.toml")
# Made by a run.
MADE = re.compile(r"dagster_home/(store|storage)\b.*")
AT_THE_ROOT = {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "Makefile", "pyproject.toml"}
# Several words, as code writes them: snake_case, CamelCase, UPPER_CASE.
NAME = re.compile(r"\w+_\w+|_\w+|[A-Z]+[a-z]+(?:[A-Z][a-z]+)+|[A-Z]{2,}")
CODE = ("pipeline", "trainer", "tests", "performance", "examples")
# Names of pip, PyTorch, pydantic, transformers, systemd and Dagster.
OTHERS = {
    "AbortIncompleteMultipartUpload",
    "TRACKIO_SERVER_URL",
    "TRACKIO_SPACE_ID",
    "WANDB_ENTITY",
    "CheckpointException",
    "trust_remote_code",
    "KillMode",
    "TimeoutStopSec",
    "UnauthorizedError",
    "automation_condition",
    "since_last_handled",
    "run_monitoring",
    "run_queue",
    "run_retries",
}
MODULE = re.compile(r"(?:pipeline|trainer)(?:\.\w+)+")
BRITISH = re.compile(
    r"\w*(?:colour|neighbour|behaviour|catalogue|centre|judgement|learnt|licence|misspelt|(?:author|final|initial|"
    r"material|normal|optim|orthogonal|quant|recogn|special|synchron|token|vector)is(?:e|ing|ation))\w*",
    re.IGNORECASE,
)
# Words of stores, of tokenizers, of the law and of the text that is cleaned.
AS_OTHERS_WRITE_THEM = {
    "pipeline/reports/regulators.yaml": {"Authorised"},
    "pipeline/sources/source.py": {"not_learnt"},
    "pipeline/stages/bpe/chat_template.py": {"learnt"},
    "pipeline/stages/bpe/given_back.py": {"normalisation"},
    "pipeline/stages/pii/context.py": {"catalogue"},
    "pipeline/stages/pii/phone_words.py": {"catalogue", "licence"},
    "docs/chat.md": {"not_learnt"},
}


def shown(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def tokens(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(page))


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def words_of_the_code() -> frozenset[str]:
    """Every word of the code, its tests and its configuration."""
    files = [
        path for folder in CODE for path in (ROOT / folder).rglob("*.*") if path.suffix in (".py", ".yaml")
    ]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files if path != Path(__file__))
    return frozenset(re.findall(r"\w+", text))


def commands(program: str) -> set[tuple[str, str]]:
    """The page and the word after `python -m <program>`, wherever it stands."""
    found = set()
    for page in PAGES:
        for word in re.findall(rf"python -m {program} ([a-z][a-z-]*)\b(?![./=])", page.read_text("utf-8")):
            found.add((shown(page), word))
    return found


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    named = [token for token in tokens(page) if PATH.fullmatch(token) and not MADE.fullmatch(token)]
    named = [token for token in named if "/" in token or token in AT_THE_ROOT]
    assert [path for path in named if not any(ROOT.glob(path.rstrip("/")))] == []


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    missing = []
    for token in tokens(page):
        if MODULE.fullmatch(token):
            path = ROOT / token.replace(".", "/")
            if not (path.is_dir() or path.with_suffix(".py").is_file()):
                missing.append(token)
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_name_that_a_page_takes_from_the_code_is_in_the_code(page: Path) -> None:
    names = {token for token in tokens(page) if NAME.fullmatch(token)}
    assert sorted(names - words_of_the_code() - OTHERS) == []


def test_pages_and_packages_are_in_american_spelling() -> None:
    files = [*PAGES, ROOT / "CHANGELOG.md"]
    for kind, package in itertools.product(("py", "yaml", "html"), ("pipeline", "trainer")):
        files += sorted((ROOT / package).rglob(f"*.{kind}"))
    found = {shown(file): set(BRITISH.findall(file.read_text(encoding="utf-8"))) for file in files}
    assert {file: words for file, words in found.items() if words} == AS_OTHERS_WRITE_THEM


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_relative_link_resolves(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in link or link.startswith("mailto:"):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize(("page", "command"), sorted(commands("pipeline")))
def test_every_command_of_the_pipeline_is_one(
    page: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0, f"{page}: {capsys.readouterr().err}"


def test_every_command_of_the_trainer_is_one() -> None:
    assert {
        (page, word) for page, word in commands("trainer") if word not in trainer.__main__.COMMANDS
    } == set()


def every_job() -> set[str]:
    return {*MAKING, EVALUATE, "verify"}


def test_every_job_is_one() -> None:
    named = {
        job for page in PAGES for job in re.findall(r"dagster job \w+ -j (\w+)", page.read_text("utf-8"))
    }
    assert named <= every_job()


def test_the_page_of_commands_is_that_of_the_parsers() -> None:
    assert commands_page.PAGE.read_text(encoding="utf-8") == commands_page.page(), (
        "run `python -m tests.commands_page`"
    )


def test_the_page_of_jobs_names_every_job() -> None:
    text = (ROOT / "docs" / "jobs.md").read_text(encoding="utf-8")
    assert [job for job in every_job() if not re.search(rf"-j {job}\b(?!-)", text)] == []


def test_readme_links_every_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Further reading")[2]
    pages = [shown(page) for page in (ROOT / "docs").glob("*.md")]
    assert [page for page in pages if f"]({page})" not in text] == []


def test_readme_names_every_recipe_that_ships() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [path.stem for path in RECIPES.glob("*.yaml") if f"`{path.stem}`" not in text] == []


def test_readme_fits_two_hundred_lines_of_110_characters() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 200
    assert [line for line in lines if len(line) > 110] == []


def test_the_page_on_ones_own_code_is_short() -> None:
    page = ROOT / "docs" / "your-own-code.md"
    assert not page.exists() or len(page.read_text(encoding="utf-8").splitlines()) < 100


def test_the_floors_that_the_architecture_shows_are_those_that_are_enforced() -> None:
    from tests.test_structure import FLOORS

    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    for package, number, names in (("pipeline", 0, 1), ("trainer", 3, 4)):
        floors = [row for row in rows if len(row) == 5 and row[number].isdigit()]
        assert [set(re.findall(r"`(\w+)`", row[names])) for row in floors] == list(FLOORS[package])
