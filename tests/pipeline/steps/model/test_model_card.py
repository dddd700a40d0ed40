"""A model card says where text came from, whatever the source."""

from typing import get_args

from pipeline.sources import KINDS
from pipeline.steps.model.model_card import SOURCES


def test_every_kind_of_source_has_a_name_in_the_card() -> None:
    kinds = {get_args(config.model_fields["kind"].annotation)[0] for config in KINDS}
    assert kinds - {"hub"} == SOURCES.keys()
