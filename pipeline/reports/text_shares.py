"""How much of a corpus's text quality or dedup removes, and why: by the characters that were measured for the
rules, so that no text is read again.
"""

from collections import Counter

import pyarrow.compute as pc

from pipeline.store import keys
from pipeline.store.parquet import read_table
from pipeline.store.store import Store

KEPT = ""
REPORT = "text-1"


def text_shares(store: Store, corpus: str, key: str) -> dict[str, float]:
    """The share (0 to 1) of the characters that `key`, quality or dedup, keeps of what it decides on, as
    KEPT, and that it removes, by rule or reason.
    """
    version, signals = store.current(key), store.current(keys.signals(corpus))
    table, column = ("decisions", "reason") if key == keys.DEDUP else ("verdicts", "rule")

    def count() -> dict[str, float]:
        found = Counter[str]()
        for part in signals.parts:
            name = keys.decisions(corpus, part.name) if key == keys.DEDUP else part.name
            rows = read_table(version.named(name, table), columns=["id", column])
            measured = read_table(signals.file(part, "signals"), columns=["id", "characters"])
            sizes = measured["characters"].take(pc.index_in(rows["id"], measured["id"]))
            rows = rows.append_column("size", sizes).group_by(column).aggregate([("size", "sum")])
            for row in rows.to_pylist():
                found[row[column] or KEPT] += row["size_sum"]
        return {reason: size / max(found.total(), 1) for reason, size in found.items()}

    shares: dict[str, float] = version.report(f"text-{corpus}", REPORT, count)
    return shares
