"""docs/own-text.md: a folder of text becomes a model that writes."""

import pytest

from tests.integration.project import Project

pytestmark = pytest.mark.slow


def test_the_recipe_of_init_makes_a_model_that_the_summary_names_and_that_writes(
    trained_folder: Project,
) -> None:
    exported = trained_folder.store.current("exported_model").path
    assert f"Model        {exported}\n" in trained_folder.command("summary")
    written = trained_folder.python("trainer", "generate", f"--model={exported}", "--prompt=Return the")
    assert written.startswith("Return the") and len(written.split()) > 4
