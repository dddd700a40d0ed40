"""Reads YAML: what a person wrote, or what a person may have changed."""

from collections.abc import Hashable
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.constructor import ConstructorError, SafeConstructor

TOO_DEEP = "its values are nested too deeply, or an anchor (`&name`) holds itself (`*name`)"


class _Values(SafeConstructor):
    """Refuses what has no value, and a mapping that has a key twice, of which the last would win."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError, OverflowError) as error:
            kind = node.tag.rpartition(":")[2]
            raise ConstructorError(
                None,
                None,
                f"{node.value!r:.40} is not a valid {kind}: put it in quotes if it is text",
                node.start_mark,
            ) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise ConstructorError(
                    None, None, f"the key {key.value!r} is here a second time: remove one", key.start_mark
                )
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return super().construct_mapping(node, deep)


class _Plain(_Values, yaml.SafeLoader):
    """Shows the line of a mistake."""


class _Fast(Composer, _Values, yaml.CSafeLoader):
    """Takes a sixth of the time. Where values nest deeply, the composer of `yaml.CSafeLoader` would end the
    process, and that of Python raises RecursionError.
    """

    def __init__(self, text: str):
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)


def parse(text: str) -> Any:
    """The value of a YAML document. Raises yaml.YAMLError for everything else, also for a key that a mapping
    has twice.
    """
    try:
        try:
            return yaml.load(text, Loader=_Fast)
        except (yaml.YAMLError, UnicodeError):
            return yaml.load(text, Loader=_Plain)
    except RecursionError:
        raise yaml.YAMLError(TOO_DEEP) from None
