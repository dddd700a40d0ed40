"""A stage that calls the user's code. Documents on which it raised are counted; too many fail the run."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipeline.plugins.loading import PluginError
from pipeline.plugins.settings import Entry, PluginParams
from pipeline.steps.stage import BatchStage
from pipeline.store.draft import Draft
from pipeline.store.engines.local import Engine
from pipeline.store.files import StoredFile
from pipeline.store.manifest import Part, Version
from pipeline.store.parquet import read_table
from pipeline.store.parts import derive, part_tasks
from pipeline.store.store import Store

# Worker processes pay for much smaller inputs than with compiled kernels: 2 MB at 1 MB/s are two seconds.
SLOWER = 16


@dataclass(frozen=True)
class FailureLimits:
    """How many of a corpus's documents each filter or transform may fail on."""

    corpus: str
    documents: int
    entries: Sequence[Entry]

    def watch(self, parts: Sequence[Part], draft: Draft) -> None:
        """As `check`. Before it raises, it forgets the parts with failures: the next run makes them again."""
        try:
            self.check(parts, draft)
        except PluginError:
            for part in parts:
                if any(name.startswith("failed/") for name in part.counts):
                    draft.forget(part)
            raise

    def check(self, parts: Sequence[Part], holder: Version | Draft) -> None:
        """Raises PluginError when code failed on more of these documents than a whole corpus may lose."""
        for entry in self.entries:
            count = f"failed/{entry.name}"
            failed = sum(part.counts.get(count, 0) for part in parts)
            if failed > entry.max_failed_share * self.documents:
                part = next(part for part in parts if part.counts.get(count))
                raise PluginError(
                    f"{entry.python} failed on {failed:,} of {self.documents:,} documents of corpus "
                    f"{self.corpus!r}; max_failed_share allows {entry.max_failed_share:.2%}. The first is "
                    f"{_first(holder.file(part, 'failures'), entry.name)}. Correct the code and "
                    "raise its `version`, or raise max_failed_share"
                )


class UserCodeStage(BatchStage):
    """A stage that calls code of the user's. Its step also makes the table `failures`."""

    @property
    @abstractmethod
    def entries(self) -> Sequence[Entry]:
        """The code in the recipe."""

    def make(self, store: Store, engine: Engine) -> Version:
        """Raises PluginError when the code cannot be loaded, or fails on more documents than allowed."""
        work, documents = self.work(store), store.current(self.documents)
        limits = FailureLimits(self.corpus, documents.counts["documents"], self.entries)
        tasks, write = part_tasks(work, [(documents, "documents")]), self.step(store).write_part
        own = own_code(self.entries)
        version = derive(store, engine, work, tasks, write, watch=limits.watch, slower=SLOWER, own=own)
        limits.check(version.parts, version)
        return version


def own_code(entries: Iterable[Entry]) -> list[str]:
    """The names of the code in these entries that is the user's."""
    return [entry.python for entry in entries if isinstance(entry, PluginParams)]


def _first(failures: StoredFile, name: str) -> str:
    rows = read_table(failures).to_pylist()
    row = next(row for row in rows if row["name"] == name)
    return f"document {row['id']}: {described(row)}"


def described(failure: dict[str, str]) -> str:
    """A row of the table `failures` in one line, without the document's id."""
    place = f" ({failure['place']})" if failure["place"] else ""
    return f"{failure['error']}: {failure['message']}{place}"
