"""docs/filters.md: a threshold is tried by `inspect`, then set."""

import re

import pytest

from tests.integration.project import Project

pytestmark = pytest.mark.slow


def test_a_threshold_rejects_what_inspect_said_and_measures_nothing_again(another: Project) -> None:
    said = another.command("inspect", "what-if", "min_doc_words=300")
    asked = re.search(r"notes +min_doc_words +(\d+) +[\d,]+ +(\d+) ", said)
    measured = another.store.current("corpora/notes/signals").path
    another.recipe["quality"] = {"profile": "docs", "min_doc_words": 300}
    another.make(job="corpus")
    rejected = re.search(r"notes +min_doc_words +(\d+) ", another.command("inspect"))
    assert asked and rejected and int(asked[1]) < int(asked[2]) == int(rejected[1])
    assert another.store.current("corpora/notes/signals").path == measured
