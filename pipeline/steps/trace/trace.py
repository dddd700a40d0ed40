"""Finds what a text has in common with training text, word for word, and when a checkpoint read it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from pipeline.steps.lineage.documents import CorpusText, texts_of
from pipeline.steps.lineage.lineage_versions import tokenizer_of
from pipeline.steps.lineage.readers import Reader
from pipeline.steps.tokens import token_index
from pipeline.steps.tokens.token_index import TokenSearch
from pipeline.steps.trace.treated_text import treated
from pipeline.store.engines.local import Engine
from pipeline.store.errors import PipelineError
from pipeline.store.manifest import Version
from trainer.system.wording import counted

LEAST_TOKENS = 16  # of a span; of text that was not trained on, 13 were the most that a book shared
NOTHING = f"no {LEAST_TOKENS} tokens of it are in the training text"
OCCURRENCES = 10  # that are shown of a span
LEADS = ("", " ")  # a word has another token after a space


@dataclass(frozen=True)
class Occurrence:
    """Where a span occurs: in which document, at which token of it, and at which `steps` any token of the
    span was read. `steps` is None where only a recipe has the document, which nobody has read.
    """

    corpus: str
    document: str
    source: str | None
    url: str | None
    token: int
    steps: Sequence[int] | None
    title: str | None


@dataclass(frozen=True)
class Span:
    """A part of a text, characters `begin` to `end` - 1, that occurs `count` times in the training text and
    is in no longer span. `log_probability` adds up the logarithms of the frequencies of its tokens.
    """

    text: str
    begin: int
    end: int
    tokens: int
    count: int
    log_probability: float
    occurrences: Sequence[Occurrence]

    @property
    def described(self) -> str:
        """The length of the span, how often it occurs, and where it occurs first."""
        first = self.occurrences[0]
        where = f"first in document {first.document} of corpus {first.corpus}"
        return (
            f"{self.tokens:,} tokens of it are in the training text {counted(self.count, 'times')}, {where}"
        )


@dataclass(frozen=True)
class TracedText:
    """The spans of a text, the least likely first, and the share (0 to 1) of its characters in them."""

    covered: float
    spans: Sequence[Span]

    @property
    def longest(self) -> Span | None:
        return max(self.spans, key=lambda span: span.tokens, default=None)


class SearchedCorpus(NamedTuple):
    """The training text of a corpus, and the search in its tokens."""

    text: CorpusText
    search: TokenSearch


class _Run(NamedTuple):
    """Characters `begin` to `end` - 1 of a text that occur in the training text, and the ids of each form."""

    begin: int
    end: int
    forms: list[list[int]]


class Searcher:
    """The training text of a reader, open to be searched. `engine` makes the indexes that are missing, after
    `say` was told what that takes; without one, PipelineError is raised. LineageError: shards are gone.
    """

    def __init__(self, reader: Reader, engine: Engine | None = None, say: Callable[[str], None] = print):
        self.reader, self._engine, self._say = reader, engine, say
        self._shares: dict[int, float] = {}
        self._texts = texts_of(reader.store, reader.lineage)
        self._tokenizer = tokenizer_of(reader.store, reader.lineage["assets"])
        self._tokenizer.encode_special_tokens = True

    @cached_property
    def corpora(self) -> dict[str, SearchedCorpus]:
        return {
            corpus: SearchedCorpus(text, TokenSearch(text.version, self._index(text.version)))
            for corpus, text in self._texts.items()
        }

    def _index(self, shards: Version) -> Version:
        work, store = token_index.work_of(shards), self.reader.store
        if index := store.existing(work):
            return index
        if self._engine is None:
            raise PipelineError(f"{work.key} has not been made: `python -m pipeline trace TEXT` makes it")
        tokens, size = shards.counts["train_tokens"], token_index.size(shards) / 1e6
        seconds = tokens / token_index.TOKENS_PER_SECOND
        self._say(f"making {work.key}: {tokens:,} tokens, {size:,.1f} MB, {seconds:,.0f} s of one core")
        with store.in_progress():
            return token_index.of_shards(store, self._engine, shards)

    def count(self, text: str) -> int:
        """How often a text occurs as whole tokens, of any number: in each corpus its most frequent form."""
        found = dict.fromkeys(self.corpora, 0)
        for prepared, corpora in self._prepared(text).items():
            forms = _apart([self._encoded(lead + prepared).ids for lead in LEADS])
            for corpus in corpora:
                count = sum(self.corpora[corpus].search.count(np.array(ids, np.int64)) for ids in forms)
                found[corpus] = max(found[corpus], count)
        return sum(found.values())

    def check(self, text: str, least: int) -> None:
        """Raises PipelineError for a text of fewer tokens than a span must have."""
        forms = [
            len(self._encoded(lead + prepared).ids) for prepared in self._prepared(text) for lead in LEADS
        ]
        if max(forms) < least:
            raise PipelineError(
                f"the text has {counted(max(forms), 'tokens')}, and spans of at least {least} are looked "
                "for: give more text or a smaller --min-tokens, or --count it"
            )

    def trace(self, text: str, least: int, occurrences: int = OCCURRENCES) -> TracedText:
        """The spans of at least so many tokens."""
        spans: dict[str, Span] = {}
        covered = 0.0
        for prepared, corpora in self._prepared(text).items():
            inside = np.zeros(len(prepared), np.bool_)
            for run in self._runs(prepared, corpora, least):
                inside[run.begin : run.end] = True
                said = prepared[run.begin : run.end]
                if said not in spans:
                    spans[said] = self._span(said, run, occurrences)
            covered = max(covered, float(inside.mean()))
        return TracedText(round(covered, 4), sorted(spans.values(), key=lambda span: span.log_probability))

    def _runs(self, text: str, corpora: Sequence[str], least: int) -> list[_Run]:
        """The longest runs of a text that occur, none within another."""
        found = []
        for lead in LEADS:
            encoding = self._encoded(lead + text)
            ids = np.array(encoding.ids, np.int64)
            lengths = np.max([self.corpora[corpus].search.runs(ids, least) for corpus in corpora], axis=0)
            for start in np.flatnonzero(lengths).tolist():
                end = start + int(lengths[start])
                begins, stops = encoding.offsets[start][0], encoding.offsets[end - 1][1]
                found.append((max(0, begins - len(lead)), stops - len(lead), encoding.ids[start:end]))
        kept: list[_Run] = []
        for begin, end, form in sorted(found, key=lambda run: (run[0], -run[1])):
            if not kept or end > kept[-1].end:
                kept.append(_Run(begin, end, [form]))
            elif (begin, end) == (kept[-1].begin, kept[-1].end):
                kept[-1] = _Run(begin, end, _apart([*kept[-1].forms, form]))
        return kept

    def _span(self, text: str, run: _Run, most: int) -> Span:
        """The span of a run, counted in every corpus, also in those that treat other text otherwise."""
        places = [
            (corpus, len(ids), searched.search.positions(np.array(ids, np.int64)))
            for corpus, searched in self.corpora.items()
            for ids in run.forms
        ]
        first = ((corpus, int(one), size) for corpus, size, found in places for one in found)
        shown = [self._occurrence(*one) for one in islice(first, most)]
        count = sum(len(found) for *_, found in places)
        likely = sum(math.log(self._share(one)) for one in run.forms[0])
        return Span(text, run.begin, run.end, len(run.forms[0]), count, round(likely, 3), shown)

    def _occurrence(self, corpus: str, position: int, tokens: int) -> Occurrence:
        held, reader = self.corpora[corpus].text.at(position), self.reader
        steps = None
        if reader.training:
            read = reader.training.steps(corpus, position, position + tokens, reader.step)
            steps = np.unique(read).tolist()
        return Occurrence(
            corpus, held.document, held.source, held.url, position - held.begin, steps, held.title
        )

    def readings(self, ids: np.ndarray) -> int:
        """How often a run of ids was read. A reading counts at each place where the run occurs, if a window
        holds its first two tokens, since a window ends with the token that the next one begins with.
        """
        training, until = self.reader.training, self.reader.step
        if training is None:
            return 0
        return sum(
            len(training.steps(corpus, place + first, place + end, until)) * times
            for corpus, searched in self.corpora.items()
            for place in searched.search.positions(ids).tolist()
            # windows of one and of the other, less those of any
            for first, end, times in ((0, 1, 1), (1, 2, 1), (0, 2, -1))
        )

    def _share(self, token: int) -> float:
        """The share of a token among all tokens of training."""
        if token not in self._shares:
            count = sum(one.search.count(np.array([token])) for one in self.corpora.values())
            self._shares[token] = count / sum(one.search.num_tokens for one in self.corpora.values())
        return self._shares[token]

    def _encoded(self, text: str) -> Any:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _prepared(self, text: str) -> dict[str, list[str]]:
        return treated(self.reader.lineage["recipe"], self._texts, text)


def _apart(forms: Sequence[list[int]]) -> list[list[int]]:
    """The forms of a text without those in which another one follows a space that is a token of its own."""
    shortest = min(forms, key=len)
    return [shortest, *(ids for ids in forms if ids[-len(shortest) :] != shortest)]
