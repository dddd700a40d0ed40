"""The lines that each rule cuts. A rule takes Lines and returns bool[lines]."""

import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages.edits.lines import Lines
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


def with_citations_apart(lines: Lines) -> tuple[Lines, np.ndarray]:
    """The lines, split before and after each citation, and which of them are citations."""
    cited, places = re.compile(_CITATION.encode()), []
    for line in np.flatnonzero(lines.matching(_CITATION)):
        start, end = lines.starts[line : line + 2]
        found = cited.finditer(lines.data[start:end].tobytes())
        places += [start + place for one in found for place in one.span()]
    split = lines.split(np.array(places, np.int64))
    return split, np.isin(split.starts[:-1], np.array(places[::2], np.int64))


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
}
