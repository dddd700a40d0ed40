"""The profiles by kind of text: each keeps good text of its kind that others reject, and rejects its junk."""

import binascii
import io
import json
import textwrap
from pathlib import Path
from random import Random

import pytest
import zstandard

from pipeline.stages.quality import PROFILES, judge, measure, with_plain_newlines
from tests.corpora import CORPORA, needs_corpora
from tests.pipeline.stages.quality.test_quality import PROSE
from tests.rows import documents

WORDS = [word.strip(".,").lower() for word in PROSE.split()]
RANDOM = Random(1)


def prose(words: int) -> str:
    """Sentences and paragraphs of words in a random order."""
    chosen = (RANDOM.choice(WORDS) for _ in range(words))
    ends = (" ", " ", " ", " ", ", ", " ", " ", ". ", " ", ".\n\n")
    return "".join(word + ends[number % len(ends)] for number, word in enumerate(chosen)) + "end."


def play(speeches: int) -> str:
    """Three speakers, each speech of one line after its speaker's name."""
    names = ("**DUKE.**", "**CURIO.**", "**VIOLA.**")
    lines = (f"{names[n % 3]}\n{' '.join(RANDOM.choices(WORDS, k=25))}." for n in range(speeches))
    return (
        "\n\n".join(lines) + "\n" + "\n".join(" ".join(RANDOM.choices(WORDS, k=9)) for _ in range(speeches))
    )


def mail(signature: str) -> str:
    """An answer to a quoted message, wrapped, with CRLF and a signature."""
    quoted, answer = (textwrap.fill(" ".join(RANDOM.choices(WORDS, k=k)), 70) for k in (40, 60))
    quoted = textwrap.indent(quoted, "> ")
    head = "From: somebody\nSubject: Re: the bridge\nLines: 17\n\nSomebody writes:\n"
    text = f"{head}{quoted}\n\n{answer}\n\n--\n{signature}\n"
    return text.replace("\n", "\r\n")


def rule(profile: str, text: str) -> str | None:
    read = measure(with_plain_newlines(documents(text)))
    found: str | None = judge(read, PROFILES[profile])["rule"][0].as_py()
    return found


def encoded(size: int) -> str:
    """A file as mail carried it: uuencoded."""
    data = RANDOM.randbytes(size)
    return "".join(binascii.b2a_uu(data[at : at + 45], backtick=True).decode() for at in range(0, size, 45))


DRAWN = "\n".join(sign * 70 for sign in "*=-~#") + "\n* Some Body      *      somebody@example.org *"
TABLE = "\n".join(
    f"{n:4}  Some{n} Body{n}  {n * 7}  {n * 3}  .{n * 13 % 1000:03}  1.{n}  {n % 9}" for n in range(200)
)
SOURCE = (Path(__file__).parents[4] / "pipeline" / "steps" / "plain_files.py").read_text(encoding="utf-8")
MINIFIED = "".join(
    f"function a{n}(b,c){{b.d{n}[c]||e(b,{n}),k.l{n}=m(n.o,{n}),p[{n}]||(q=r{n}(s,t)),u.v(w)}}"
    for n in range(400)
)


@pytest.mark.parametrize(
    ("profile", "text", "others"),
    [
        (
            "books",
            prose(110_000),
            {"default": "max_doc_words", "docs": "max_doc_words", "web": "max_doc_words"},
        ),
        ("books", play(400), {"default": "max_dup_line_frac", "gopher-repetition": "max_dup_line_frac"}),
        ("mail", mail("Some Body"), {"default": "min_line_punct_ratio", "fineweb": "min_line_punct_ratio"}),
        ("mail", mail(DRAWN), {"docs": "max_special_character_share"}),
        ("code", SOURCE, {"default": "min_line_punct_ratio", "web": "filter_curly_bracket"}),
        ("web", PROSE, {"plain": "min_words"}),
    ],
    ids=["a long book", "a play", "mail", "mail with a drawn signature", "code", "a page"],
)
def test_the_profile_of_its_kind_keeps_a_good_text_that_others_reject(
    profile: str, text: str, others: dict[str, str]
) -> None:
    assert rule(profile, text) is None
    assert {name: rule(name, text) for name in others} == others


@pytest.mark.parametrize(
    ("profile", "text", "why"),
    [
        ("books", "\n".join(f"{page}\n" for page in range(500)), "min_avg_word_length"),
        ("books", f"{prose(400)}\n\n" * 4, "max_dup_para_frac"),
        ("mail", f"The file of the program:\n\nbegin 644 a.bmp\n{encoded(9000)}end\n", "max_avg_word_length"),
        ("mail", f"Here are the standings of the week:\n\n{TABLE}", "min_alpha_words_ratio"),
        ("mail", "unsubscribe\n\nSome Body", "min_doc_words"),
        ("code", MINIFIED, "max_mean_word_length"),
        (
            "code",
            "table = [\n" + "".join(f"    ({n}, {n * n}, 0),\n" for n in range(900)),
            "min_alpha_words_ratio",
        ),
        ("code", "from .models import backends", "min_words"),
        ("web", "\n".join(PROSE.split()), "min_num_sentences"),
        ("web", PROSE[:330] + " function(a) { return the rest of it.", "filter_curly_bracket"),
    ],
)
def test_the_profile_of_its_kind_rejects_junk(profile: str, text: str, why: str) -> None:
    assert rule(profile, text) == why


@needs_corpora
@pytest.mark.slow
@pytest.mark.parametrize(
    ("corpus", "profile", "most"),
    [("books", "books", 0), ("techdocs", "docs", 0.03), ("enwiki", "docs", 0.01), ("books", "default", 1)],
)
def test_the_profile_of_its_kind_rejects_few_bytes_of_good_text(
    corpus: str, profile: str, most: float
) -> None:
    """As docs/performance/data.md says."""
    file = zstandard.ZstdDecompressor().stream_reader((CORPORA / f"{corpus}.jsonl.zst").open("rb"))
    texts = [json.loads(line)["text"] for line in io.TextIOWrapper(file, encoding="utf-8")]
    sizes = [len(text.encode()) for text in texts]
    read = measure(with_plain_newlines(documents(*texts)))
    keep = judge(read, PROFILES[profile])["keep"].to_pylist()
    rejected = sum(size for size, kept in zip(sizes, keep, strict=True) if not kept) / sum(sizes)
    assert rejected <= most
    assert profile != "default" or rejected > 0.7
