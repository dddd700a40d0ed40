"""What `trace --near` finds in stored articles, and how long it takes in a million documents.

`python performance/near.py` needs the sample corpora in ../shared/corpora and 6 GB of disk; `--documents`
takes fewer. Recall: paragraphs of stored articles, of which words were replaced by words of other articles or
sentences put in another order, and whole articles. Precision: paragraphs and sentences of books and technical
documentation, which are not stored. Speed: the articles cut to 500 words each, over again until they make so
many documents, each time with the letters exchanged, which is other text of the same statistics.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from harness.alone import alone
from harness.kept_corpus import NAME, keep_all
from harness.sidebyside import documents, peak_megabytes, record

from pipeline.steps.dedup import passage_index
from pipeline.steps.dedup.passage_index import LEAST_ALIKE, Matcher
from pipeline.store import keys
from pipeline.store.engines.local import LocalEngine
from pipeline.store.forgotten import Forgotten
from pipeline.store.manifest import Version
from pipeline.store.store import Store

PART_BYTES = 128_000_000
ASKED, ARTICLES, LONG = 200, 50, 50  # LONG: words of an article
SHARES = (0.1, 0.2, 0.3)
WORDS = 500  # of a document of the million
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--ask", metavar="STORE", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--record", action="store_true", help="keep the results")
    options = parser.parse_args()
    if options.ask:
        print(json.dumps(asked(options.ask)))
        return
    articles = [row["text"] for row in documents("enwiki")]
    with TemporaryDirectory() as directory:
        report: dict[str, Any] = {"finds": finds(Path(directory) / "articles", articles)}
        print(json.dumps(report, indent=2), flush=True)
        store = Store(Path(directory) / "million")
        report["speed"] = made(store, articles, options.documents)
        report["speed"] |= alone(__file__, "--ask", str(store.root))
    if options.record:
        record("near", report, ("datasketch", "numpy", "numba", "pyarrow"))
    else:
        print(json.dumps(report, indent=2))


def matcher(store: Store) -> tuple[Matcher, Version]:
    scrubbed = store.current(keys.scrubbed(NAME))
    index = passage_index.index(store, LocalEngine(workers=1), scrubbed)
    return Matcher([(scrubbed, index)], LEAST_ALIKE, Forgotten()), index


def finds(root: Path, articles: Sequence[str]) -> dict[str, Any]:
    """The share of what was asked for that is found; how many documents are found that should not be."""
    store, chooser = Store(root), np.random.default_rng(0)
    keep_all(store, articles, PART_BYTES)
    search, _ = matcher(store)
    words = [word for article in articles for word in article.split()]
    places = [(number, one) for number, article in enumerate(articles) for one in paragraphs(article)]
    chosen = [places[place] for place in chooser.choice(len(places), ASKED, replace=False)]
    long = [number for number, article in enumerate(articles) if len(article.split()) >= LONG]
    whole = [(number, articles[number]) for number in chooser.choice(long, ARTICLES, replace=False)]

    def replaced(text: str, share: float) -> str:
        drawn = chooser.integers(len(words), size=len(text.split()))
        return " ".join(
            words[other] if chooser.random() < share else word
            for word, other in zip(text.split(), drawn, strict=True)
        )

    def found(texts: Sequence[tuple[int, str]]) -> dict[str, float]:
        """The articles are recognized by their text."""
        holds, jaccard = [], []
        for number, text in texts:
            own = [one for one in search.matches(text) if one.row["text"] == articles[number]]
            holds.append(own[0].holds if own else 0.0)
            jaccard.append(own[0].jaccard if own else 0.0)
        return {
            "recall": sum(one > 0 for one in holds) / len(holds),
            "median_share_of_the_text": round(statistics.median(holds), 3),
            "median_jaccard": round(statistics.median(jaccard), 3),
        }

    others = [
        one for name in ("books", "techdocs") for row in documents(name) for one in paragraphs(row["text"])
    ]
    unrelated = [others[place] for place in chooser.choice(len(others), ASKED, replace=False)]
    short = [
        sentence for text in unrelated for sentence in text.split(". ") if 10 <= len(sentence.split()) <= 25
    ]

    def false(texts: Sequence[str]) -> dict[str, int]:
        return {"asked": len(texts), "documents_found": sum(len(list(search.matches(one))) for one in texts)}

    return {
        "articles": len(articles),
        "paragraphs": {
            f"{share:.0%} of words replaced": found([(one, replaced(text, share)) for one, text in chosen])
            for share in SHARES
        },
        "paragraphs, sentences reordered and 10% replaced": found(
            [(one, replaced(reordered(text, chooser), 0.1)) for one, text in chosen]
        ),
        "articles, 20% replaced": found([(one, replaced(text, 0.2)) for one, text in whole]),
        "unrelated paragraphs": false(unrelated),
        "unrelated sentences": false(short[:ASKED]),
    }


def paragraphs(text: str) -> list[str]:
    return [one for one in text.split("\n") if 40 <= len(one.split()) <= 120]


def reordered(text: str, chooser: np.random.Generator) -> str:
    sentences = text.split(". ")
    return ". ".join(sentences[place] for place in chooser.permutation(len(sentences)))


def million(articles: Sequence[str], count: int) -> Iterator[str]:
    pieces = []
    for article in articles:
        words = article.split(" ")
        pieces += [" ".join(words[first : first + WORDS]) for first in range(0, len(words), WORDS)]
    chooser = np.random.default_rng(1)
    for number in range(count):
        if number % len(pieces) == 0:
            letters = "".join(chooser.permutation(list(LETTERS)) if number else LETTERS)
            table = str.maketrans(LETTERS + LETTERS.upper(), letters + letters.upper())
        yield pieces[number % len(pieces)].translate(table)


def made(store: Store, articles: Sequence[str], count: int) -> dict[str, Any]:
    megabytes = keep_all(store, million(articles, count), PART_BYTES)
    started, spent = time.perf_counter(), time.process_time()
    _, index = matcher(store)
    return {
        "documents": index.counts["documents"],
        "passages": index.counts["passages"],
        "mb_of_text": round(megabytes),
        "mb_of_index": round(index.bytes / 1e6),
        "seconds_to_make": round(time.perf_counter() - started, 1),
        "processor_seconds_to_make": round(time.process_time() - spent, 1),
    }


def asked(root: Path) -> dict[str, Any]:
    """In a process of its own: seconds, and the memory that it took beside what is mapped."""
    started = time.perf_counter()
    search, index = matcher(Store(root))
    opening = time.perf_counter() - started
    articles = [row["text"] for row in documents("enwiki")]
    asked_for = [one for article in articles[:200] for one in paragraphs(article)][: 4 * 20 : 4]
    long = [article for article in articles if 2500 < len(article.split()) < 4000][:3]
    return {
        "seconds_to_open": round(opening, 2),
        "load": round(os.getloadavg()[0], 1),
        "paragraph_first": seconds(search, asked_for[:1]),
        "paragraph": seconds(search, asked_for[1:]),
        "article_of_3000_words": seconds(search, long),
        "parts": len(index.parts),
        "peak_mb": round(peak_megabytes()),
    }


def seconds(search: Matcher, texts: Sequence[str]) -> dict[str, float]:
    """The median by the clock, and of processor time."""
    spent = []
    for text in texts:
        started, processor = time.perf_counter(), time.process_time()
        assert list(search.matches(text))
        spent.append((time.perf_counter() - started, time.process_time() - processor))
    clock, processor = (round(statistics.median(one), 2) for one in zip(*spent, strict=True))
    return {"s": clock, "processor_s": processor}


if __name__ == "__main__":
    sys.exit(main())
