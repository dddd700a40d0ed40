"""The lines that each rule cuts. A rule takes Lines and returns bool[lines]."""

import re
import tomllib
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from pipeline.stages.edits.lines import Lines
from pipeline.stages.edits.message_times import MESSAGE_TIME
from pipeline.stages.edits.params import EditRule
from pipeline.stages.quality.c4 import MAX_WORD_LENGTH, MIN_LINE_WORDS, PHRASES

_POLICY = "|".join(phrase for phrase in PHRASES if phrase != "lorem ipsum")
_CITATION = r"\[[0-9]*\]|\[edit\]|\[citation needed\]"
_SPACE = r"\s\p{Z}\x{85}"
_WORDS = f"[{_SPACE}]+".join([f"[^{_SPACE}]+"] * MIN_LINE_WORDS)
_HEADER = r"^(From [^ ]+ |[!-9;-~]+:[ \t\r\n])"  # mbox, and RFC 5322, section 3.6.8
_CONTINUED = r"^[ \t]+[^ \t\r\n]"
_OF_A_MESSAGE = (
    r"^(From|To|Cc|Subject|Date|Newsgroups|Message-I[Dd]|Path|Lines|Organization|Reply-To|Received|Sender):"
)
_QUOTE = r"^ {0,3}(>|[A-Za-z]{1,3}>[> \t\r\n])"  # also with initials
_WHO_WROTE = r"(?i)(^in article <|(wrote|writes|said)[^a-z]{0,3}$)"
_SIGNATURE = r"^-- ?\r?\n?$"
_SIGNATURE_LINES = 12
_UUENCODED = "^M[ -`]{60}\r?\n?$"  # a full line: 45 bytes
_UU_BEGIN = "^begin [0-7]{3,4} "
_UU_TAIL = 3  # lines after the last full one
_BLANK = r"^[ \t\r]*\n?$"
_GUTENBERG = r"^\*\*\* ?%s OF TH(?:E|IS) PROJECT GUTENBERG EBOOK"
_GUTENBERG_ENDS = r"\*\*\*[ \t\r]*\n?$"
_GUTENBERG_TITLE_LINES = 4  # that a long title may take in a mark
_GUTENBERG_LINES = 1_000  # around a book at most: the old small print has 300 lines, the license has 350
_FRONT_MATTER = {"---": ("---", "..."), "+++": ("+++",)}  # YAML, TOML: how each begins and ends
_FRONT_MATTER_LINES = 200


def policy(lines: Lines) -> np.ndarray:
    return lines.matching(_POLICY, ignore_case=True)


def c4(lines: Lines) -> np.ndarray:
    """Lines that C4 drops for their form (Raffel et al. 2020, section 2.2), as datatrove 0.10 does."""
    stripped = pc.utf8_trim_whitespace(lines.text)
    uncited = pc.replace_substring_regex(stripped, _CITATION, "")
    ends = pc.and_not(
        pc.match_substring_regex(uncited, "[.?!\"']$"), pc.match_substring_regex(uncited, r"\.\.\.$")
    )
    kept = pc.and_(ends, pc.match_substring_regex(stripped, _WORDS))
    dropped = pc.invert(kept).to_numpy(zero_copy_only=False).copy()
    for line in np.flatnonzero(~dropped & (np.diff(lines.starts) > MAX_WORD_LENGTH)):
        dropped[line] = any(len(word) > MAX_WORD_LENGTH for word in stripped[line].as_py().split())
    return dropped


def with_pieces_apart(lines: Lines, rules: Sequence[EditRule]) -> tuple[Lines, np.ndarray]:
    """The lines, split before and after each piece that one of the PIECES rules cuts, and for each of the new
    lines the place in `rules`, counted from 1, of the rule that cuts it, or 0.
    """
    found: list[tuple[int, int, int]] = []  # begin and end in `data`, number of the rule
    for number, rule in enumerate(rules, start=1):
        if rule in PIECES:
            pattern = re.compile(PIECES[rule].encode())
            for line in np.flatnonzero(lines.matching(PIECES[rule])):
                start, end = (int(place) for place in lines.starts[line : line + 2])
                pieces = pattern.finditer(lines.data[start:end].tobytes())
                spans = (piece.span(piece.lastindex or 0) for piece in pieces)
                found += [(start + begin, start + end, number) for begin, end in spans]
    begins, ends, numbers = np.array(found, np.int64).reshape(-1, 3).T
    split = lines.split(np.concatenate([begins, ends]))
    cut = np.zeros(len(split.rows), np.uint8)
    for begin, end, number in zip(*np.searchsorted(split.starts, [begins, ends]), numbers, strict=True):
        cut[begin:end] = number
    return split, cut


def gutenberg(lines: Lines) -> np.ndarray:
    """What stands before the mark that begins a book of Project Gutenberg and after the one that ends it, and
    the marks. Several books may follow one another. More than _GUTENBERG_LINES stay.
    """
    cut = np.zeros(len(lines.rows), np.bool_)
    starts, ends = lines.matching(_GUTENBERG % "START"), lines.matching(_GUTENBERG % "END")
    closed = lines.matching(_GUTENBERG_ENDS)
    marks = np.flatnonzero(starts | ends)
    around = [-1, *marks, len(cut)]
    for earlier, mark, later in zip(around[:-2], marks, around[2:], strict=True):
        first, stop = lines.first[lines.rows[mark] : lines.rows[mark] + 2]
        closing = np.flatnonzero(closed[mark : min(mark + _GUTENBERG_TITLE_LINES, stop)])
        behind = mark + 1 + (closing[0] if len(closing) else 0)
        begin = first if starts[mark] and earlier < first else mark
        end = min(later, stop) if ends[mark] else behind
        if end - begin <= _GUTENBERG_LINES:
            cut[begin:end] = True
    return cut


