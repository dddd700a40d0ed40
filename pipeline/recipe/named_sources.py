"""What corpora and evaluation sets of a recipe share: unique names, and sources with relative paths."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pipeline.sources import SourceConfig
from pipeline.sources.benchmarks.source import BenchmarkConfig
from pipeline.sources.listing import Paths


def repeated_name(names: Iterable[str]) -> str | None:
    """The first name in the alphabet that occurs more than once, if any."""
    return min((name for name, count in Counter(names).items() if count > 1), default=None)


def anchored(source: SourceConfig, directory: Path) -> SourceConfig:
    """The source with relative paths that start at `directory`."""
    return source.anchored(directory) if isinstance(source, Paths | BenchmarkConfig) else source
