"""What differs between settings."""

from typing import Any

import pytest

from pipeline.recipe.overrides import changed


@pytest.mark.parametrize(
    ("given", "usual", "found"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, {"b": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a": {"c": 2}}),
        ({"a": {"b": 1}}, {"a": {"b": 1}}, {}),
        ({"a": {"b": 1, "c": None}}, {"a": None}, {"a": {"b": 1}}),
        ({"a": {"b": None}}, {"a": None}, {"a": {}}),
        ({"a": None}, {"a": {"b": 1}}, {"a": None}),
    ],
)
def test_only_what_differs_is_left(given: Any, usual: Any, found: Any) -> None:
    assert changed(given, usual) == found
