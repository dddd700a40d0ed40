"""The `data` section of a run on token shards that were written with a record, shards.json."""

import json
from pathlib import Path
from typing import Any

from trainer.system.errors import TrainerError

RECORDED = ("tokenizer_sha256", "vocab_size", "bot_id", "eot_id")


def filled_in(data: dict[str, Any]) -> dict[str, Any]:
    """`data` with what the record under the key `shards` says, and without that key. What is set stays.

    Raises TrainerError when the record cannot be read.
    """
    record = Path(str(data["shards"])).expanduser()
    written = {key: value for key, value in data.items() if key != "shards"}
    try:
        facts = json.loads(record.read_text(encoding="utf-8"))
        shards = [
            (record.parent / next(iter(entry["files"])), entry["text_bytes"]) for entry in facts["shards"]
        ]
        recorded = {key: facts[key] for key in RECORDED}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise TrainerError(
            f"data.shards: {record} cannot be read as a record of token shards ({error!r}): name the "
            "shards.json that `python -m pipeline tokenize` writes"
        ) from error
    prefixes: dict[str, list[str]] = {"train": [], "validation": []}
    sizes = dict.fromkeys(prefixes, 0)
    for file, size in shards:
        split = file.parent.name
        if split in prefixes:
            prefixes[split].append(str(file.with_suffix("")))
            sizes[split] += size
    corpus = {"name": record.absolute().parent.name or "shards", "weight": 1, **prefixes}
    corpora = [corpus | {"validation_bytes": sizes["validation"]}]
    return {"tokenizer": str(record.parent), **recorded, "corpora": corpora, **written}
