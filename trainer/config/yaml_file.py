"""Reads YAML that a person wrote."""

from collections.abc import Hashable
from typing import Any

import yaml
from yaml.constructor import ConstructorError


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a mapping that has a key twice, of which the last would win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise ConstructorError(
                    None, None, f"the key {key.value!r} is here a second time: remove one", key.start_mark
                )
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return super().construct_mapping(node, deep)


def parse(text: str) -> Any:
    """The value of a YAML document. Raises yaml.YAMLError, also for a key that a mapping has twice."""
    return yaml.load(text, Loader=_UniqueKeys)
