"""docs/evidence.md: the page to send says what every command says, and loads nothing."""

import re
from pathlib import Path

import pytest

from tests.integration.project import Project
from tests.pages import Page

pytestmark = pytest.mark.slow


def test_the_page_has_the_numbers_of_the_commands(trained_folder: Project, tmp_path: Path) -> None:
    trained_folder.command("report", "-o", str(tmp_path / "report.html"))
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert page.loads == [] and "Not made yet" not in page.source
    summary = trained_folder.command("summary")
    bits, held_out, xz = re.search(r"(\S+) bits per byte on (\S+) held-out .*needs (\S+)", summary).groups()
    for number in (f"{bits} bits per byte", f"{held_out} bytes", f"xz -9 {xz}"):
        assert number in page.sections[""]
    corpora = trained_folder.command("corpora", "--recipe", "recipe.yaml")
    documents, tokens = re.search(r"notes +(\d+) +([\d,]+)", corpora).groups()
    assert f"train tokens{tokens}" in page.sections["Documents and bytes after each stage"]
    rules = re.findall(r"notes +(\w+) +(\d+) +(\S+) +(\S+)", trained_folder.command("inspect"))
    assert len(rules) > 2
    removed = page.sections["What was removed"]
    assert all(f"notes{''.join(row)}" in removed for row in rules)
    kept = int(next(number for rule, number, *_ in rules if rule == "kept"))
    exported = trained_folder.command("export", "--format", "parquet", "-o", str(tmp_path / "data"))
    stayed = sum(int(number) for number in re.findall(r"(?:train|validation) documents +(\d+)", exported))
    stages = page.sections["Documents and bytes after each stage"]
    assert f"kept by quality{kept}" in stages and f"kept by dedup{stayed}" in stages
    assert int(documents) < stayed  # some are held out
    checkpoint, version = (
        re.search(pattern, page.sections["Lineage"])[1]
        for pattern in (r"reproduce (\S+-\d{8})", r"unknown([0-9a-f]{12})")
    )
    assert version in trained_folder.command("lineage", checkpoint)
