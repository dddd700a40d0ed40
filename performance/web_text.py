"""The text of web pages against text that people took out of them: F1, precision and recall of the public
article-extraction-benchmark, by its own evaluator, and the speed.

`python performance/web_text.py CHECKOUT` needs a checkout of scrapinghub/article-extraction-benchmark and the
extra `web`. Megabytes are those of HTML; `kind: warc` runs each extractor in a worker process, the libraries
alone run in this one. Seconds are of the processor, so that other work on the machine does not count.
"""

import argparse
import gzip
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.sidebyside import Contender, importable, measure, record

from pipeline.sources.source import RefusedError
from pipeline.sources.web.pages import Extractor, PageExtractor

Pages = dict[str, bytes]
Texts = dict[str, str]


def text_of(worker: PageExtractor, page: bytes) -> str:
    try:
        return worker.extract(page, "utf-8")[0]
    except RefusedError:
        return ""


def ours(extractor: Extractor) -> Callable[[Pages], Texts]:
    def texts(pages: Pages) -> Texts:
        with PageExtractor(60, extractor) as worker:
            return {name: text_of(worker, page) for name, page in pages.items()}

    return texts


def resiliparse(pages: Pages) -> Texts:
    from resiliparse.extract.html2text import extract_plain_text

    return {name: extract_plain_text(page.decode(), main_content=True) for name, page in pages.items()}


def trafilatura(pages: Pages) -> Texts:
    from trafilatura import extract

    return {name: extract(page.decode(), include_comments=False) or "" for name, page in pages.items()}


def processor_seconds() -> float:
    """Of this process and of the workers that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def evaluator(checkout: Path) -> Callable[..., dict[str, Any]]:
    """`evaluate` of the benchmark."""
    spec = importlib.util.spec_from_file_location("evaluate", checkout / "evaluate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    evaluate: Callable[..., dict[str, Any]] = module.evaluate
    return evaluate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, help="of scrapinghub/article-extraction-benchmark")
    checkout = parser.parse_args().checkout
    if not (checkout / "ground-truth.json").exists():
        sys.exit(f"skipped: {checkout} is no checkout of scrapinghub/article-extraction-benchmark")
    if not importable("resiliparse", "trafilatura"):
        sys.exit("skipped: needs the extra `web`")
    truth = json.loads((checkout / "ground-truth.json").read_text())
    pages = {name: gzip.decompress((checkout / "html" / f"{name}.html.gz").read_bytes()) for name in truth}
    extractors = {
        "groundwork, resiliparse": ours("resiliparse"),
        "groundwork, trafilatura": ours("trafilatura"),
        "resiliparse alone": resiliparse,
        "trafilatura alone": trafilatura,
    }
    evaluate, quality = evaluator(checkout), {}
    for name, extract in extractors.items():
        found = {page: {"articleBody": text} for page, text in extract(pages).items()}
        scores = evaluate(truth, found, n_bootstrap=1000)
        quality[name] = {score: round(scores[score], 4) for score in ("f1", "f1_std", "precision", "recall")}
    megabytes = sum(map(len, pages.values())) / 1e6
    contenders = {
        name: Contender(megabytes, lambda extract=extract: extract(pages))
        for name, extract in extractors.items()
    }
    speed = measure(contenders, processor_seconds)
    report = {"pages": len(pages), "quality": quality, "speed": speed}
    record("web_text", report, ("resiliparse", "trafilatura"))


if __name__ == "__main__":
    main()