def front_matter(lines: Lines) -> np.ndarray:
    """The settings of a page, in YAML or TOML, between two lines of dashes or plus signs at the beginning of
    a document, and the blank lines behind them. Other text between such lines stays.
    """
    cut = np.zeros(len(lines.rows), np.bool_)
    text, blank = lines.text, lines.matching(_BLANK)
    heads = np.intersect1d(np.flatnonzero(lines.matching(r"^(---|\+\+\+)[ \t\r]*\n")), lines.first[:-1])
    for head in heads:
        stop = lines.first[lines.rows[head] + 1]
        mark = text[head].as_py().strip()
        within: list[str] = []
        for line in range(head + 1, min(stop, head + _FRONT_MATTER_LINES)):
            content = text[line].as_py()
            if content.rstrip() not in _FRONT_MATTER[mark]:
                within.append(content)
                continue
            if _is_settings("".join(within), mark):
                others = np.flatnonzero(~blank[line + 1 : stop])
                cut[head : line + 1 + others[0] if len(others) else stop] = True
            break
    return cut


def _is_settings(text: str, mark: str) -> bool:
    """Whether a text has named values, or nothing. What values are is not asked: dates may be wrong."""
    try:
        if mark == "+++":
            tomllib.loads(text)
            return True
        found = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, tomllib.TOMLDecodeError, RecursionError):
        return False
    return found is None or isinstance(found, yaml.MappingNode)


def mail_headers(lines: Lines) -> np.ndarray:
    """The headers at the beginning of a document, at least two of them those of a message, and the blank line
    after them (RFC 5322).
    """
    header = lines.matching(_HEADER)
    numbers = np.arange(len(header))
    other = ~(header | lines.matching(_CONTINUED))
    end = _of_documents(np.minimum, np.where(other, numbers, len(header)), lines)
    of_message = np.concatenate([[0], np.cumsum(lines.matching(_OF_A_MESSAGE))])
    begin = lines.first[lines.rows]
    stop = np.minimum(end[lines.rows], lines.first[lines.rows + 1])
    is_mail = header[begin] & (of_message[stop] - of_message[begin] >= 2)
    return is_mail & ((numbers < stop) | ((numbers == stop) & lines.matching(_BLANK)))


def quotes(lines: Lines) -> np.ndarray:
    quoted, said = lines.matching(_QUOTE), lines.matching(_WHO_WROTE)
    for _ in range(2):  # who wrote it can take two lines
        said &= _before(quoted | said, lines) | _before(_before(quoted, lines), lines)
    return quoted | said


def _before(mask: np.ndarray, lines: Lines) -> np.ndarray:
    """Whether the next line of the document is marked."""
    following = np.append(mask[1:], False)
    following[lines.first[1:][lines.first[1:] > 0] - 1] = False
    return following


def signatures(lines: Lines) -> np.ndarray:
    numbers = np.arange(len(lines.rows))
    mark = _of_documents(np.maximum, np.where(lines.matching(_SIGNATURE), numbers, -1), lines)[lines.rows]
    short = lines.first[lines.rows + 1] - mark <= _SIGNATURE_LINES
    return (mark >= 0) & short & (numbers >= mark)


def uuencoded(lines: Lines) -> np.ndarray:
    """At least two full lines, the line `begin` before them, and the end after them."""
    full = (np.diff(lines.starts) > 60) & (lines.data[lines.starts[:-1]] == ord("M"))
    full[full] = pc.match_substring_regex(lines.text.filter(pa.array(full)), _UUENCODED)
    full &= _before(full, lines) | np.append(False, _before(full, lines) & full)[:-1]
    cut = full | (lines.matching(_UU_BEGIN) & _before(full, lines))
    text = lines.text
    for last in np.flatnonzero(full & ~_before(full, lines)):
        stop = min(last + 1 + _UU_TAIL, lines.first[lines.rows[last] + 1])
        for line in range(last + 1, stop):
            content = text[line].as_py().rstrip("\r\n")
            if content not in ("", "`", "end") and not _is_uuencoded(content):
                break
            cut[line] = True
            if content == "end":
                break
    return cut


def _is_uuencoded(line: str) -> bool:
    size = ord(line[0]) - 32
    return 0 < size < 45 and len(line) - 1 == -(-size // 3) * 4 and all(" " <= one <= "`" for one in line)


def _of_documents(function: np.ufunc, values: np.ndarray, lines: Lines) -> np.ndarray:
    """The function over the lines of each document; 0 for one without lines."""
    found = np.zeros(len(lines.first) - 1, np.int64)
    has_lines = np.diff(lines.first) > 0
    found[has_lines] = function.reduceat(values, lines.first[:-1][has_lines])
    return found


LINE_RULES: dict[EditRule, Callable[[Lines], np.ndarray]] = {
    EditRule.POLICY: policy,
    EditRule.C4: c4,
    EditRule.MAIL_HEADERS: mail_headers,
    EditRule.QUOTES: quotes,
    EditRule.SIGNATURES: signatures,
    EditRule.UUENCODED: uuencoded,
    EditRule.GUTENBERG: gutenberg,
    EditRule.FRONT_MATTER: front_matter,
}
# Rules that cut parts of lines, with a pattern that RE2 and Python read alike: its group, or else all of it.
PIECES = {EditRule.CITATIONS: _CITATION, EditRule.MESSAGE_TIMES: MESSAGE_TIME}
