"""What to make: a key, the code, its settings and its inputs, whose fingerprint names the version."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pipeline.store.fingerprint import canonical_json, fingerprint
from pipeline.store.keys import Key

SHOWN_DIFFERENCES = 4
NAME_LENGTH = 16  # hex digits of a fingerprint in a directory's name


@dataclass(frozen=True)
class Work:
    """What to make, and from what. Its fingerprint is the name of the version."""

    key: Key
    code_version: str
    params: Any
    inputs: dict[str, str]  # name -> data version

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self._recipe | {"inputs": self.inputs})

    @property
    def name(self) -> str:
        """The name of the version's directory."""
        return self.fingerprint[:NAME_LENGTH]

    def part_fingerprint(self, inputs: Sequence[str]) -> str:
        """The fingerprint of a part, by which an unchanged part is recognized in an older version."""
        return fingerprint(self._recipe | {"part_inputs": list(inputs)})

    def is_like(self, manifest: Mapping[str, Any]) -> bool:
        """Whether a version was made from what this work is made from, up to what was added or left out, such
        as a corpus. Models of the sections of a recipe are not alike.
        """
        ours, theirs = self.inputs.keys(), manifest["inputs"].keys()
        return ours <= theirs or theirs <= ours

    def differences(self, manifest: Mapping[str, Any]) -> Iterator[str]:
        """The differences between a version and this work, in words."""
        if self.code_version != manifest["code_version"]:
            yield "code"
        params = json.loads(canonical_json(self.params))
        if changed := _changed(params, manifest["params"]):
            yield f"settings ({named(changed)})"
        if self.inputs and (changed := _changed(self.inputs, manifest["inputs"])):
            yield f"inputs ({named(changed)})"

    @property
    def _recipe(self) -> dict[str, Any]:
        return {"stage": self.key, "code_version": self.code_version, "params": self.params}


def named(changed: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    shown, more = ", ".join(changed[:SHOWN_DIFFERENCES]), len(changed) - SHOWN_DIFFERENCES
    return f"{shown} and {more} more" if more > 0 else shown


def _changed(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    return [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
