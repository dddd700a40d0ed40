"""What a command prints: lines for a terminal, or with --json everything."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Output:
    """`everything` is what JSON has. `lines` may be made only when they are read."""

    everything: Any
    lines: Iterable[str]

    def shown(self, as_json: bool) -> str:
        if as_json:
            return json.dumps(self.everything, indent=1, ensure_ascii=False, default=asdict)
        return "\n".join(self.lines)
