"""Bar charts of how often each kind or rule occurred in a version."""

from pipeline.reports.images import as_text
from pipeline.store.manifest import Version
from trainer.system import figures

REPORT = "breakdown-1"
SHOWN = 20


def bars(version: Version, prefix: str, title: str) -> str | None:
    """The counts named `prefix/...`, most frequent first, as a PNG in base64; None without counts.

    Drawn once for each version.
    """
    counts = {
        name.partition("/")[2]: count
        for name, count in version.counts.items()
        if name.startswith(f"{prefix}/") and count
    }
    if not counts:
        return None
    png: str = version.report(f"{prefix}_bars", [REPORT, title], lambda: _bars(counts, title))
    return png


def _bars(counts: dict[str, int], title: str) -> str:
    rows = sorted(counts.items(), key=lambda row: -row[1])[:SHOWN]
    drawing = figures.figure(8, 0.9 + 0.3 * len(rows))
    axes = drawing.add_subplot()
    drawn = axes.barh([name for name, _ in rows], [count for _, count in rows], color=figures.COLOURS[0])
    axes.bar_label(drawn, labels=[f" {count:,}" for _, count in rows])
    axes.invert_yaxis()
    axes.set(title=title, xlim=(0, 1.15 * rows[0][1]))
    return as_text(figures.png(drawing))
