"""Every sentence that docs/troubleshooting.md quotes is one that the program can print."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"^```text\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
SENTENCES = [sentence for block in QUOTED for sentence in block.splitlines()]


def written(node: ast.AST) -> str | None:
    """A string of the code, with `...` for each value that an f-string or `%` puts in."""
    match node:
        case ast.Constant(value=str(text)):
            return re.sub(r"%[.\d]*[sdrf]", "...", text)
        case ast.JoinedStr(values=parts):
            return "".join(written(part) or "..." for part in parts)
    return None


@cache
def strings_of_the_code() -> frozenset[str]:
    return frozenset(strings())


def strings() -> Iterator[str]:
    for package in ("pipeline", "trainer"):
        for path in (ROOT / package).rglob("*.py"):
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            for node in nodes:
                if id(node) not in docstrings and (text := written(node)):
                    yield text


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_sentence_that_a_user_searches_for_is_one_that_the_code_writes(sentence: str) -> None:
    pattern = re.compile(".*".join(map(re.escape, sentence.split("..."))), re.DOTALL)
    assert any(pattern.search(text) for text in strings_of_the_code())


def test_each_problem_begins_with_what_the_program_prints() -> None:
    problems = PAGE.split("\n## ")[1:]
    assert len(problems) >= 15
    assert [problem for problem in problems if not re.match(r".+\n\n```text\n", problem)] == []
