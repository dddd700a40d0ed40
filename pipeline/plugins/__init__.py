"""What your own filters, transforms and sources import; docs/your-own-code.md shows how to write them.

Nothing here imports anything heavy, so that a module of yours stays quick to load and easy to test.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

Target = TypeVar("Target", bound=Callable[..., Any])
MARK = "__groundwork_plugin__"


@dataclass(frozen=True, slots=True)
class Document:
    """One document: what a source yields, and what a filter or transform of one document takes.

    `id` is unique within the corpus and stays the same from run to run. A filter or transform sees the id
    under which the store keeps the document, which is a hash of the corpus's name and the source's id.
    """

    id: str
    text: str
    url: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Marked:
    """How code is called, with one document or with a batch, and which signals a class gives."""

    one_document: bool = False
    signals: Mapping[str, type] = field(default_factory=dict)

    def __post_init__(self) -> None:
        types = self.signals.values() if isinstance(self.signals, Mapping) else [None]
        if any(kind not in (float, int, bool, str) for kind in types):
            raise TypeError(
                "`signals` is a dictionary of names and types (float, int, bool or str), such as "
                "{'score': float}"
            )
        if taken := {"id", "failed", "keep", "reason"} & self.signals.keys():
            raise TypeError(f"a signal cannot be called {min(taken)!r}")


def document_filter(target: Target | None = None, *, signals: Mapping[str, type] | None = None) -> Any:
    """Marks a filter of one document at a time.

    A function takes a Document and the `params` of the recipe as keyword arguments. It returns whether to
    keep the document, or `(keep, reason)`.

    A class separates measuring from judging. It is constructed once per process with those `params` that its
    constructor takes. `signals(document)` returns `{signal: value}`, which is stored. `keep(signals, ...)`
    takes a dictionary of NumPy arrays and the remaining `params`, and returns an array of booleans. Changing
    a parameter that only `keep` takes judges again and measures nothing.

    `signals` names the signals of a class and their types: float, int, bool or str.
    """
    return _marked(target, Marked(True, signals or {}))


def batch_filter(target: Target | None = None, *, signals: Mapping[str, type] | None = None) -> Any:
    """Marks a filter of one Arrow batch at a time, with columns `id, text, source, url, metadata` (JSON).

    As `document_filter`, with a column in place of each value: a function, which needs no mark, returns an
    array of booleans, or `(keep, reasons)`; a class's `signals(batch)` returns `{signal: column}`.
    """
    return _marked(target, Marked(False, signals or {}))


def document_transform(target: Target) -> Target:
    """Marks a transform of one document at a time, which takes a Document and `params` and returns a text.

    Without this mark a transform takes an Arrow batch and returns a column of texts.
    """
    return _marked(target, Marked(True))


def _marked(target: Target | None, mark: Marked) -> Any:
    def put(target: Target) -> Target:
        setattr(target, MARK, mark)
        return target

    return put if target is None else put(target)
