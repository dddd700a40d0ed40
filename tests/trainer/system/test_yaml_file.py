"""YAML has the value that PyYAML gives it, or is refused in one way, with the line of the mistake."""

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.thorough import examples
from trainer.system.yaml_file import parse

PIECES = [
    *("a", "b", "key", "1", "-1", "0x", "0b_", "1e3", "1:60", "~", "yes", "2026-01-02", "2026-13-45", "🙂"),
    *(": ", ":", "- ", "\n", "\n  ", "\n- ", "\n\n", " ", "\t", "{", "}", "[", "]", ", ", "? ", "# c\n", "%"),
    *("'", '"', "|\n  x\n", ">\n  y\n", "&x ", "*x", "<<: ", "!!int ", "!!timestamp ", "!!bool ", "!!map "),
    *("!t ", "---\n", "...\n", "\\n", "\\", "\x00", "\x85", "\ud800"),
]


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example("a: 1\nb: [x, {c: 2.5}]\n")
@example("day: 2026-02-30")
@example("many: " + "9" * 5000)
def test_a_text_has_the_value_that_pyyaml_gives_it_or_is_refused(text: str) -> None:
    theirs: object
    try:
        theirs = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:
        theirs = error
    try:
        ours = parse(text)
    except yaml.YAMLError as error:
        assert isinstance(theirs, Exception) or "a second time" in str(error)
    else:
        assert isinstance(theirs, yaml.YAMLError) or repr(ours) == repr(theirs)


@pytest.mark.parametrize(
    "text, says",
    [
        (
            "a: 1\nday: 2026-02-30\n",
            r"'2026-02-30' is not a valid timestamp: put it in quotes if it is text.*\n.*line 2, column 6",
        ),
        ("a: 1\nb: 2\na: 3", r"the key 'a' is here a second time: remove one\n.*line 3, column 1"),
        ("a: b: c", r"mapping values are not allowed here\n.*line 1, column 5:\n +a: b: c"),
        ("[" * 100_000, "its values are nested too deeply"),
        ("{a: " * 100_000, "its values are nested too deeply"),
    ],
    ids=lambda value: value[:20],
)
def test_what_is_wrong_is_said_with_its_line(text: str, says: str) -> None:
    with pytest.raises(yaml.YAMLError, match=says):
        parse(text)
