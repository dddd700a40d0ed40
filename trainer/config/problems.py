"""Says in plain words what pydantic finds wrong with a value."""

from datetime import date

from pydantic_core import ErrorDetails

MOST_CHARACTERS = 60  # of a value that a message repeats
REQUIREMENTS = {
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "union_tag_invalid": "one of {expected_tags}",
    "string_pattern_mismatch": "{form}",
    "string_too_short": "at least {min_length} characters long",
    "string_too_long": "text of no more characters than {max_length}",
    "too_short": "a list with {min_length} or more items",
    "too_long": "a list with {max_length} items or fewer",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "finite_number": "a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), "a list, `[...]`"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "a mapping, `{{key: value}}`"),
    **dict.fromkeys(("string_type", "string_unicode"), "text"),
    "path_type": "a path",
}
# In words with an example, what must match the regular expression that is the `pattern` of a setting. They go
# on after "must be".
FORMS: dict[str, str] = {}


def requirement(problem: ErrorDetails) -> str:
    """What a value must be and what it is instead: `must be at least 1, not -1`."""
    if problem["type"] not in REQUIREMENTS:
        return problem["msg"].removeprefix("Value error, ")
    context = {
        key: int(value) if isinstance(value, float) and value.is_integer() else value
        for key, value in problem.get("ctx", {}).items()
    }
    if problem["type"] == "string_pattern_mismatch":
        pattern = str(context["pattern"])
        # That of a plugin has no words.
        context["form"] = FORMS.get(pattern, f"text that matches {pattern}")
    given = context.get("tag", problem["input"])
    value = "null" if given is None else "a mapping" if isinstance(given, dict) else repr(given)
    if isinstance(given, date):
        value = str(given)
    if problem["type"] == "string_type" and isinstance(given, int | float | date):
        value += f": write it in quotes, '{given}'"
    if len(value) > MOST_CHARACTERS:
        value = f"{value[: MOST_CHARACTERS - 3]}..."
    return f"must be {REQUIREMENTS[problem['type']].format(**context)}, not {value}"
