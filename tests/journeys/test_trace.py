"""docs/trace.md: what a step read is found in its file, and a sentence of it finds the step."""

import ast
import json
import re

import pytest

from tests.integration.project import Project

pytestmark = pytest.mark.slow
STEP = 5


def test_a_quote_of_a_step_finds_the_file_that_holds_it_and_the_step(trained_folder: Project) -> None:
    checkpoint = trained_folder.store.current("pretrained_model").path.name[:8] + "-00000032"
    read = trained_folder.command("lineage", checkpoint, "--step", str(STEP))
    first = re.search(r"row 0: .*\n  ([0-9a-f]{32}) \((\w+\.txt)\), .*\n  (\".*\")", read)
    assert first, read
    document, file, quote = first.groups()
    quote = ast.literal_eval(quote)
    assert quote in (trained_folder.directory / "texts" / file).read_text(encoding="utf-8")

    (found,) = json.loads(trained_folder.command("trace", quote, "--checkpoint", checkpoint, "--json"))
    held = [one for span in found["spans"] for one in span["occurrences"]]
    assert [STEP in one["steps"] for one in held if one["document"] == document] == [True]
    assert checkpoint in trained_folder.command("lineage", "--document", document)
