"""What kind of text a sample is, in which languages, and which quality profile suits it."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.sources.files import PAGES, PROGRAMS
from pipeline.stages.edits import EditParams, EditRule, edit
from pipeline.stages.language import detect
from pipeline.stages.quality import PROFILES, judge, measure

KINDS = ("books", "mail", "code", "web", "docs")
LONG_BYTES = 100_000  # plain text is of books where most of it is in longer files
MOST_REJECTED = 0.3  # share of the bytes that the profile of a kind may reject
MEASURED_BYTES = 1 << 20
# Rules that cut only what nobody wrote as text, and of the last one the share of the lines from which on a
# text is a chat, unless so many lines are those of a log, or its times are those of a time table.
CUT = (EditRule.GUTENBERG, EditRule.FRONT_MATTER, EditRule.MESSAGE_TIMES)
LEAST_MESSAGES, MOST_OTHERS = 0.2, 0.1
_OF_LOGS = r"\b(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b"
_OF_LOGS_AND_TABLES = re.compile(rf"{_OF_LOGS}|[0-9]:[0-9]{{2}} ?[-\u2013] ?[0-9]{{1,2}}:[0-9]{{2}}")
_COLUMN = re.compile(r"[^\t\n]+\t(?! ?From)")
# What is only in the exports of programs that write columns: the head of LINE, who comes and goes in WeeChat.
_IN_COLUMNS = re.compile(r"\A\ufeff?\[LINE\]|\t(?:-->|<--)\t")
OTHER_LANGUAGES = 0.05  # share from which documents are judged by the rules of their language
_HEADER = re.compile(
    r"(From|To|Subject|Date|Message-ID|Received|Return-Path|Newsgroups|Path|Xref): ?\S", re.I
)
_CODE_LINE = re.compile(
    r"[;{}]$|^\s*(def|class|import|from|return|if|for|while|#include|func|fn|const|let|var)\b"
)
_TAG = re.compile(r"</?(p|div|html|body|span|a|br|table|li|script)\b[^>]*>", re.I)


@dataclass(frozen=True)
class Kind:
    """The kind of some texts. `languages` has the share of the bytes in each language, the most frequent
    first. `reason` says in one line why `profile` was chosen or, before the kind is `judged`, why it has its
    name. `rejected` has the share of the bytes that each profile rejects. `documents` are those that are
    measured, and `detected` has their languages.
    """

    name: str
    languages: dict[str, float]
    profile: str
    reason: str
    documents: pa.RecordBatch
    detected: pa.RecordBatch
    rejected: dict[str, float] = field(default_factory=dict)

    @property
    def foreign(self) -> bool:
        """Whether more than a few documents are in other languages than English."""
        return 1 - self.languages.get("en", 0.0) >= OTHER_LANGUAGES


def kind_of(
    texts: Sequence[str], suffixes: Sequence[str], sizes: Sequence[int], columns: frozenset[str]
) -> Kind:
    """The kind of some texts, which needs no compiled kernel. `suffixes` are those of their files, `sizes`
    the bytes of the files of plain text, and `columns` the names in their rows.
    """
    every = max(1, -(-sum(map(len, texts)) // MEASURED_BYTES))
    documents = _documents(texts[::every])  # drawn evenly, as many as are measured
    detected = detect(documents)
    bytes_of: Counter[str] = Counter()
    lengths = pc.binary_length(documents.column("text")).to_pylist()
    for language, size in zip(detected.column("language").to_pylist(), lengths, strict=True):
        bytes_of[language] += size
    total = max(sum(bytes_of.values()), 1)
    languages = {name: size / total for name, size in bytes_of.most_common()}
    name, why = _named(texts, suffixes, sizes, columns)
    return Kind(name, languages, name, why, documents, detected)


def judged(kind: Kind) -> Kind:
    """The kind with the profile that suits its text, by what each profile would reject. The first call on a
    machine compiles a kernel, for up to 20 seconds.
    """
    lengths, signals = pc.binary_length(kind.documents.column("text")), measure(kind.documents)
    rejected = {}
    for profile in (*KINDS, "none"):
        params = PROFILES[profile].model_copy(update={"by_language": True} if kind.foreign else None)
        verdicts = judge(signals, params, kind.detected if kind.foreign else None)
        lost = pc.sum(pc.if_else(verdicts.column("keep"), 0, lengths)).as_py() or 0
        rejected[profile] = lost / max(pc.sum(lengths).as_py() or 0, 1)
    name, why = kind.name, kind.reason
    if rejected[name] <= MOST_REJECTED:
        reason = f"{why}; the profile rejects {rejected[name]:.0%} of the bytes"
        return replace(kind, rejected=rejected, reason=reason)
    # Docs and books are the mildest profiles for prose. What they reject too is judged by none.
    mild = min((name, "docs", "books"), key=lambda one: rejected[one])
    chosen = mild if rejected[mild] <= MOST_REJECTED else "none"
    lost = f"the profile {name} would reject {rejected[name]:.0%} of the bytes"
    reason = f"{why}, but {lost}, {chosen} {rejected[chosen]:.0%}"
    return replace(kind, rejected=rejected, profile=chosen, reason=reason)


def edits_of(texts: Sequence[str]) -> tuple[EditRule, ...]:
    """The rules of CUT that find something in the texts."""
    cuts = edit(_documents(texts), EditParams(rules=CUT))[1]
    found = Counter(cuts.column("rule").to_pylist())
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    if not any(map(_IN_COLUMNS.search, texts)):
        columns = filter(_COLUMN.match, cuts.column("text").to_pylist())
        found[EditRule.MESSAGE_TIMES] -= len(list(columns))
    if found[EditRule.MESSAGE_TIMES] < LEAST_MESSAGES * len(lines) or sum(
        bool(_OF_LOGS_AND_TABLES.search(line)) for line in lines
    ) > MOST_OTHERS * len(lines):
        found[EditRule.MESSAGE_TIMES] = 0
    return tuple(rule for rule in CUT if found[rule])


def _documents(texts: Sequence[str]) -> pa.RecordBatch:
    valid = [text.encode("utf-8", "replace").decode() for text in texts]
    return pa.RecordBatch.from_arrays(
        [pa.array(map(str, range(len(valid))), pa.string()), pa.array(valid, pa.large_string())],
        names=["id", "text"],
    )


def _named(
    texts: Sequence[str], suffixes: Sequence[str], sizes: Sequence[int], columns: frozenset[str]
) -> tuple[str, str]:
    """One of KINDS, and what shows it."""
    lines = [line for text in texts[:200] for line in text[:4000].splitlines() if line.strip()]
    code = sum(bool(_CODE_LINE.search(line)) for line in lines) / max(len(lines), 1)
    if sum(suffix in PROGRAMS for suffix in suffixes) * 2 > len(suffixes):
        return "code", "most files are programs by their names"
    if sum(suffix in PAGES for suffix in suffixes) * 2 > len(suffixes):
        return "web", "most files are pages of HTML"
    if code > 0.4:
        return "code", f"{code:.0%} of the lines look like a program"
    heads = ["\n".join(text.lstrip().splitlines()[:6]) for text in texts[:200]]
    if sum(len(_HEADER.findall(head)) >= 2 for head in heads) * 3 > len(heads):
        return "mail", "texts begin with the headers of mail"
    if "url" in {name.lower() for name in columns}:
        return "web", "the rows have a URL"
    if sum(len(_TAG.findall(text)) >= 5 for text in texts[:200]) * 2 > len(texts[:200]):
        return "web", "the texts hold the tags of HTML, which stay in them"
    long = sum(size for size in sizes if size > LONG_BYTES) / max(sum(sizes), 1)
    if long > 0.5:
        return "books", f"{long:.0%} of the text is in files of more than {LONG_BYTES // 1000} kB"
    return "docs", "neither books, mail, code nor web pages"
