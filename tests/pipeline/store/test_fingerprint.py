"""A fingerprint changes when, and only when, the value does."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.store.fingerprint import canonical_json, fingerprint
from pipeline.store.params import Params

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.text(), values))
def test_the_order_of_keys_does_not_matter(value: dict[str, Any]) -> None:
    assert fingerprint(value) == fingerprint(dict(reversed(value.items())))


@given(values, values)
def test_different_values_have_different_names(left: Any, right: Any) -> None:
    assert (canonical_json(left) == canonical_json(right)) == (fingerprint(left) == fingerprint(right))


def test_the_encoding_is_fixed_for_good() -> None:
    assert canonical_json({"b": [1, 2.5, None], "a": "é"}) == '{"a":"\\u00e9","b":[1,2.5,null]}'


@pytest.mark.parametrize(
    "value", [{1, 2}, Path("x"), object(), float("nan"), float("inf"), {1: "a"}, b"bytes"]
)
def test_a_value_without_a_stable_encoding_is_refused_with_its_place(value: object) -> None:
    with pytest.raises(TypeError, match=r"value\.params"):
        fingerprint({"params": value})


class Ruled(Params):
    rules: frozenset[str] = frozenset({"a", "b"})


def test_a_set_inside_parameters_is_refused_too() -> None:
    with pytest.raises(TypeError, match=r"value\.params\.rules is a frozenset"):
        fingerprint({"params": Ruled()})
